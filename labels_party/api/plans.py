"""Plans: what an ε would give, before it is spent."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from label_dp.http.json_bodies import JsonRouter
from label_dp.http.route_docs import PROBLEM_RESPONSES, problem_responses
from label_dp.schemas.plan import Plan
from label_dp.schemas.replies import PlanOut
from labels_party.api.context import Approver, Ctx
from labels_party.planning import planned

router = JsonRouter(prefix="/v1", responses=PROBLEM_RESPONSES)


@router.get("/populations/{population}/plan", tags=["releases"], responses=problem_responses(409))
def plan(population: str, ctx: Ctx, _: Approver, asked: Annotated[Plan, Query()]) -> PlanOut:
    """What each mechanism would give at each ε, and which to take; made of public and already private facts only."""
    return planned(ctx, population, asked)
