"""The day of a batch after its intake: its schedule, its releases, the end of its labels."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from sqlalchemy.engine import Connection

from labels_party.api.context import Ctx, IdempotencyKey, Owner, actor, idempotent
from labels_party.api.models import BatchOut, ReleaseOut, ReleaseState, ScheduleIn
from labels_party.budget.populations import Population
from labels_party.release.releases import Release
from shared.service.http import PROBLEM_RESPONSES, problem_responses

router = APIRouter(prefix="/v1", responses=PROBLEM_RESPONSES)
State = Annotated[ReleaseState | None, Query(description="Only releases in this state.")]


@router.patch("/batches/{batch}", tags=["batches"], responses=problem_responses(403, 409, 413))
def change_schedule(
    batch: str, body: ScheduleIn, request: Request, ctx: Ctx, caller: Owner, key: IdempotencyKey = None
) -> BatchOut:
    """Change or remove when an open batch seals by itself, and what it then releases.

    A refused release of a batch that has sealed already can be changed or removed too, until one is charged.
    """
    data = body.model_dump_json(exclude_unset=True).encode()
    call = idempotent(ctx, caller, key, "PATCH " + request.url.path, data)
    _, answer = ctx.schedule.change(batch, body.changes(), actor(caller), call)
    ctx.worker.wake()
    return BatchOut(**answer)


@router.post("/batches/{batch}/purge", tags=["batches"], responses=problem_responses(409, 413))
def purge(batch: str, request: Request, ctx: Ctx, caller: Owner, key: IdempotencyKey = None) -> BatchOut:
    """Delete the labels of a sealed batch for good. Its messages, its ledger and the digests of its ids stay."""
    call = idempotent(ctx, caller, key, request.url.path, b"")
    _, answer = ctx.retention.purge(batch, actor(caller), call)
    return BatchOut(**answer)


@router.get("/batches/{batch}/releases", tags=["releases"])
def releases_of_batch(batch: str, ctx: Ctx, _: Owner, state: State = None) -> list[ReleaseOut]:
    """The releases of a batch, oldest first."""

    def look(connection: Connection) -> list[dict[str, Any]]:
        found, population = ctx.batches.get(connection, batch)
        return _described(ctx, connection, ctx.releases.of_batch(connection, found.id), population, state)

    return [ReleaseOut(**r) for r in ctx.database.read("release.list", look)]


@router.get("/populations/{population}/releases", tags=["releases"])
def releases_of_population(population: str, ctx: Ctx, _: Owner, state: State = None) -> list[ReleaseOut]:
    """The releases of all batches of a population, oldest first."""

    def look(connection: Connection) -> list[dict[str, Any]]:
        found = ctx.populations.get(connection, population)
        return _described(ctx, connection, ctx.releases.of_population(connection, found.id), found, state)

    return [ReleaseOut(**r) for r in ctx.database.read("release.list", look)]


def _described(
    ctx: Any, connection: Connection, found: list[Release], population: Population, state: str | None
) -> list[dict[str, Any]]:
    wanted = [r for r in found if state in (None, r.state)]
    return [ctx.releases.describe(connection, r, population) for r in wanted]
