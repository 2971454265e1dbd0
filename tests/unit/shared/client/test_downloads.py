"""Downloads in both flavours: continued where they broke off, never longer than promised, never another version."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import httpx
import pytest

from label_dp import errors
from label_dp.client import downloads
from label_dp.client.downloads import PROGRESS, download
from label_dp.documents.arriving import Arriving
from label_dp.documents.manifest import FileEntry
from tests.support.scripted import FLAVOURS, Broken, Line

DATA = bytes(range(256)) * 40
ENTRY = FileEntry(role="message", name="f", bytes=len(DATA), rows=1, sha256=hashlib.sha256(DATA).hexdigest())
pytestmark = pytest.mark.parametrize("flavour", FLAVOURS)


def from_(request: httpx.Request) -> int:
    return int(request.headers.get("range", "bytes=0-")[6:-1])


def fetch(line: Line, path: Path, entry: FileEntry = ENTRY, **options: Any) -> bytes:
    with Arriving(path, entry) as part:
        line.run(download("/v1/file", part, **options))
    return path.read_bytes()


def answer(request: httpx.Request, data: bytes = DATA, tag: str | None = None, *, broken: int = 0) -> httpx.Response:
    """What a server of `data` says; it breaks off after `broken` bytes."""
    start = from_(request)
    headers = {"ETag": tag} if tag else {}
    if start:
        headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
    body: Any = {"stream": Broken(data[start : start + broken])} if broken else {"content": data[start:]}
    return httpx.Response(206 if start else 200, headers=headers, **body)


@pytest.mark.parametrize("ranges", [True, False])
def test_what_is_there_is_kept_or_sent_again(flavour: str, ranges: bool, tmp_path: Path) -> None:
    told: list[int] = []

    def handle(request: httpx.Request) -> httpx.Response:
        start = from_(request) if ranges else 0
        if len(line.seen) == 1:
            return httpx.Response(200, stream=Broken(DATA[:100], DATA[100:700]))
        if len(line.seen) == 2:  # it ends in order, too early
            return httpx.Response(206 if start else 200, content=DATA[start:5000])
        return httpx.Response(206 if start else 200, content=DATA[start:])

    line = Line(flavour, handle)
    assert fetch(line, tmp_path / "f", on_bytes=told.append) == DATA
    assert [r.headers.get("range") for r in line.seen] == [None, "bytes=700-", "bytes=5000-"]
    assert (told[0], told[-1]) == (0, len(DATA))
    assert len(line.pauses) == 2


def test_what_an_earlier_process_left_is_kept(flavour: str, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(DATA[:4000])
    line = Line(flavour, answer)
    assert fetch(line, tmp_path / "f") == DATA
    assert [r.headers.get("range") for r in line.seen] == ["bytes=4000-"]
    line = Line(flavour, answer)
    assert fetch(line, tmp_path / "f") == DATA
    assert line.seen == []  # all of it is there


@pytest.mark.parametrize("left", [b"x" * 4000, b"x" * len(DATA), DATA[:3999] + b"x", DATA + b"more"])
def test_a_partial_download_of_another_file_is_fetched_anew(flavour: str, left: bytes, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(left)
    line = Line(flavour, answer)
    assert fetch(line, tmp_path / "f") == DATA
    assert "range" not in line.seen[-1].headers


def test_a_version_is_asked_for_by_its_strong_tag(flavour: str, tmp_path: Path) -> None:
    for tag, expected in (('"v1"', '"v1"'), ('W/"v1"', None), (None, None), ("v1", None)):
        line = Line(flavour, lambda r, tag=tag: answer(r, tag=tag, broken=0 if "range" in r.headers else 700))
        assert fetch(line, tmp_path / f"{tag and len(tag)}") == DATA
        assert [r.headers.get("if-match") for r in line.seen] == [None, expected]


@pytest.mark.parametrize("status", [412, 416, 206, 200])
def test_another_version_is_begun_anew(flavour: str, status: int, tmp_path: Path) -> None:
    old = bytes(len(DATA))

    def handle(request: httpx.Request) -> httpx.Response:
        if len(line.seen) == 1:
            return answer(request, old, '"v1"', broken=700)
        if "range" in request.headers and status >= 400:
            return httpx.Response(status, json={"detail": "No."})
        if "range" in request.headers and status == 200:
            return httpx.Response(200, content=DATA, headers={"ETag": '"v2"'})
        return answer(request, tag='"v2"')

    line = Line(flavour, handle)
    assert fetch(line, tmp_path / "f") == DATA
    assert [r.headers.get("if-match") for r in line.seen] == [None, '"v1"', None][: len(line.seen)]


@pytest.mark.parametrize("span", ["bytes 0-9/10240", "bytes 700-10239/9", "bytes 700", ""])
def test_another_range_than_asked_for_is_not_taken(flavour: str, span: str, tmp_path: Path) -> None:
    def handle(request: httpx.Request) -> httpx.Response:
        if "range" not in request.headers:
            return answer(request, broken=700 if len(line.seen) == 1 else 0)
        return httpx.Response(206, content=DATA[700:], headers={"Content-Range": span})

    line = Line(flavour, handle)
    assert fetch(line, tmp_path / "f") == DATA
    assert len(line.seen) == 3


def test_a_changed_bit_is_refused_and_nothing_is_kept(flavour: str, tmp_path: Path) -> None:
    changed = DATA[:-1] + b"x"
    for resumed in (False, True):
        line = Line(flavour, lambda r: answer(r, changed))
        (tmp_path / "f").write_bytes(DATA[:500] if resumed else b"")
        with pytest.raises(errors.DigestMismatch, match="'f' does not match"):
            fetch(line, tmp_path / "f")
        assert (tmp_path / "f").read_bytes() == b""
        assert len(line.seen) == 1 + resumed  # what was there before may have been the fault, once


def test_trouble_that_stays_is_given_up(flavour: str, tmp_path: Path) -> None:
    line = Line(flavour, lambda _: httpx.Response(200, stream=Broken()), retries=3)
    with pytest.raises(errors.Unavailable, match="4 attempts"):
        fetch(line, tmp_path / "f")
    assert len(line.seen) == 4


def test_a_poor_line_is_borne_as_long_as_it_gets_on(
    flavour: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert PROGRESS == 1 << 20
    monkeypatch.setattr(downloads, "PROGRESS", 1000)
    line = Line(flavour, lambda r: answer(r, broken=500), retries=2)
    assert fetch(line, tmp_path / "f") == DATA
    assert len(line.seen) == -(-len(DATA) // 500)
    line = Line(flavour, lambda r: answer(r, broken=100), retries=2)
    with pytest.raises(errors.Unavailable, match="3 attempts"):
        fetch(line, tmp_path / "g")
    assert (tmp_path / "g").read_bytes() == DATA[:300]  # for the next time


def test_a_byte_more_than_promised_ends_it(flavour: str, tmp_path: Path) -> None:
    line = Line(flavour, lambda _: httpx.Response(200, content=DATA + b"x"))
    with pytest.raises(errors.Unavailable, match="more bytes"):
        fetch(line, tmp_path / "f")
    assert len(line.seen) == 1
    assert (tmp_path / "f").read_bytes() == b""


def test_a_refusal_ends_it(flavour: str, tmp_path: Path) -> None:
    line = Line(flavour, lambda _: httpx.Response(404, json={"detail": "There is no such file."}))
    with pytest.raises(errors.RemoteProblem, match="no such file"):
        fetch(line, tmp_path / "f")
    assert len(line.seen) == 1
