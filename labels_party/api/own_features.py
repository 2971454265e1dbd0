"""Answers made of a sealed batch and the owner's own features of it: rectangles and linear models."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field, StrictFloat, StrictInt

from labels_party.answers.linear_models import LinearModelWish
from labels_party.answers.own_features import Wish
from labels_party.answers.rectangles import RectangleWish
from labels_party.api.answers import AnswerOut, described, document, shown
from labels_party.api.context import Ctx, IdempotencyKey, Owner, Reader, Viewer, actor, idempotent
from labels_party.api.models import Body, Decimalish, whole
from labels_party.api.predictors import CategoryFeature, NumberFeature
from labels_party.bootstrap import Services
from shared.message.linear_model import LINEAR_MODEL
from shared.message.rectangle import RECTANGLE
from shared.service.apikeys import Principal
from shared.service.http import PROBLEM_RESPONSES, problem_responses

router = APIRouter(prefix="/v1", responses=PROBLEM_RESPONSES)
EPSILON = Field(description="Of the whole answer; every example of the batch is charged.", examples=["1"])
DELTA = Field(default="0", description="The most it may take of the population's lifetime δ; what it needs is charged.")
ADDITIONAL = Field(default=False, description="Charge on top of what the batch carries already.")
FEATURE = {"name": "age", "range": [0, 90]}


class RectangleIn(Body):
    model_config = whole({"epsilon": "1", "threshold": 5, "features": [FEATURE]})

    epsilon: Decimalish = EPSILON
    delta: Decimalish = DELTA
    threshold: str | StrictInt | StrictFloat = Field(description="Examples with labels of at least that are positive.")
    features: list[NumberFeature] = Field(min_length=1, max_length=16, description="Numbers with public ranges.")
    bits: int = Field(default=16, ge=1, le=32, description="A range is divided into 2^bits places.")
    method: Literal["ranks", "slices"] = Field(
        default="ranks", description="ranks (pure ε where no δ is given, fewest examples) or slices (needs a δ)."
    )
    slice: int | None = Field(
        default=None, ge=1, description="Positive examples a side is looked for among; by default as few as ε needs."
    )
    additional_release: bool = ADDITIONAL


class LinearModelIn(Body):
    model_config = whole({"epsilon": "1", "features": [FEATURE, {"name": "sector", "values": ["a", "b"]}]})

    epsilon: Decimalish = EPSILON
    delta: Decimalish = DELTA
    features: list[NumberFeature | CategoryFeature] = Field(min_length=1, max_length=64)
    rule: Literal["uniform", "easiest", "hardest", "largest-prediction"] = Field(
        default="uniform", description="Which examples come first; all but uniform choose by the model so far."
    )
    steps: int | None = Field(default=None, ge=1, le=1000, description="How many minibatches; by default by n.")
    minibatch: int | None = Field(default=None, ge=1, description="Examples of one; by default by n.")
    clip: int = Field(default=2, ge=1, le=64, description="The most one example may contribute to a gradient (L1).")
    rate: Decimalish | None = Field(
        default=None, description="Learning rate; by default 1, or 0.25 where examples are chosen."
    )
    additional_release: bool = ADDITIONAL


class AnswerPlanOut(BaseModel):
    kind: str
    batch: str
    epsilon: dict[str, str] = Field(description="What would be charged, δ included.")
    parameters: dict[str, Any]
    facts: dict[str, str | int | bool | None] = Field(description="The bound that is charged, and what it comes to.")


def _wish(body: RectangleIn | LinearModelIn) -> Wish:
    if isinstance(body, RectangleIn):
        return RectangleWish.parse(**body.model_dump())
    return LinearModelWish.parse(**body.model_dump())


def _plan(ctx: Services, batch: str, body: RectangleIn | LinearModelIn) -> AnswerPlanOut:
    wish = _wish(body)
    found = ctx.feature_answers.plan(batch, wish)
    return AnswerPlanOut(
        kind=wish.kind, batch=batch, epsilon=found.split.as_json(), parameters=found.parameters, facts=found.facts
    )


def _created(
    ctx: Services,
    batch: str,
    body: RectangleIn | LinearModelIn,
    request: Request,
    response: Response,
    caller: Principal,
    key: str | None,
) -> AnswerOut:
    call = idempotent(ctx, caller, key, request.url.path, body.model_dump_json().encode(), batch)
    wish = _wish(body)
    _, answer = ctx.feature_answers.request(batch, wish, actor(caller), call)
    ctx.worker.wake()
    response.headers["Location"] = f"/v1/{wish.kind}s/{answer['id']}"
    return AnswerOut(**shown(answer, caller))


# --- rectangles -------------------------------------------------------------------------------------------


@router.post(
    "/batches/{batch}/rectangles", status_code=202, tags=["rectangles"], responses=problem_responses(403, 409, 413)
)
def create_rectangle(
    batch: str,
    body: RectangleIn,
    request: Request,
    response: Response,
    ctx: Ctx,
    caller: Owner,
    key: IdempotencyKey = None,
) -> AnswerOut:
    """Charge the whole batch and queue a rectangle: for every feature an interval, in which examples whose label
    reaches the threshold lie, but for about `positives_sliced_off` of them."""
    return _created(ctx, batch, body, request, response, caller, key)


@router.post("/batches/{batch}/rectangles/plan", tags=["rectangles"], responses=problem_responses(403, 409, 413))
def plan_rectangle(batch: str, body: RectangleIn, ctx: Ctx, caller: Owner) -> AnswerPlanOut:
    """What a rectangle would cost, and how many positive examples its slices take. Nothing is charged."""
    return _plan(ctx, batch, body)


@router.get("/rectangles/{rectangle}", tags=["rectangles"])
def get_rectangle(rectangle: str, ctx: Ctx, caller: Viewer) -> AnswerOut:
    """State and cost; a digest once it is published, and nothing of the computation before."""
    return described(ctx, caller, rectangle, RECTANGLE)


@router.get(
    "/rectangles/{rectangle}/document", response_class=Response, tags=["rectangles"], responses=problem_responses(409)
)
def get_rectangle_document(rectangle: str, request: Request, ctx: Ctx, caller: Reader) -> Response:
    """The signed rectangle (DSSE envelope): the same bytes for ever."""
    return document(ctx, caller, rectangle, RECTANGLE, request)


# --- linear models ----------------------------------------------------------------------------------------


@router.post(
    "/batches/{batch}/linear-models",
    status_code=202,
    tags=["linear models"],
    responses=problem_responses(403, 409, 413),
)
def create_linear_model(
    batch: str,
    body: LinearModelIn,
    request: Request,
    response: Response,
    ctx: Ctx,
    caller: Owner,
    key: IdempotencyKey = None,
) -> AnswerOut:
    """Charge the whole batch and queue the training of a linear model of the label, once through the batch."""
    return _created(ctx, batch, body, request, response, caller, key)


@router.post("/batches/{batch}/linear-models/plan", tags=["linear models"], responses=problem_responses(403, 409, 413))
def plan_linear_model(batch: str, body: LinearModelIn, ctx: Ctx, caller: Owner) -> AnswerPlanOut:
    """What a linear model would cost, and what a step gets of it. Nothing is charged."""
    return _plan(ctx, batch, body)


@router.get("/linear-models/{model}", tags=["linear models"])
def get_linear_model(model: str, ctx: Ctx, caller: Viewer) -> AnswerOut:
    """State and cost; a digest once it is published, and nothing of the computation before."""
    return described(ctx, caller, model, LINEAR_MODEL)


@router.get(
    "/linear-models/{model}/document", response_class=Response, tags=["linear models"], responses=problem_responses(409)
)
def get_linear_model_document(model: str, request: Request, ctx: Ctx, caller: Reader) -> Response:
    """The signed weights (DSSE envelope): the same bytes for ever."""
    return document(ctx, caller, model, LINEAR_MODEL, request)
