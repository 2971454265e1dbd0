"""Medians: one signed value with about a third of a batch's labels on either side."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Request, Response
from pydantic import Field

from labels_party.answers.medians import MedianWish
from labels_party.api.answers import AnswerOut, described, document, shown
from labels_party.api.context import Ctx, IdempotencyKey, Owner, Reader, Viewer, actor, idempotent
from labels_party.api.models import Body, Decimalish, whole
from shared.message.median import MEDIAN
from shared.service.http import PROBLEM_RESPONSES, problem_responses

router = APIRouter(prefix="/v1", tags=["medians"], responses=PROBLEM_RESPONSES)


class MedianIn(Body):
    model_config = whole({"epsilon": "0.5"})

    epsilon: Decimalish
    delta: Decimalish = Field(default="0", description="Of the population's lifetime δ; by slices only.")
    method: Literal["auto", "slices", "ranks"] = Field(
        default="auto", description="ranks (pure ε, fewer labels), slices (needs a δ); auto: slices if a δ is given."
    )
    additional_release: bool = Field(default=False, description="Charge on top of what the batch carries already.")


@router.post("/batches/{batch}/medians", status_code=202, responses=problem_responses(403, 409, 413))
def create_median(
    batch: str,
    body: MedianIn,
    request: Request,
    response: Response,
    ctx: Ctx,
    caller: Owner,
    key: IdempotencyKey = None,
) -> AnswerOut:
    """Charge the whole batch and queue an approximate median of its labels: between their ⅓ and ⅔ quantiles, where
    there are enough of them."""
    wish = MedianWish.parse(
        epsilon=body.epsilon, delta=body.delta, method=body.method, additional_release=body.additional_release
    )
    call = idempotent(ctx, caller, key, request.url.path, body.model_dump_json().encode(), batch)
    _, answer = ctx.medians.request(batch, wish, actor(caller), call)
    ctx.worker.wake()
    response.headers["Location"] = f"/v1/medians/{answer['id']}"
    return AnswerOut(**shown(answer, caller))


@router.get("/medians/{median}")
def get_median(median: str, ctx: Ctx, caller: Viewer) -> AnswerOut:
    """State and cost; a digest once it is published, and nothing of the computation before."""
    return described(ctx, caller, median, MEDIAN)


@router.get("/medians/{median}/document", response_class=Response, responses=problem_responses(409))
def get_document(median: str, request: Request, ctx: Ctx, caller: Reader) -> Response:
    """The signed median (DSSE envelope): the same bytes for ever."""
    return document(ctx, caller, median, MEDIAN, request)
