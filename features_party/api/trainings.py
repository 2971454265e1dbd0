"""Trainings. There is no call that takes true labels: evaluation exists on files only (invariant no-oracle)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Header, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from features_party.api.context import Ctx, Reader, Trainer, idempotent
from features_party.models.event_stream import Streams, event_stream
from label_dp.http.filters import LINK_DOCS, PagedEitherWay, with_link
from label_dp.http.json_bodies import JsonRouter
from label_dp.http.route_docs import PROBLEM_RESPONSES, IdempotencyKey, problem_responses
from label_dp.schemas.training import Learning, Training

State = Literal["accepted", "running", "succeeded", "failed", "cancelled"]


class TrainingRequest(Learning):
    """What was asked for."""

    feature_table: str
    messages: list[str]
    digests: list[str] = Field(description="The manifests that `messages` meant when the training was asked for.")


class ProblemOut(BaseModel):
    """RFC 9457 problem details; `code` is stable."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(examples=["urn:label-dp:invalid-table"])
    title: str
    status: int
    detail: str
    code: str = Field(examples=["invalid-table"])


class TrainingOut(BaseModel):
    """Training: its state, request and progress."""

    id: str = Field(examples=["tr_0123456789abcdef"])
    state: State
    name: str | None
    note: str | None
    request: TrainingRequest
    step: str = Field(examples=["tree 40 of 150"])
    share: float = Field(description="Progress between 0 and 1.")
    attempts: int
    revision: int = Field(description="Counts changes; the id of the server-sent event that shows this state.")
    model: str | None = Field(description="Once it succeeded.")
    problem: ProblemOut | None = Field(description="Once it failed.")
    created: str
    started: str | None
    finished: str | None


router = JsonRouter(prefix="/v1/trainings", tags=["trainings"], responses=PROBLEM_RESPONSES)

EVENT = {
    "type": "object",
    "description": "Each event of the stream, by field.",
    "properties": {
        "id": {"type": "string"},
        "event": {"type": "string", "description": "`progress`, at last `succeeded`, `failed` or `cancelled`."},
        "data": {"type": "string", "description": "JSON object of state, step, share, model and problem."},
    },
}
EVENT_DOCS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The stream.",
        "content": {
            "text/event-stream": {
                "schema": EVENT,
                "example": 'retry: 2000\n\nid: 7\nevent: progress\ndata: {"state": "running", "share": 0.4}\n\n',
            }
        },
    },
    204: {"description": "The training has ended and `Last-Event-ID` is its last event: there is nothing to follow."},
    **problem_responses(503),
}


@router.post("", status_code=202, responses=problem_responses(409, 413))
def request_training(
    body: Training, request: Request, response: Response, ctx: Ctx, caller: Trainer, key: IdempotencyKey = None
) -> TrainingOut:
    """Train on accepted messages and a stored feature table, in the background."""
    call = idempotent(ctx, caller, key, request.url.path, lambda: body.model_dump_json().encode())
    row = ctx.trainings.request(body, call)
    request.app.state.worker.wake()
    response.headers["Location"] = f"/v1/trainings/{row['id']}"
    return TrainingOut(**row)


@router.get("", responses=LINK_DOCS)
def list_trainings(
    request: Request,
    response: Response,
    ctx: Ctx,
    _: Reader,
    page: PagedEitherWay,
    state: Annotated[State | None, Query(description="Only trainings in this state.")] = None,
) -> list[TrainingOut]:
    """Trainings by the time they were asked for."""
    return [TrainingOut(**row) for row in with_link(ctx.trainings.list(page, state), request, response)]


@router.get("/{training}")
def get_training(training: str, ctx: Ctx, _: Reader) -> TrainingOut:
    """State, progress, and in the end the model or the problem."""
    return TrainingOut(**ctx.trainings.get(training))


@router.post("/{training}/cancel", responses=problem_responses(409))
def cancel_training(training: str, ctx: Ctx, _: Trainer) -> TrainingOut:
    """End a training: at once while it waits; while it runs within seconds, when it next reports progress. Nothing of
    it is kept. Cancelling again changes nothing; what has succeeded or failed cannot be cancelled (409)."""
    return TrainingOut(**ctx.trainings.cancel(training))


@router.get("/{training}/events", response_class=Response, responses=EVENT_DOCS)
async def watch(
    training: str,
    request: Request,
    ctx: Ctx,
    _: Reader,
    last: Annotated[
        str | None, Header(alias="Last-Event-ID", description="Nothing up to this event is sent again.")
    ] = None,
) -> Response:
    """Server-sent events: `progress` whenever something changed, then `succeeded`, `failed` or `cancelled`, then the
    end. Each event is the whole state, its id the training's revision, so that none is missed by who comes late."""
    row = await run_in_threadpool(ctx.trainings.get, training)  # a 404 must come before the stream begins
    streams: Streams = request.app.state.streams
    return event_stream(streams, lambda: ctx.trainings.get(training), row, last)
