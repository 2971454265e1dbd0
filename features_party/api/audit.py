"""Our own audit store, for the privacy officer."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from features_party.api.context import Auditor, Ctx
from shared.audit.store import describe
from shared.service.http import PROBLEM_RESPONSES

router = APIRouter(prefix="/v1", tags=["audit"], responses=PROBLEM_RESPONSES)


@router.get("/audit/events")
def events(
    ctx: Ctx,
    _: Auditor,
    after: Annotated[int, Query(ge=0, description="Sequence number to start behind.")] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
    population: Annotated[str | None, Query(max_length=64, description="Only this population.")] = None,
) -> list[dict[str, Any]]:
    """Audit events in order, each with its exact ε split."""
    only = {"population": population} if population is not None else {}
    found = ctx.database.read("audit.show", lambda c: ctx.audit.events(c, after=after, limit=limit, **only))
    return [describe(event) for event in found]


@router.get("/audit/export")
def export(ctx: Ctx, _: Auditor) -> Response:
    """All events as one signed document (DSSE envelope)."""
    key = ctx.home.own_key()
    data = ctx.database.read("audit.export", lambda c: ctx.audit.export(c, key))
    headers = {"Content-Disposition": 'attachment; filename="audit.dsse.json"'}
    return Response(data, media_type="application/json", headers=headers)
