"""Pages of a listing over REST: `limit`, `order` and `cursor` in, rows and a `Link: <…>; rel="next"` header out."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import urlencode

from fastapi import Depends, Query, Request, Response

from label_dp.schemas.numbers import PLAIN
from label_dp.store.paging import MOST, Listing, Page, R

Limit = Annotated[int, Query(ge=1, le=MOST, description="Most entries of a page."), PLAIN]
Cursor = Annotated[str | None, Query(max_length=200, description="From the Link header of the page before.")]
TOLD = 'The next page, as `<?…>; rel="next"` relative to this one; absent on the last.'
LINK_DOCS: dict[int | str, dict[str, Any]] = {
    200: {"headers": {"Link": {"description": TOLD, "schema": {"type": "string"}}}}
}


def _oldest(limit: Limit = 200, cursor: Cursor = None) -> Page:
    return Page(limit, cursor)


def _either(
    limit: Limit = 200,
    order: Annotated[Literal["oldest", "newest"], Query(description="Which come first.")] = "oldest",
    cursor: Cursor = None,
) -> Page:
    return Page(limit, cursor, order == "newest")


Paged = Annotated[Page, Depends(_oldest)]
PagedEitherWay = Annotated[Page, Depends(_either)]


def with_link(listing: Listing[R], request: Request, response: Response, begin: str = "cursor") -> list[R]:
    """Return the rows and set the `Link` to the next page, with `begin` as its cursor; it is relative, so that it holds
    behind a proxy's own path."""
    if listing.cursor is not None:
        response.headers["Link"] = f'<?{urlencode({**request.query_params, begin: listing.cursor})}>; rel="next"'
    return listing.rows
