"""Overview: all populations with their ε, and what waits for a person."""

from __future__ import annotations

from fastapi import Response
from sqlalchemy.engine import Connection

from label_dp.audit import events
from label_dp.audit.show import sentence
from label_dp.pages.site import page_router
from label_dp.schemas.filters import GivenFilter
from label_dp.store.paging import Page
from labels_party.pages.context import APPROVER, Anybody, days, services
from labels_party.work.batch_listing import for_role
from labels_party.work.holdings import list_holdings
from labels_party.work.overview import stuck, summaries

router = page_router()
SHOWN = 8


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
            "populations": summaries(connection, ctx.populations.list(connection)),
            "waiting": days(waits.rows, visit),
            "stuck": [for_role(row, visit.role) for row in stuck(connection, SHOWN)] if visit.role == "owner" else [],
            "alerts": [{"day": e.time[:10], "sentence": _capital(sentence(e, names))} for e in alerts],
        }

    return visit.page("overview", **ctx.database.read("page.overview", look))


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
