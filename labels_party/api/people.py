"""Bodies of people: one lifetime ε over all label columns of the same people, their budget, and erasure over all."""

from __future__ import annotations

from typing import cast

from fastapi import Request

from label_dp.http.calls import LARGE
from label_dp.http.json_bodies import JsonRouter
from label_dp.http.route_docs import PROBLEM_RESPONSES, problem_responses
from label_dp.schemas.population import People
from label_dp.schemas.replies import ErasureAsked, PeopleBudgetOut, PeopleOut
from labels_party.api.context import Auditor, Ctx, IdempotencyKey, Owner, idempotent
from labels_party.api.erasures import ErasureIn
from labels_party.ledger.people import declaration

router = JsonRouter(prefix="/v1/people", responses=PROBLEM_RESPONSES)
REFUSALS = problem_responses(409, 413)


@router.post("", status_code=201, tags=["populations"], responses=REFUSALS)
def create_people(body: People, request: Request, ctx: Ctx, caller: Owner, key: IdempotencyKey = None) -> PeopleOut:
    """Declare a body of people and the lifetime ε of one person over all its label columns. It never changes.

    Populations then join it by `people`.
    """
    rules, people = declaration(body), ctx.ledger.people
    call = idempotent(ctx, caller, key, request.url.path, body.model_dump_json().encode())
    _, answer = ctx.database.write(
        "people.create", lambda c: call.once(c, lambda: (201, people.declare(c, rules, caller.actor)))
    )
    return cast("PeopleOut", answer)


@router.get("", tags=["populations"])
def all_people(ctx: Ctx, _: Auditor) -> list[PeopleOut]:
    """All bodies of people, oldest first."""
    return ctx.database.read("people.list", ctx.ledger.people.list)


@router.get("/{people}/budget", tags=["audit"])
def people_budget(people: str, ctx: Ctx, _: Auditor) -> PeopleBudgetOut:
    """What a person has spent at most over all label columns of a body, and in each, from the ledger."""
    return ctx.database.read("people.budget", lambda c: ctx.ledger.people.report(c, people))


@router.post("/{people}/erasures", status_code=202, tags=["erasures"], responses=REFUSALS, dependencies=[LARGE])
def erase_people(people: str, body: ErasureIn, ctx: Ctx, caller: Owner) -> list[ErasureAsked]:
    """Erase these examples or units (persons) in every population of a body, as for one population. Nothing is asked
    for if one of them cannot erase. To repeat the call is safe; a population declared later needs it again."""
    answers = [
        ctx.unit_erasures.request(population, body.units, caller.actor)[1]
        if body.units is not None
        else ctx.erasures.request(population, list(body.example_ids or []), caller.actor)[1]
        for population in ctx.unit_erasures.populations(ctx.ledger.people, people)
    ]
    ctx.worker.wake()
    return cast("list[ErasureAsked]", answers)
