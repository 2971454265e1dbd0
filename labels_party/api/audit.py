"""Budget and audit store for the privacy officer."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse
from sqlalchemy.engine import Connection

from labels_party.api.context import Auditor, Ctx, Viewer
from labels_party.api.models import BudgetOut
from shared.errors import NotFound
from shared.message.statement import CONTENT_SECURITY_POLICY
from shared.service.audit_events import LINK_DOCS, After, Limit, WantedEvents, page_of_events
from shared.service.http import PROBLEM_RESPONSES, problem_responses

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


@router.get(
    "/releases/{release}/statement",
    tags=["audit"],
    response_class=HTMLResponse,
    responses=problem_responses(409) | {200: {"content": {"text/html": {}}}},
)
def statement(release: str, ctx: Ctx, caller: Viewer) -> HTMLResponse:
    """One printable page: what left, to whom, when, and what ε means. For a features party from the manifest alone;
    for owner and auditor with what the audit store recorded since."""

    def allowed(connection: Connection) -> None:
        _, population = ctx.releases.population_of(connection, ctx.releases.get(connection, release))
        if caller.role == "features" and caller.audience not in population.audiences:
            raise NotFound(f"There is no release '{release}'.")

    ctx.database.read("statement.allowed", allowed)
    page = ctx.statements.page(release, since=caller.role != "features")
    headers = {"Content-Security-Policy": CONTENT_SECURITY_POLICY, "X-Content-Type-Options": "nosniff"}
    return HTMLResponse(page, headers=headers)
