"""Answers of labels parties: pulled or uploaded; verified and accounted for in either case."""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from typing import Any

from fastapi import APIRouter, Request, Response

from features_party.api.context import JSON_TYPE, Ctx, Reader, Trainer, actor, labels_service
from features_party.api.idempotent import IdempotencyKey, claimed
from features_party.api.listings import LINK_DOCS, Paged, with_link
from features_party.api.schemas import AcceptedAnswerOut, AnswerOut, AnswerPullIn, AnswerSummary
from features_party.bootstrap import Services
from features_party.intake.answers import SignedAnswer
from features_party.pull import pull_answer
from features_party.pull_since import Patience, await_published
from shared.errors import Unavailable
from shared.message.answer import envelope_bytes
from shared.service.http import PROBLEM_RESPONSES, problem_responses, read_model

log = logging.getLogger("label_dp.features_party")
router = APIRouter(prefix="/v1/answers", tags=["answers"], responses=PROBLEM_RESPONSES)

ENVELOPE = {"payload": "e30=", "payloadType": "application/vnd.label-dp.answer+json", "signatures": []}
BODY_DOCS: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            JSON_TYPE: {
                "schema": {"anyOf": [AnswerPullIn.model_json_schema(), {"type": "object", "required": ["payload"]}]},
                "examples": {
                    "pull": {"value": {"url": "http://127.0.0.1:8001", "answer": "ans_0123456789abcdef"}},
                    "upload": {"value": ENVELOPE},
                },
            }
        },
    }
}


@router.post(
    "",
    status_code=201,
    openapi_extra=BODY_DOCS,
    responses={
        200: {"model": AcceptedAnswerOut, "description": "Accepted before"},
        **problem_responses(409, 413, 502, 503),
    },
)
def accept(
    body: dict[str, Any], response: Response, ctx: Ctx, caller: Trainer, key: IdempotencyKey = None
) -> AcceptedAnswerOut:
    """Pull an answer by its id, or take its signed document (the envelope is the body): a calibration, a median, a
    prediction. The signing key must be pinned. 200 where it had been accepted before."""
    sent = json.dumps(body, sort_keys=True).encode()
    with claimed(ctx, caller, key, "POST /v1/answers", lambda: sent) as claim:
        if claim.answer is not None:
            response.status_code, answer = claim.answer
            return AcceptedAnswerOut(**answer)
        if "payload" in body:
            found = ctx.answers.accept(envelope_bytes(body), actor=actor(caller))
        else:
            found = _pull(ctx, read_model(sent, AnswerPullIn), actor(caller))
        response.status_code = 201 if found.fresh else 200
        answer = {"already_accepted": not found.fresh, "answer": found.summary()}
        claim.keep_now(response.status_code, answer)
    return AcceptedAnswerOut(**answer)


def _pull(ctx: Services, wanted: AnswerPullIn, who: str) -> SignedAnswer:
    """The receipt goes back at once; one that could not be delivered goes with the next pull."""
    with labels_service(ctx, wanted.url, wanted.api_key) as service:
        if wanted.wait:
            with suppress(Unavailable):  # the pull says what is the matter
                await_published(
                    service, wanted.answer, Patience(wanted.wait), lambda _what, _share: None, noun="answer"
                )
        envelope = pull_answer(service, wanted.answer, ctx.pinned.for_envelope, ctx.settings.name)
        found = ctx.answers.accept(envelope, actor=who)
        delivery = ctx.receipts.deliver(service, found.answer.key_id)
    log.log(logging.INFO if delivery.problem is None else logging.WARNING, "%s", delivery.sentence)
    return found


@router.get("", responses=LINK_DOCS)
def list_answers(request: Request, response: Response, ctx: Ctx, _: Reader, page: Paged) -> list[AnswerOut]:
    """What was accepted, and the ε of each."""
    return [AnswerOut(**row) for row in with_link(ctx.answers.page(page), request, response)]


@router.get("/{answer}", responses=problem_responses(409))
def get_answer(answer: str, ctx: Ctx, _: Reader) -> AcceptedAnswerOut:
    """One accepted answer, by its id or the digest of its document. 409 where labels parties chose the same id."""
    return AcceptedAnswerOut(already_accepted=True, answer=AnswerSummary(**ctx.answers.open(answer).summary()))


@router.get(
    "/{answer}/document",
    response_class=Response,
    responses={
        200: {"description": "The envelope.", "content": {JSON_TYPE: {"schema": {"type": "object"}}}},
        **problem_responses(409),
    },
)
def get_document(answer: str, ctx: Ctx, _: Reader) -> Response:
    """The signed document as it came (DSSE envelope)."""
    return Response(ctx.answers.open(answer).envelope, media_type=JSON_TYPE)
