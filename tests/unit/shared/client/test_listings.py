"""Pages as one list, and waiting for an end, in both flavours."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from shared import errors
from shared.client import listings
from shared.client.listings import as_record, linked, numbered
from shared.client.waiting import until
from tests.support.scripted import FLAVOURS, Line

pytestmark = pytest.mark.parametrize("flavour", FLAVOURS)


def test_all_numbered_pages_are_read(flavour: str) -> None:
    pages = {None: (["a", "b"], "b"), "b": (["c"], "c"), "c": (["d"], None)}

    def handle(request: httpx.Request) -> httpx.Response:
        ids, after = pages[request.url.params.get("after")]
        return httpx.Response(200, json={"things": [{"id": name} for name in ids], "next": after})

    line = Line(flavour, handle)
    found = line.run(numbered("things", as_record, since="2026-11-01", population=None))
    assert [entry["id"] for entry in found] == ["a", "b", "c", "d"]
    assert {r.url.params["since"] for r in line.seen} == {"2026-11-01"}
    assert not any("population" in r.url.params for r in line.seen)


@pytest.mark.parametrize(
    ("page", "pages"),
    [
        ({}, 1),
        ({"things": None}, 1),
        ({"things": [7], "next": None}, 1),
        ({"things": [], "next": "a"}, 1),
        ({"things": [{"id": "a"}], "next": "b"}, 1),  # not its last one
        ({"things": [{"id": "a"}], "next": ["a"]}, 1),
        ({"things": [{"id": "a"}], "next": "a"}, 2),  # the same page again
    ],
)
def test_a_malformed_or_endless_list_is_refused(flavour: str, page: Any, pages: int) -> None:
    line = Line(flavour, lambda _: httpx.Response(200, json=page))
    with pytest.raises(errors.Unavailable, match="malformed"):
        line.run(numbered("things", as_record))
    assert len(line.seen) == pages


def test_new_pages_without_end_are_left(flavour: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listings, "MOST_PAGES", 4)

    def handle(_: httpx.Request) -> httpx.Response:
        new = str(len(line.seen))
        return httpx.Response(200, json={"things": [{"id": new}], "next": new})

    line = Line(flavour, handle)
    with pytest.raises(errors.Unavailable, match="does not end"):
        line.run(numbered("things", as_record))
    assert len(line.seen) == 4


@pytest.mark.parametrize(("limit", "read", "asked"), [(None, 5, "2"), (3, 3, "2"), (1, 1, "1")])
def test_linked_pages_are_followed_up_to_a_limit(
    flavour: str, limit: int | None, read: int, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listings, "PAGE", 2)

    def handle(request: httpx.Request) -> httpx.Response:
        start, size = int(request.url.params.get("after", 0)), int(request.url.params["limit"])
        rows = [{"n": n} for n in range(start, min(start + size, 5))]
        more = start + size < 5
        link = {"Link": f'</v1/things?after={start + size}&limit={size}>; rel="next"'} if more else {}
        return httpx.Response(200, json=rows, headers=link)

    line = Line(flavour, handle)
    assert [row["n"] for row in line.run(linked("/v1/things", limit, state="done"))] == list(range(read))
    assert line.seen[0].url.params["limit"] == asked
    assert {r.url.params["state"] for r in line.seen} == {"done"}


def test_waiting_ends_with_the_state_asked_for(flavour: str) -> None:
    states = iter(["accepted", "drawing", "published"])
    line = Line(flavour, lambda _: httpx.Response(200, json={"state": next(states)}))
    assert line.run(until("published", "Release", "releases/{}", "rel_1", 60))["state"] == "published"
    assert line.pauses == sorted(line.pauses)
    assert len(line.pauses) == 2


@pytest.mark.parametrize("state", ["failed", "declined", "cancelled", "retired"])
def test_another_end_is_a_conflict_that_says_why(flavour: str, state: str) -> None:
    line = Line(flavour, lambda _: httpx.Response(200, json={"state": state, "problem": {"detail": "Out of budget."}}))
    with pytest.raises(errors.Conflict, match=f"Release 'rel_1' is {state}. Out of budget."):
        line.run(until("published", "Release", "releases/{}", "rel_1", 60))


def test_waiting_has_an_end(flavour: str) -> None:
    line = Line(flavour, lambda _: httpx.Response(200, json={"state": "accepted"}))
    with pytest.raises(errors.Unavailable, match=r"within 0 seconds; its state is accepted. It waits for approval."):
        line.run(until("published", "Release", "releases/{}", "rel_1", 0))
