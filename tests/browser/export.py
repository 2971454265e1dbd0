"""The demo's own pages as files to click through: `python -m tests.browser.export` writes them to dist/demo-pages.

A made-up month of a labels party as an auditor sees it, and a model of a features party as its trainer does. Links lead
to files, forms are dead, and what a session alone may hold (tokens, scripts, downloads) is left out.
"""

from __future__ import annotations

import html
import re
import shutil
import tempfile
import time
from pathlib import Path
from urllib.parse import urldefrag, urljoin, urlsplit

import httpx

from tests.browser.pictures import features_party, labels_party

OUT = Path(__file__).parents[2] / "dist" / "demo-pages"
MOST = 250  # files of a party: a loop of links must not export for ever
ENDLESS = re.compile(r"\.js$|[?&]month=")  # calendars go on in both directions
LINK = re.compile(r'\b(href|src)="([^"]*)"')
BANNER = (
    '<p style="max-width:none;margin:0;padding:.4rem 1rem;background:#8a5a00;color:#fff;text-align:center">'
    'Read-only export of made-up data: forms do nothing. <a style="color:#fff" href="{up}index.html">All pages</a></p>'
)
INDEX = """<!DOCTYPE html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>The demo's pages</title><style>body{{font:16px/1.6 sans-serif;max-width:44rem;margin:3rem auto}}</style>
<h1>The demo's pages</h1><p>Both parties' pages on made-up data, to click through without an installation. They are a
read-only export: forms do nothing, and downloads are left out. <a href="../index.html">Back to the guides</a>.</p>
<ul>{entries}</ul></html>
"""


def name_of(url: str) -> str:
    """File of a page: its path and query in letters that every disk and server take."""
    parts = urlsplit(url)
    plain = re.sub(r"[^\w.-]+", "_", f"{parts.path.strip('/') or 'home'}{'__' + parts.query if parts.query else ''}")
    return plain if parts.path.endswith((".css", ".svg")) else f"{plain}.html"


def visit(session: httpx.Client, url: str) -> httpx.Response:
    """A page once it has what it works out."""
    for _ in range(60):
        reply = session.get(url)
        if "data-live" not in reply.text:
            break
        time.sleep(1)
    return reply


def exported(base: str, key: str, folder: Path) -> int:
    """Follow all links of somebody with that key from the first page, and keep what is a page or its style."""
    folder.mkdir(parents=True)
    with httpx.Client(timeout=60, follow_redirects=True) as session:
        assert session.post(f"{base}/sign-in", data={"key": key, "other": ""}).status_code == 200
        first = str(session.get(f"{base}/").url)
        waiting, kept = [first], dict[str, httpx.Response]()
        while waiting:
            assert len(kept) < MOST, waiting[:5]
            url = waiting.pop(0)
            if url in kept or not url.startswith(base):
                continue
            reply = visit(session, url)
            if reply.status_code != 200 or not reply.headers["content-type"].startswith(("text/", "image/svg")):
                continue
            if "attachment" in reply.headers.get("content-disposition", ""):
                continue
            kept[url] = reply
            if reply.headers["content-type"].startswith("text/html"):
                links = (urldefrag(urljoin(url, html.unescape(link))).url for _, link in LINK.findall(reply.text))
                waiting += [link for link in links if not ENDLESS.search(link)]
        for url, reply in kept.items():
            page = still(url, reply, kept)
            assert key not in page
            assert "csrf" not in page, url
            (folder / name_of(url)).write_text(page, encoding="utf-8")
        shutil.copy(folder / name_of(first), folder / "index.html")
    return len(kept)


def still(url: str, reply: httpx.Response, kept: dict[str, httpx.Response]) -> str:
    """The page with links to files, dead forms and no script."""
    if not reply.headers["content-type"].startswith("text/html"):
        return reply.text

    def led(match: re.Match[str]) -> str:
        target, fragment = urldefrag(urljoin(url, html.unescape(match.group(2))))
        if target in kept:
            return f'{match.group(1)}="{name_of(target)}{"#" + fragment if fragment else ""}"'
        return f'{match.group(1)}="#" title="not in this export"'

    dead = r'<script\b.*?</script>|<input[^>]*name="csrf"[^>]*>|(?<=<button) name="csrf" value="\w+"'
    text = re.sub(dead, "", reply.text, flags=re.DOTALL)
    text = re.sub(r"<form\b[^>]*>", "<form inert>", LINK.sub(led, text))
    return re.sub(r"<body[^>]*>", lambda body: body.group() + BANNER.format(up="../"), text, count=1)


def main() -> None:
    shutil.rmtree(OUT, ignore_errors=True)
    entries = ""
    with tempfile.TemporaryDirectory() as folder:
        for name, party in (("labels-party", labels_party), ("features-party", features_party)):
            (Path(folder) / name).mkdir()
            with party(Path(folder) / name) as (base, key, role):
                pages = exported(base, key, OUT / name)
            entries += (
                f'<li><a href="{name}/index.html">{name.replace("-", " ").capitalize()}</a>, as its {role} sees it</li>'
            )
            print(f"{OUT / name}: {pages} files")
    (OUT / "index.html").write_text(INDEX.format(entries=entries), encoding="utf-8")


if __name__ == "__main__":
    main()
