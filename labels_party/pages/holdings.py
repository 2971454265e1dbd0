"""Page of releases and answers by audience, with ε, requester, approver and receipts."""

from __future__ import annotations

from typing import Annotated, get_args

from fastapi import Depends, Query, Response
from sqlalchemy.engine import Connection

from label_dp.http.filters import in_form
from label_dp.pages.site import page_router
from label_dp.schemas.filters import GivenFilter, WorkState
from label_dp.store.paging import Page
from labels_party.pages.context import Approver, days, services
from labels_party.work.holdings import list_holdings
from labels_party.work.kind import FAMILIES

router = page_router()
ROWS = 50


@router.get("/given")
def who_has_what(
    visit: Approver,
    given_filter: Annotated[GivenFilter, Depends(in_form(GivenFilter))],
    cursor: Annotated[str | None, Query(max_length=200)] = None,
) -> Response:
    """Render the published works by audience."""
    ctx = services(visit)

    def look(connection: Connection) -> dict[str, object]:
        populations = ctx.populations.list(connection)
        listing = list_holdings(connection, ctx.work, given_filter, Page(ROWS, cursor, newest=True))
        return {
            "rows": days(listing.rows, visit),
            "cursor": listing.cursor,
            "populations": [(p.name, p.name) for p in populations],
            "audiences": [(a, a) for a in sorted({a for p in populations for a in p.audiences})],
        }

    paths = {family.noun: f"/{family.noun}s" for family in FAMILIES}
    return visit.page(
        "given", asked=given_filter, states=get_args(WorkState), paths=paths, **ctx.database.read("page.given", look)
    )
