"""Trainings and models. There is no call that takes true labels: evaluation exists on files only (invariant 8)."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

from features_party.api.context import Ctx, Reader, Trainer, rows_table
from features_party.api.schemas import CardOut, ModelOut, PredictIn, PredictOut, TrainingIn, TrainingOut
from features_party.bootstrap import Services
from features_party.jobs import ENDED
from features_party.trainer import Options
from shared.service.http import PROBLEM_RESPONSES

router = APIRouter(prefix="/v1", responses=PROBLEM_RESPONSES)

POLL_SECONDS = 0.25
KEEP_ALIVE_SECONDS = 15.0


@router.post("/trainings", status_code=202, tags=["trainings"])
def request_training(body: TrainingIn, request: Request, response: Response, ctx: Ctx, _: Trainer) -> TrainingOut:
    """Train on accepted messages and a stored feature table, in the background."""
    options = Options(body.model, body.loss, body.correction, tuple(body.categorical), tuple(body.exclude))
    row = ctx.trainings.request(body.feature_table, body.messages, options)
    request.app.state.worker.wake()
    response.headers["Location"] = f"/v1/trainings/{row['id']}"
    return TrainingOut(**row)


@router.get("/trainings", tags=["trainings"])
def list_trainings(ctx: Ctx, _: Reader) -> list[TrainingOut]:
    return [TrainingOut(**row) for row in ctx.trainings.list()]


@router.get("/trainings/{training}", tags=["trainings"])
def get_training(training: str, ctx: Ctx, _: Reader) -> TrainingOut:
    """State, progress, and in the end the model or the problem."""
    return TrainingOut(**ctx.trainings.get(training))


@router.get(
    "/trainings/{training}/events",
    tags=["trainings"],
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {"example": 'event: progress\ndata: {"share": 0.4}\n\n'}}}},
)
async def watch(training: str, ctx: Ctx, _: Reader) -> StreamingResponse:
    """Server-sent events: `progress` whenever something changed, then `succeeded` or `failed`, then the end."""
    await run_in_threadpool(ctx.trainings.get, training)  # a 404 must come before the stream begins
    headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
    return StreamingResponse(_events(ctx, training), media_type="text/event-stream", headers=headers)


async def _events(ctx: Services, training: str) -> AsyncIterator[str]:
    shown, quiet_since = "", time.monotonic()
    while True:
        row = await run_in_threadpool(ctx.trainings.get, training)
        ended = row["state"] in ENDED
        data = json.dumps({key: row[key] for key in ("state", "step", "share", "model", "problem")}, ensure_ascii=False)
        if data != shown:
            shown, quiet_since = data, time.monotonic()
            yield f"event: {row['state'] if ended else 'progress'}\ndata: {data}\n\n"
        if ended:
            return
        if time.monotonic() - quiet_since > KEEP_ALIVE_SECONDS:
            quiet_since = time.monotonic()
            yield ": still there\n\n"
        await asyncio.sleep(POLL_SECONDS)


@router.get("/models", tags=["models"])
def list_models(ctx: Ctx, _: Reader) -> list[ModelOut]:
    return [ModelOut(**row) for row in ctx.models.list()]


@router.get("/models/{model}", tags=["models"])
def get_model(model: str, ctx: Ctx, _: Reader) -> CardOut:
    """The card: messages, ε, corrections, capacity and why, features, training report."""
    return CardOut(id=model, card=ctx.models.open(model).card)


@router.post("/models/{model}/predict", tags=["models"])
def predict(model: str, body: PredictIn, ctx: Ctx, _: Trainer) -> PredictOut:
    """Predict JSON rows. An unknown category counts as missing; a column that no row has is refused."""
    saved = ctx.models.open(model)
    table = rows_table(saved.model.schema, body.rows)
    return PredictOut(model=model, predictions=saved.model.predict(table).tolist())
