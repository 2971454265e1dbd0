"""Listings in pages, by time and id: rows that come or go meanwhile shift nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from label_dp.errors import InvalidInput

MOST = 1000
SEPARATOR = "~"  # occurs in no time and no id
R = TypeVar("R", bound=Mapping[str, Any])


@dataclass(frozen=True)
class Page:
    """Request for at most `limit` rows behind `cursor` (None: from the start)."""

    limit: int = MOST
    cursor: str | None = None
    newest: bool = False


@dataclass(frozen=True)
class Listing(Generic[R]):
    """Rows as dictionaries; `cursor` continues behind the last row, None at the end."""

    rows: list[R]
    cursor: str | None

    @classmethod
    def of(cls, candidates: list[R], limit: int, name: str) -> Listing[R]:
        """Make the page of `candidates`, one more than `limit` if more follow; the cursor is the member `name` of the
        last row."""
        rows = candidates[:limit]
        return cls(rows, str(rows[-1][name]) if len(candidates) > limit else None)


def select_page(
    connection: Connection, query: sa.Select[Any], time: Any, key: Any, page: Page
) -> Listing[dict[str, Any]]:
    """Select one page of `query`, ordered by the columns `time` and `key` (both among its results, `key` unique).
    Raises InvalidInput for a malformed cursor."""
    if page.cursor is not None:
        at, separator, after = page.cursor.partition(SEPARATOR)
        if not separator:
            raise InvalidInput("The cursor is not one of this service; take it from the Link header of a listing.")
        behind = (time < at, key < after) if page.newest else (time > at, key > after)
        query = query.where(sa.or_(behind[0], sa.and_(time == at, behind[1])))
    order = (time.desc(), key.desc()) if page.newest else (time, key)
    result = connection.execute(query.order_by(*order).limit(page.limit + 1)).all()
    rows = [dict(row._mapping) for row in result[: page.limit]]
    more = len(result) > page.limit
    return Listing(rows, f"{rows[-1][time.name]}{SEPARATOR}{rows[-1][key.name]}" if more else None)


def all_rows(page_of: Callable[[Page], Listing[R]]) -> list[R]:
    """List every row, page after page."""
    rows: list[R] = []
    listing = Listing[R]([], None)
    while not rows or listing.cursor is not None:
        listing = page_of(Page(cursor=listing.cursor))
        rows += listing.rows
        if not listing.rows:
            break
    return rows
