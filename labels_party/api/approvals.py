"""Four-eyes decisions on waiting releases, and cancelling a release that was never drawn."""

from __future__ import annotations

from fastapi import APIRouter, Request
from pydantic import Field

from labels_party.api.context import Auditor, Ctx, IdempotencyKey, Owner, actor, idempotent
from labels_party.api.models import Body, ReleaseOut, whole
from shared.service.http import PROBLEM_RESPONSES, problem_responses

router = APIRouter(prefix="/v1", tags=["approvals"], responses=PROBLEM_RESPONSES)
REFUSALS = problem_responses(403, 409, 413)


class DeclineIn(Body):
    model_config = whole({"reason": "the budget of this month is for the other model"})

    reason: str = Field(default="", max_length=500, description="One line for the audit store.")


@router.post("/releases/{release}/approve", responses=REFUSALS)
def approve(release: str, request: Request, ctx: Ctx, caller: Auditor, key: IdempotencyKey = None) -> ReleaseOut:
    """Charge a waiting release of a four-eyes population; not with the API key that asked for it."""
    call = idempotent(ctx, caller, key, request.url.path, b"")
    _, answer = ctx.approvals.approve(release, actor(caller), call)
    ctx.worker.wake()
    return ReleaseOut(**answer)


@router.post("/releases/{release}/decline", responses=REFUSALS)
def decline(
    release: str, request: Request, ctx: Ctx, caller: Auditor, body: DeclineIn | None = None, key: IdempotencyKey = None
) -> ReleaseOut:
    """End a waiting release of a four-eyes population, uncharged; not with the API key that asked for it."""
    wanted = body or DeclineIn()
    call = idempotent(ctx, caller, key, request.url.path, wanted.model_dump_json().encode())
    _, answer = ctx.approvals.decline(release, actor(caller), wanted.reason, call)
    return ReleaseOut(**answer)


@router.post("/releases/{release}/cancel", responses=problem_responses(409, 413))
def cancel(release: str, request: Request, ctx: Ctx, caller: Owner, key: IdempotencyKey = None) -> ReleaseOut:
    """Take a release back while no draw of it ever began; what was charged is returned."""
    call = idempotent(ctx, caller, key, request.url.path, b"")
    return ReleaseOut(**ctx.approvals.cancel(release, actor(caller), call)[1])
