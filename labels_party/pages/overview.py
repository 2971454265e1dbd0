"""Overviews: all populations with their ε and what waits for a person; releases and answers by audience."""

from __future__ import annotations

from typing import Annotated, get_args

from fastapi import Depends, Query, Response
from sqlalchemy.engine import Connection

from label_dp.audit import events
from label_dp.audit.policies import policy_rules
from label_dp.audit.show import sentence
from label_dp.http.filters import in_form
from label_dp.pages.site import page_router
from label_dp.schemas.filters import GivenFilter, WorkState
from label_dp.store.paging import Page
from labels_party.pages.context import APPROVER, Anybody, Approver, days, services
from labels_party.work.batch_listing import for_role
from labels_party.work.holdings import list_holdings
from labels_party.work.kind import FAMILIES
from labels_party.work.overview import stuck, summaries

router = page_router()
SHOWN, ROWS = 8, 50


@router.get("/overview")
def overview(visit: Anybody) -> Response:
    """Render the overview."""
    ctx = services(visit)
    if visit.role not in APPROVER:
        return visit.page("overview_other")

    def look(connection: Connection) -> dict[str, object]:
        names = ctx.apikeys.names(connection)
        waits = list_holdings(connection, ctx.work, GivenFilter(state="accepted"), Page(SHOWN + 1))
        alerts = ctx.audit.newest(connection, limit=SHOWN, kind=events.BUDGET_ALERT)
        return {
            "policy": policy_rules(ctx.audit, connection),
            "populations": summaries(connection, ctx.populations.list(connection)),
            "waiting": days(waits.rows, visit),
            "stuck": [for_role(row, visit.role) for row in stuck(connection, SHOWN)] if visit.role == "owner" else [],
            "alerts": [{"day": e.time[:10], "sentence": sentence(e, names)} for e in alerts],
        }

    return visit.page("overview", **ctx.database.read("page.overview", look))


@router.get("/given")
def who_has_what(
    visit: Approver,
    given_filter: Annotated[GivenFilter, Depends(in_form(GivenFilter))],
    cursor: Annotated[str | None, Query(max_length=200)] = None,
) -> Response:
    """Render releases and answers by audience, with ε, requester, approver and receipts."""
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
