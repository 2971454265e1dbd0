"""Pages as one list, and waiting for an end, in both flavours."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from label_dp import errors
from label_dp.client import listings
from label_dp.client.conversation import until
from label_dp.client.listings import linked
from tests.support.scripted import FLAVOURS, Line, page_of

pytestmark = pytest.mark.parametrize("flavour", FLAVOURS)


def test_all_pages_are_read(flavour: str) -> None:
    pages = {None: (["a", "b"], "b"), "b": (["c"], "c"), "c": (["d"], None)}

    def handle(request: httpx.Request) -> httpx.Response:
        ids, cursor = pages[request.url.params.get("cursor")]
        return page_of([{"id": name} for name in ids], cursor)

    line = Line(flavour, handle)
    found = line.run(linked("things", since="2026-11-01", population=None))
    assert [entry["id"] for entry in found] == ["a", "b", "c", "d"]
    assert {r.url.params["since"] for r in line.seen} == {"2026-11-01"}
    assert not any("population" in r.url.params for r in line.seen)


@pytest.mark.parametrize(
    ("rows", "link", "pages"),
    [
        ({}, "", 1),
        ([7], "", 1),
        ([], "?cursor=a", 1),
        ([{"id": "a"}], "?since=2020-01-01", 1),
        ([{"id": "a"}], "?cursor=a", 2),  # the same page again
    ],
)
def test_a_malformed_or_endless_list_is_refused(flavour: str, rows: Any, link: str, pages: int) -> None:
    headers = {"Link": f'<{link}>; rel="next"'} if link else {}
    line = Line(flavour, lambda _: httpx.Response(200, json=rows, headers=headers))
    with pytest.raises(errors.Unavailable, match=r"malformed|not JSON as expected"):
        line.run(linked("things"))
    assert len(line.seen) == pages


def test_a_link_changes_nothing_but_the_cursor(flavour: str) -> None:
    link = {"Link": '<https://elsewhere/v1/other?cursor=b&since=2020-01-01>; rel="next"'}
    line = Line(flavour, lambda _: httpx.Response(200, json=[{}], headers={} if line.seen[1:] else link))
    line.run(linked("things", since="2026-11-01"))
    assert [(r.url.path, r.url.params["since"]) for r in line.seen] == [("/v1/things", "2026-11-01")] * 2


def test_new_pages_without_end_are_left(flavour: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listings, "MOST_PAGES", 4)
    line = Line(flavour, lambda _: page_of([{}], f"c{len(line.seen)}"))
    with pytest.raises(errors.Unavailable, match="does not end"):
        line.run(linked("things"))
    assert len(line.seen) == 4


@pytest.mark.parametrize(("limit", "read", "asked"), [(None, 5, "2"), (3, 3, "2"), (1, 1, "1")])
def test_linked_pages_are_followed_up_to_a_limit(
    flavour: str, limit: int | None, read: int, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listings, "PAGE", 2)

    def handle(request: httpx.Request) -> httpx.Response:
        start, size = int(request.url.params.get("cursor", 0)), int(request.url.params["limit"])
        rows = [{"n": n} for n in range(start, min(start + size, 5))]
        more = start + size < 5
        link = {"Link": f'</v1/things?cursor={start + size}&limit={size}>; rel="next"'} if more else {}
        return httpx.Response(200, json=rows, headers=link)

    line = Line(flavour, handle)
    assert [row["n"] for row in line.run(linked("things", limit=limit, state="done"))] == list(range(read))
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
