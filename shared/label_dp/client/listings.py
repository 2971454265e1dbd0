"""Listings that come in pages, read as one list."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload
from urllib.parse import parse_qsl

import httpx

from label_dp.client.conversation import Conversation, Json, Request, json_of, path
from label_dp.errors import Unavailable

T = TypeVar("T")
PAGE, MOST_PAGES = 500, 1000
MAX_PAGE_BYTES = 1 << 24


def as_record(entry: Any) -> Json | None:
    """Return an entry unchanged; None if it is no object."""
    return entry if isinstance(entry, dict) else None


@overload
def linked(template: str, *, limit: int | None = None, **params: Any) -> Conversation[list[Json]]: ...


@overload
def linked(template: str, read: Callable[[Any], T | None], **params: Any) -> Conversation[list[T]]: ...


def linked(
    template: str, read: Callable[[Any], Any] = as_record, *, limit: int | None = None, **params: Any
) -> Conversation[list[Any]]:
    """Read the pages that follow each other by their `Link` header into one list of at most `limit` entries. `read`
    converts an entry; it returns None for a malformed one. Raises Unavailable for a malformed or endless list."""
    records: list[Any] = []
    query: dict[str, Any] = params | {"limit": PAGE if limit is None else max(1, min(limit, PAGE))}
    cursors: set[str] = set()
    while len(cursors) < MOST_PAGES:
        answer: httpx.Response = yield Request("GET", path(template), params=query, most=MAX_PAGE_BYTES)
        entries = [read(entry) for entry in json_of(answer, list)]
        link = answer.links.get("next", {}).get("url")
        cursor = None if link is None else dict(parse_qsl(link.partition("?")[2])).get("cursor", "")
        # a repeated page would never end
        if None in entries or (cursor is not None and (not entries or not cursor or cursor in cursors)):
            raise Unavailable(f"The list of {template} is malformed; the service's version may be too old to have one.")
        records += entries
        if cursor is None or (limit is not None and len(records) >= limit):
            return records[:limit]
        cursors.add(cursor)
        query["cursor"] = cursor
    raise Unavailable(f"The list of {template} does not end; ask for those since a later day.")
