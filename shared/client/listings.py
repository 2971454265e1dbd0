"""Listings that come in pages, as one list."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import httpx

from shared.client.conversation import Conversation, Json, Request, json_of, path
from shared.errors import Unavailable

T = TypeVar("T")
PAGE, MOST_PAGES = 500, 1000
MAX_PAGE_BYTES = 1 << 22


def linked(where: str, limit: int | None = None, **params: Any) -> Conversation[list[Json]]:
    """The entries of pages that name the next one in their `Link` header, at most `limit`."""
    found: list[Json] = []
    query: dict[str, Any] = params | {"limit": PAGE if limit is None else max(1, min(limit, PAGE))}
    while True:
        answer: httpx.Response = yield Request("GET", where, params=query)
        found += json_of(answer, list)
        link = answer.links.get("next", {}).get("url")
        if link is None or (limit is not None and len(found) >= limit):
            return found[:limit]
        query = query | dict(parse_qsl(link.partition("?")[2]))


def as_record(entry: Any) -> Json | None:
    """An entry as it stands; None where it is no object."""
    return entry if isinstance(entry, dict) else None


def numbered(template: str, read: Callable[[Any], T | None], **params: Any) -> Conversation[list[T]]:
    """The entries of pages {template: [...], "next": id of the last one, or null}, each as `read` has it.

    Raises Unavailable where `read` finds an entry malformed (None), or where the pages do not end.
    """
    found: list[T] = []
    query: dict[str, Any] = params | {"limit": PAGE}
    seen: set[Any] = set()
    while len(seen) < MOST_PAGES:
        answer: httpx.Response = yield Request("GET", path(template), params=query, most=MAX_PAGE_BYTES)
        page = json_of(answer, dict)
        entries, after = page.get(template), page.get("next")
        known = [read(entry) for entry in entries] if isinstance(entries, list) else [None]
        good = [entry for entry in known if entry is not None]
        last = entries[-1].get("id") if isinstance(entries, list) and good else None
        # a page that comes again would never end
        if len(good) < len(known) or (after is not None and (last is None or after != last or after in seen)):
            raise Unavailable(f"The list of {template} is malformed; the service's version may be too old to have one.")
        found += good
        if after is None:
            return found
        seen.add(after)
        query["after"] = after
    raise Unavailable(f"The list of {template} does not end; ask for those since a later day.")
