"""Listings over REST: filters of `label_dp.schemas.filters` as query parameters of calls and pages; `limit`, `order`
and `cursor` in, rows and a `Link: <…>; rel="next"` header out."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import urlencode

from fastapi import Depends, Query, Request, Response

from label_dp.schemas.filters import Filter
from label_dp.schemas.numbers import PLAIN
from label_dp.schemas.validation import as_model
from label_dp.store.paging import MOST, Listing, Page, R

F = TypeVar("F", bound=Filter)
Limit = Annotated[int, Query(ge=1, le=MOST, description="Most entries of a page."), PLAIN]
Cursor = Annotated[str | None, Query(max_length=200, description="From the Link header of the page before.")]
TOLD = 'The next page, as `<?…>; rel="next"` relative to this one; absent on the last.'
LINK_DOCS: dict[int | str, dict[str, Any]] = {
    200: {"headers": {"Link": {"description": TOLD, "schema": {"type": "string"}}}}
}


def in_query(schema: type[F]) -> Callable[..., F]:
    """Build a dependency that reads the members of `schema` from the query."""
    return _dependency(
        lambda values: schema(**values),
        {
            name: Annotated[(field.annotation, *field.metadata, Query(description=field.description))]
            for name, field in schema.model_fields.items()
        },
        None,
    )


def in_form(schema: type[F]) -> Callable[..., F]:
    """Build a dependency that reads the members of `schema` from a form; blank fields count as absent. Raises
    InvalidRequest."""
    members = dict.fromkeys(schema.model_fields, Annotated[str, Query(max_length=200)])
    return _dependency(lambda values: as_model({n: v for n, v in values.items() if v}, schema), members, "")


def _dependency(build: Callable[[dict[str, Any]], F], members: dict[str, Any], default: str | None) -> Callable[..., F]:
    def dependency(**values: Any) -> F:
        return build(values)

    dependency.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # what the framework reads
        [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
            for name, annotation in members.items()
        ]
    )
    return dependency


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
