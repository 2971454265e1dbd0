"""Approvals: requests that wait for a second person, with their context, to approve or decline."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Response
from sqlalchemy.engine import Connection

from label_dp.audit.policies import policy_rules
from label_dp.errors import NotFound
from label_dp.pages.site import FORM, Visit, page_router
from label_dp.schemas.filters import GivenFilter
from label_dp.schemas.replies import GivenOut
from label_dp.store.paging import Page
from labels_party.ledger.ceilings import loosen
from labels_party.pages.context import Approver, days, services
from labels_party.work.holdings import list_holdings
from labels_party.work.kind import FAMILIES, Family

router = page_router()
ROWS = 20


@router.get("/approvals")
def approvals(visit: Approver, cursor: Annotated[str | None, Query(max_length=200)] = None) -> Response:
    """Render the requests that await an approval."""
    ctx = services(visit)

    def look(connection: Connection) -> dict[str, object]:
        listing = list_holdings(connection, ctx.work, GivenFilter(state="accepted"), Page(ROWS, cursor))
        policy = policy_rules(ctx.audit, connection)
        rows = [_beside(connection, row, visit) for row in listing.rows]
        return {"policy": policy, "rows": rows, "cursor": listing.cursor}

    def _beside(connection: Connection, row: GivenOut, visit: Visit) -> dict[str, object]:
        """Return the row with its full request, the ε that the batch has spent, and its earlier publications."""
        work = ctx.work.get(connection, row["id"])
        batch, population = ctx.work.about(connection, work)
        account = ctx.ledger.account(connection, population, batch.id)
        before = list_holdings(
            connection, ctx.work, GivenFilter(batch=work.batch, state="published"), Page(5, newest=True)
        )
        after = account.spent + work.split.total
        people = ctx.ledger.people.account(connection, population, batch.id)
        return {
            **days([row], visit)[0],
            "asked": {
                k: v for k, v in work.asked.items() if isinstance(v, str | int | float) and not isinstance(v, bool)
            },
            "split": work.epsilon,
            "spent": str(account.spent),
            "after": str(after),
            "lifetime": str(account.lifetime),
            "fits": after <= account.lifetime,
            "people": None if people is None else people.as_json(),
            "fits_people": people is None or work.split.total <= people.room,
            "before": days(before.rows, visit),
            "beyond": batch.beyond(population),
            "own": work.requested_by.casefold() == visit.caller.actor.casefold(),
        }

    return visit.page("approvals", **ctx.database.read("page.approvals", look))


def _family(name: str) -> Family:
    family = next((f for f in FAMILIES if name.startswith(f.prefix)), None)
    if family is None:
        raise NotFound(f"There is no release or answer '{name}'.")
    return family


@router.post("/approvals/policies/{name}", dependencies=[FORM])
def apply_policy(name: str, visit: Approver) -> Response:
    """Apply a looser policy that somebody else proposed."""
    ctx, actor = services(visit), visit.caller.actor
    people = ctx.decisions.people
    ctx.database.write("policy.loosen", lambda c: loosen(ctx.audit, c, name, actor, people=people))
    return visit.go("/approvals", "applied")


@router.post("/approvals/{name}/approve", dependencies=[FORM])
def approve(name: str, visit: Approver) -> Response:
    """Approve a request."""
    ctx = services(visit)
    ctx.decisions.approve(name, visit.caller.actor, family=_family(name))
    ctx.worker.wake()
    return visit.go("/approvals", "approved")


@router.post("/approvals/{name}/decline", dependencies=[FORM])
def decline(name: str, visit: Approver) -> Response:
    """Decline a request, with a reason."""
    reason = visit.form.get("reason", "").strip()
    services(visit).decisions.decline(name, visit.caller.actor, reason, family=_family(name))
    return visit.go("/approvals", "declined")
