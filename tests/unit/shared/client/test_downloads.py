"""Downloads in both flavours: continued where they broke off, never longer than promised."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from shared import errors
from shared.client.downloads import download
from tests.support.scripted import FLAVOURS, Broken, Line

DATA = bytes(range(256)) * 40
pytestmark = pytest.mark.parametrize("flavour", FLAVOURS)


def from_(request: httpx.Request) -> int:
    return int(request.headers.get("range", "bytes=0-")[6:-1])


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
    line.run(download("/v1/file", "f", len(DATA), tmp_path / "f", told.append))
    assert (tmp_path / "f").read_bytes() == DATA
    assert [r.headers.get("range") for r in line.seen] == [None, "bytes=700-", "bytes=5000-"]
    assert told[-1] == len(DATA)
    assert len(line.pauses) == 2


def test_trouble_that_stays_is_given_up(flavour: str, tmp_path: Path) -> None:
    line = Line(flavour, lambda _: httpx.Response(200, stream=Broken()), retries=3)
    with pytest.raises(errors.Unavailable, match="4 attempts"):
        line.run(download("/v1/file", "f", 1, tmp_path / "f"))
    assert len(line.seen) == 4


def test_a_byte_more_than_promised_ends_it(flavour: str, tmp_path: Path) -> None:
    line = Line(flavour, lambda _: httpx.Response(200, content=DATA))
    with pytest.raises(errors.Unavailable, match="more bytes"):
        line.run(download("/v1/file", "f", len(DATA) - 1, tmp_path / "f"))
    assert len(line.seen) == 1


def test_a_refusal_ends_it(flavour: str, tmp_path: Path) -> None:
    line = Line(flavour, lambda _: httpx.Response(404, json={"detail": "There is no such file."}))
    with pytest.raises(errors.RemoteProblem, match="no such file"):
        line.run(download("/v1/file", "f", 1, tmp_path / "f"))
    assert len(line.seen) == 1
