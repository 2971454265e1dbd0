"""Budget and audit store for the privacy officer."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from sqlalchemy.engine import Connection

from labels_party.api.context import Auditor, Ctx
from labels_party.api.models import BudgetOut
from shared.service.audit_events import LINK_DOCS, After, Limit, WantedEvents, page_of_events
from shared.service.http import PROBLEM_RESPONSES

router = APIRouter(prefix="/v1", responses=PROBLEM_RESPONSES)


@router.get("/populations/{population}/budget", tags=["audit"])
def budget(population: str, ctx: Ctx, _: Auditor) -> BudgetOut:
    """Lifetime ε and what each batch has spent of it, from the ledger."""

    def look(connection: Connection) -> dict[str, Any]:
        return ctx.ledger.report(connection, ctx.populations.get(connection, population))

    return BudgetOut(**ctx.database.read("budget.look", look))


@router.get("/audit/events", tags=["audit"], responses=LINK_DOCS)
def events(
    request: Request,
    response: Response,
    ctx: Ctx,
    _: Auditor,
    wanted: WantedEvents,
    after: After = 0,
    limit: Limit = 200,
) -> list[dict[str, Any]]:
    """Audit events in order, each with its exact ε split and a sentence for people; a `Link` leads to the next page."""
    return page_of_events(ctx.database, ctx.audit, wanted, after, limit, request, response)


@router.get("/audit/export", tags=["audit"])
def export(ctx: Ctx, _: Auditor) -> Response:
    """All events as one signed document (DSSE envelope)."""
    data = ctx.database.read("audit.export", lambda c: ctx.audit.export(c, ctx.key))
    return Response(
        data, media_type="application/json", headers={"Content-Disposition": 'attachment; filename="audit.dsse.json"'}
    )
