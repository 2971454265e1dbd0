"""The day of a batch after its intake: its schedule, the end of its labels."""

from __future__ import annotations

from typing import cast

from fastapi import Request

from label_dp.http.calls import LARGE
from label_dp.http.json_bodies import JsonRouter
from label_dp.http.route_docs import PROBLEM_RESPONSES, problem_responses
from label_dp.schemas.population import Schedule
from label_dp.schemas.replies import BatchOut
from labels_party.api.context import Ctx, IdempotencyKey, Owner, idempotent

router = JsonRouter(prefix="/v1", responses=PROBLEM_RESPONSES)


@router.patch("/batches/{batch}", tags=["batches"], responses=problem_responses(403, 409, 413), dependencies=[LARGE])
def change_schedule(
    batch: str, body: Schedule, request: Request, ctx: Ctx, caller: Owner, key: IdempotencyKey = None
) -> BatchOut:
    """Change or remove when an open batch seals by itself, and what it then releases.

    A refused release of a batch that has sealed already can be changed or removed too, until one is charged.
    """
    data = body.model_dump_json(exclude_unset=True).encode()
    call = idempotent(ctx, caller, key, "PATCH " + request.url.path, data, batch)
    _, answer = ctx.schedule.change(batch, body.changes(), caller.actor, call)
    ctx.worker.wake()
    return cast("BatchOut", answer)


@router.post("/batches/{batch}/purge", tags=["batches"], responses=problem_responses(409, 413))
def purge(batch: str, request: Request, ctx: Ctx, caller: Owner, key: IdempotencyKey = None) -> BatchOut:
    """Delete the labels of a sealed batch for good. Its messages, its ledger and the digests of its ids stay."""
    call = idempotent(ctx, caller, key, request.url.path, b"")
    _, answer = ctx.retention.purge(batch, caller.actor, call)
    return cast("BatchOut", answer)
