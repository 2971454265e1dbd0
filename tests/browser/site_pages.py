"""Hook of mkdocs for `make site`: Markdown where it lies, sources that it links, and the Python interfaces.

Paths on the site are those of the repository, so that one link leads to the same place in both. A link to a source file
or a folder leads to a page made of it under `source/`. A link that leads nowhere fails the build, which is strict.
"""

from __future__ import annotations

import json
import posixpath
import re
import subprocess
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
EXPORT = ROOT / "dist" / "demo-pages"  # by `python -m tests.browser.export`
LINK = re.compile(r"(?<=\]\()([^)\s#:]+)(?=[)#])")
BLOCK = re.compile(r"(^```.*?^```)", re.MULTILINE | re.DOTALL)
# a list right below its sentence, which GitHub takes and Python-Markdown does not
LIST = re.compile(r"^(?![-*#|>\s]|\d+\. )(.+)\n(?=[-*] |1\. )", re.MULTILINE)
LANGUAGES = {".py": "python", ".yml": "yaml", ".json": "json", ".sh": "bash", ".toml": "toml"}
PICTURES = (".png", ".svg")


def tracked() -> list[str]:
    """Paths that git has or would take."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return sorted({path for path in listed.stdout.splitlines() if (ROOT / path).exists()})


def documents() -> list[str]:
    """Markdown of the repository."""
    return [path for path in tracked() if path.endswith(".md")]


def links(path: str) -> set[str]:
    """What a document links inside the repository, as paths of it."""
    text = BLOCK.sub("", (ROOT / path).read_text(encoding="utf-8"))
    return {resolved(path, link) for link in LINK.findall(text)}


def resolved(path: str, link: str) -> str:
    """Path of the repository that a relative link of a document names."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), link))


def page_of(path: str) -> str:
    """The page of a linked path: itself, or the one made of a source file or a folder."""
    if path.endswith((".md", *PICTURES)) or not (ROOT / path).exists():
        return path
    return f"source/{path}.md"


def source_page(path: str) -> str:
    """Markdown of a linked source file, notebook or folder; search leaves it out."""
    head = f"---\nsearch:\n  exclude: true\n---\n# `{path}`\n\n"
    place = ROOT / path
    if place.is_dir():
        below = [each for each in tracked() if each.startswith(path + "/")]
        # a page under source/ stands one folder deeper than what it is made of
        up = "../" * (path.count("/") + 1)
        return head + "\n".join(
            f"- [{each.removeprefix(path + '/')}]({up}{page_of(each)})"
            if each.endswith((".md", ".ipynb"))
            else f"- `{each.removeprefix(path + '/')}`"
            for each in below
        )
    if place.suffix == ".ipynb":
        return head + notebook(json.loads(place.read_text(encoding="utf-8")))
    return head + fenced(place.read_text(encoding="utf-8"), LANGUAGES.get(place.suffix, "text"))


def notebook(cells: dict[str, Any]) -> str:
    """Text, code and printed output of a notebook; its pictures inline."""
    parts = []
    for cell in cells["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else fenced(source, "python"))
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if "image/png" in data:
                parts.append(f"![output](data:image/png;base64,{''.join(data['image/png']).strip()})")
            else:
                parts.append(fenced("".join(output.get("text", data.get("text/plain", ""))), "text"))
    return "\n\n".join(parts)


def fenced(text: str, language: str) -> str:
    """Block of code that may hold blocks."""
    return f"`````{language}\n{text.rstrip()}\n`````\n"


def on_files(files: Files, config: Any) -> Files:
    """Replace what lies in `docs_dir`, which mkdocs needs, by the pages of the whole repository."""
    texts = documents()
    linked = set[str]().union(*map(links, texts))
    notebooks = {path for path in tracked() if path.endswith(".ipynb")}
    pages = [File.generated(config, path, abs_src_path=str(ROOT / path)) for path in texts]
    for path in sorted(linked | notebooks):
        if path.endswith(PICTURES):
            pages.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
        elif page_of(path) != path:
            pages.append(File.generated(config, page_of(path), content=source_page(path)))
    for page, names in config.extra["api"].items():
        blocks = "\n\n".join(f"::: {name}" for name in names)
        pages.append(File.generated(config, f"api/{page}.md", content=f"# Python: {page}\n\n{blocks}\n"))
    for place in sorted(EXPORT.rglob("*.*")):
        uri = f"demo/{place.relative_to(EXPORT).as_posix()}"
        pages.append(File.generated(config, uri, abs_src_path=str(place)))
    theme = [file for file in files if file.src_dir != config.docs_dir]
    return Files([*theme, *pages])


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Lead links to sources to the pages made of them, and begin lists where GitHub does."""
    here = page.file.src_uri
    if here.startswith(("source/", "api/")):
        return markdown

    def led(match: re.Match[str]) -> str:
        path = resolved(here, match.group())
        same = page_of(path) == path
        return match.group() if same else posixpath.relpath(page_of(path), posixpath.dirname(here) or ".")

    return "".join(
        part if part.startswith("```") else LIST.sub(r"\1\n\n", LINK.sub(led, part)) for part in BLOCK.split(markdown)
    )
