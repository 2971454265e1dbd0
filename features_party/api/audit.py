"""Our own audit store, for the privacy officer."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from features_party.api.context import Auditor, Ctx
from shared.service.audit_events import LINK_DOCS, After, Limit, WantedEvents, page_of_events
from shared.service.http import PROBLEM_RESPONSES

router = APIRouter(prefix="/v1", tags=["audit"], responses=PROBLEM_RESPONSES)


@router.get("/audit/events", responses=LINK_DOCS)
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


@router.get("/audit/export")
def export(ctx: Ctx, _: Auditor) -> Response:
    """All events as one signed document (DSSE envelope)."""
    key = ctx.home.own_key()
    data = ctx.database.read("audit.export", lambda c: ctx.audit.export(c, key))
    headers = {"Content-Disposition": 'attachment; filename="audit.dsse.json"'}
    return Response(data, media_type="application/json", headers=headers)
