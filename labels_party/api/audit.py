"""Budget and audit store for the privacy officer."""

from __future__ import annotations

from fastapi.responses import HTMLResponse
from sqlalchemy.engine import Connection

from label_dp.documents.statement import CONTENT_SECURITY_POLICY
from label_dp.errors import NotFound
from label_dp.http.audit_events import add_audit_calls
from label_dp.http.json_bodies import JsonRouter
from label_dp.http.route_docs import PROBLEM_RESPONSES, problem_responses
from label_dp.schemas.replies import BudgetOut
from labels_party.api.context import Approver, Ctx, WorkViewer
from labels_party.work.kind import RELEASES

router = JsonRouter(prefix="/v1", responses=PROBLEM_RESPONSES)
add_audit_calls(router, "auditor", "owner", own_key=lambda services: services.key, exact="owner")


@router.get("/populations/{population}/budget", tags=["audit"])
def budget(population: str, ctx: Ctx, _: Approver) -> BudgetOut:
    """Lifetime ε and what each batch has spent of it, from the ledger."""

    def look(connection: Connection) -> BudgetOut:
        return ctx.ledger.report(connection, ctx.populations.get(connection, population))

    return ctx.database.read("budget.look", look)


@router.get(
    "/releases/{release}/statement",
    tags=["audit"],
    response_class=HTMLResponse,
    responses=problem_responses(409) | {200: {"content": {"text/html": {}}}},
)
def statement(release: str, ctx: Ctx, caller: WorkViewer) -> HTMLResponse:
    """One printable page: what left, to whom, when, and what ε means. For a features party from the manifest alone;
    for owner and auditor with what the audit store recorded since."""

    def allowed(connection: Connection) -> None:
        work = ctx.work.get(connection, release, RELEASES)
        if caller.role == "features" and caller.audience not in work.audiences:
            raise NotFound(f"There is no release '{release}'.")

    ctx.database.read("statement.allowed", allowed)
    page = ctx.statements.page(release, since=caller.role != "features")
    headers = {"Content-Security-Policy": CONTENT_SECURITY_POLICY, "X-Content-Type-Options": "nosniff"}
    return HTMLResponse(page, headers=headers)
