"""Pages of a listing: `limit`, `order` and `cursor` in, a `Link: <…>; rel="next"` header out."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import urlencode

from fastapi import Depends, Query, Request, Response

from features_party.storage.paging import MOST, Listing, Page

LINK_DOCS: dict[int | str, dict[str, Any]] = {
    200: {
        "headers": {
            "Link": {
                "description": 'The next page, as `<?cursor=…>; rel="next"` relative to this one; absent on the last.',
                "schema": {"type": "string"},
            }
        }
    }
}


def wanted(
    limit: Annotated[int, Query(ge=1, le=MOST, description="Most entries of a page.")] = 200,
    order: Annotated[Literal["oldest", "newest"], Query(description="Which come first.")] = "oldest",
    cursor: Annotated[str | None, Query(max_length=200, description="From the Link header of the page before.")] = None,
) -> Page:
    return Page(limit, cursor, order == "newest")


Paged = Annotated[Page, Depends(wanted)]


def with_link(listing: Listing, request: Request, response: Response) -> list[dict[str, Any]]:
    """The rows, after telling the caller where the next ones are."""
    if listing.cursor is not None:
        # relative to the request, so that it holds behind a proxy with a path of its own
        query = urlencode({**request.query_params, "cursor": listing.cursor})
        response.headers["Link"] = f'<?{query}>; rel="next"'
    return listing.rows
