"""Asking for charged work: for every kind with a schema one call, made of what the kind declares."""

from __future__ import annotations

from functools import cache
from typing import Any

from fastapi import Request, Response
from pydantic import BaseModel, Field

from label_dp.http.calls import LARGE
from label_dp.http.json_bodies import JsonRouter
from label_dp.http.route_docs import PROBLEM_RESPONSES, problem_responses
from labels_party.api.context import Ctx, IdempotencyKey, Owner, idempotent
from labels_party.api.models import WorkOut
from labels_party.api.work import OUT
from labels_party.work.kind import PreviewedKind, SchemaKind
from labels_party.work.seen import shown

REFUSALS = problem_responses(403, 409, 413)
ASKED = """Charge the ledger and queue the draw. Over budget is refused before anything is charged.

In a four-eyes population it is `accepted` and waits, uncharged, for `approve` by another API key."""
PREVIEWED = "Nothing is charged, and no label is read."


class PreviewOut(BaseModel):
    kind: str
    batch: str
    epsilon: dict[str, str] = Field(description="What would be charged, δ included.")
    parameters: dict[str, Any]
    facts: dict[str, str | int | bool | None] = Field(description="The bound that is charged, and what it comes to.")


def paths_of(kind: SchemaKind[Any, Any]) -> tuple[str, ...]:
    """Below /v1."""
    return _paths(type(kind), kind.path)


def _paths(kind: type[SchemaKind[Any, Any]], word: str) -> tuple[str, ...]:
    path = f"/batches/{{batch}}/{word}"
    return (path, f"{path}/plan") if issubclass(kind, PreviewedKind) else (path,)


def router_of(kind: SchemaKind[Any, Any]) -> JsonRouter:
    """The calls that ask for work of a kind, and that say what it would cost: the same for every application."""
    return _router(type(kind), kind.path)


@cache
def _router(kind: type[SchemaKind[Any, Any]], word: str) -> JsonRouter:
    router = JsonRouter(prefix="/v1", tags=[word.replace("-", " ")], responses=PROBLEM_RESPONSES)
    name, family, schema = kind.name, kind.family, kind.schema
    out = OUT[family.noun]

    def ask(
        batch: str, body: Any, request: Request, response: Response, ctx: Ctx, caller: Owner, key: IdempotencyKey = None
    ) -> WorkOut:
        kind = ctx.work.kinds[name]
        assert isinstance(kind, SchemaKind)
        _, population = ctx.database.read(f"{name}.population", lambda c: ctx.batches.get(c, batch))
        call = idempotent(ctx, caller, key, request.url.path, body.model_dump_json().encode(), batch)
        _, reply = ctx.work.ask(kind, batch, kind.wish(population, body), caller.actor, call)
        ctx.worker.wake()
        response.headers["Location"] = f"/v1/{family.noun}s/{reply['id']}"
        return out(**shown(ctx.work, reply, caller))

    def preview(batch: str, body: Any, ctx: Ctx, _: Owner) -> PreviewOut:
        kind = ctx.work.kinds[name]
        assert isinstance(kind, PreviewedKind)
        found, population = ctx.database.read(f"{name}.look", lambda c: ctx.work.allowed(c, batch))
        planned = kind.preview(found, population, kind.wish(population, body))
        return PreviewOut(kind=name, batch=batch, **planned)

    article = f"a {kind.name.replace('-', ' ')}"
    calls: tuple[tuple[Any, dict[str, Any]], ...] = (
        (
            ask,
            {
                "status_code": 202,
                "response_model": out,
                "summary": f"Charge the batch for {article}, and have it computed.",
                "description": ASKED,
            },
        ),
        (preview, {"summary": f"What {article} would cost, and how well it would do.", "description": PREVIEWED}),
    )
    takes = [LARGE] if kind.large else []
    for path, (call, more) in zip(_paths(kind, word), calls, strict=False):
        call.__annotations__["body"] = schema
        router.add_api_route(path, call, methods=["POST"], responses=REFUSALS, dependencies=takes, **more)
    return router
