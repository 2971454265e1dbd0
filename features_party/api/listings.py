"""Pages of a listing: `limit`, `order` and `cursor` in, a `Link: <…>; rel="next"` header out."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Depends, Query, Request, Response

from features_party.storage.paging import MOST, Listing, Page
from shared.schemas.numbers import PLAIN
from shared.service.links import link_docs, link_next

LINK_DOCS = link_docs("cursor")


def wanted(
    limit: Annotated[int, Query(ge=1, le=MOST, description="Most entries of a page."), PLAIN] = 200,
    order: Annotated[Literal["oldest", "newest"], Query(description="Which come first.")] = "oldest",
    cursor: Annotated[str | None, Query(max_length=200, description="From the Link header of the page before.")] = None,
) -> Page:
    return Page(limit, cursor, order == "newest")


Paged = Annotated[Page, Depends(wanted)]


def with_link(listing: Listing, request: Request, response: Response) -> list[dict[str, Any]]:
    """The rows, after telling the caller where the next ones are."""
    if listing.cursor is not None:
        link_next(request, response, cursor=listing.cursor)
    return listing.rows
