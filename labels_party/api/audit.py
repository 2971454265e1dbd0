"""Budget and audit store for the privacy officer."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from sqlalchemy.engine import Connection

from labels_party.api.context import Auditor, Ctx
from labels_party.api.models import BudgetOut
from shared.audit.store import describe
from shared.service.http import PROBLEM_RESPONSES

router = APIRouter(prefix="/v1", responses=PROBLEM_RESPONSES)


@router.get("/populations/{population}/budget", tags=["audit"])
def budget(population: str, ctx: Ctx, _: Auditor) -> BudgetOut:
    """Lifetime ε and what each batch has spent of it, from the ledger."""

    def look(connection: Connection) -> dict[str, Any]:
        return ctx.ledger.report(connection, ctx.populations.get(connection, population))

    return BudgetOut(**ctx.database.read("budget.look", look))


@router.get("/audit/events", tags=["audit"])
def events(
    ctx: Ctx,
    _: Auditor,
    after: Annotated[int, Query(ge=0, lt=1 << 63, description="Sequence number to start behind.")] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
) -> list[dict[str, Any]]:
    """Audit events in order."""
    found = ctx.database.read("audit.show", lambda c: ctx.audit.events(c, after=after, limit=limit))
    return [describe(event) for event in found]


@router.get("/audit/export", tags=["audit"])
def export(ctx: Ctx, _: Auditor) -> Response:
    """All events as one signed document (DSSE envelope)."""
    data = ctx.database.read("audit.export", lambda c: ctx.audit.export(c, ctx.key))
    return Response(
        data, media_type="application/json", headers={"Content-Disposition": 'attachment; filename="audit.dsse.json"'}
    )
