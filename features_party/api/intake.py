"""Messages and answers of labels parties: pulled or uploaded; verified and accounted for in either case."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import Request, Response
from starlette.concurrency import run_in_threadpool

from features_party.api import context, schemas
from features_party.bootstrap import Services
from features_party.receive.acceptances import ANSWER, MESSAGE
from features_party.receive.accepted import AcceptedMessage
from features_party.receive.answers import SignedAnswer
from features_party.receive.arrivals import Arrivals
from features_party.receive.labels_service import LabelsService
from features_party.receive.pull_since import Patience, await_published
from features_party.receive.uploads import arrange, untar
from features_party.telemetry.steps import PULL
from label_dp.documents.answer import Answer
from label_dp.errors import Unavailable
from label_dp.http.calls import LARGE, UPLOAD
from label_dp.http.filters import LINK_DOCS, PagedEitherWay, with_link
from label_dp.http.json_bodies import JsonRouter, read_body
from label_dp.http.route_docs import PROBLEM_RESPONSES, IdempotencyKey, problem_responses
from label_dp.logs import event
from label_dp.progress import Progress
from label_dp.schemas.validation import as_model
from label_dp.store.apikeys import Principal
from label_dp.store.idempotency import IdempotentCall, Reply

log = logging.getLogger("label_dp.features_party")
messages = JsonRouter(prefix="/v1", tags=["messages"], responses=PROBLEM_RESPONSES)
answers = JsonRouter(prefix="/v1", tags=["answers"], responses=PROBLEM_RESPONSES)
Found = AcceptedMessage | SignedAnswer
silent: Progress = lambda _what, _share: None  # noqa: E731 - nobody watches

ACCEPTED: dict[int | str, dict[str, Any]] = {
    200: {"model": schemas.AcceptedOut, "description": "Accepted before"},
    **problem_responses(409, 413, 415, 502, 503),
}
MESSAGE_DOCS: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            context.JSON_TYPE: {
                "schema": schemas.PullIn.model_json_schema(),
                "example": {"url": "http://127.0.0.1:8001", "release": "rel_0123456789abcdef", "api_key": "lp_…"},
            },
            context.FORM_TYPE: {
                "schema": {
                    "type": "object",
                    "properties": {"file": {"type": "array", "items": {"type": "string", "format": "binary"}}},
                }
            },
            context.TAR_TYPE: {"schema": {"type": "string", "format": "binary"}},
        },
    }
}
ENVELOPE = {"payload": "e30=", "payloadType": "application/vnd.label-dp.answer+json", "signatures": []}
BODY_DOCS: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            context.JSON_TYPE: {
                "schema": {
                    "anyOf": [schemas.AnswerPullIn.model_json_schema(), {"type": "object", "required": ["payload"]}]
                },
                "examples": {
                    "pull": {"value": {"url": "http://127.0.0.1:8001", "answer": "ans_0123456789abcdef"}},
                    "upload": {"value": ENVELOPE},
                },
            }
        },
    }
}


@messages.post("/messages", status_code=201, openapi_extra=MESSAGE_DOCS, responses=ACCEPTED, dependencies=[UPLOAD])
async def accept_message(
    request: Request, response: Response, ctx: context.Ctx, caller: context.Trainer, key: IdempotencyKey = None
) -> schemas.AcceptedOut:
    """Pull a release (JSON), or upload a message: a form or an uncompressed tar with the signed manifest
    (`….dsse.json`) and its files. The signing key must be pinned (`features-party pin-key`). 200 where the message
    had been accepted before."""
    kind, who = context.media_type(request), caller.actor
    if kind == context.JSON_TYPE:
        pull_in = await read_body(request, schemas.PullIn)
        secret = None if pull_in.api_key is None else pull_in.api_key.get_secret_value()
        content = partial(context.fingerprint, pull_in.url, pull_in.release, secret)
        take = partial(_pulled, ctx, pull_in, who, lambda s, arrivals: arrivals.bring(s, pull_in.release, silent))
        response.status_code, said = await run_in_threadpool(_once, ctx, caller, key, MESSAGE.name, content, take)
        return schemas.AcceptedOut(**said)
    if kind not in (context.FORM_TYPE, context.TAR_TYPE):
        raise context.unsupported(context.JSON_TYPE, context.FORM_TYPE, context.TAR_TYPE)
    async with context.workspace(ctx, ctx.home.messages) as folder:
        if kind == context.FORM_TYPE:
            parts, _ = await context.form_to_files(request, folder)
        else:
            archive = folder / "upload.tar"
            await context.body_to_file(request, archive)
            parts = await run_in_threadpool(untar, archive, folder)
        sent, uploaded = partial(_fingerprint, parts), partial(_uploaded, ctx, parts, folder, who)
        response.status_code, said = await run_in_threadpool(_once, ctx, caller, key, MESSAGE.name, sent, uploaded)
    return schemas.AcceptedOut(**said)


@answers.post(
    "/answers",
    status_code=201,
    openapi_extra=BODY_DOCS,
    dependencies=[LARGE],
    responses={
        200: {"model": schemas.AcceptedAnswerOut, "description": "Accepted before"},
        **problem_responses(409, 413, 502, 503),
    },
)
def accept_answer(
    body: dict[str, Any], response: Response, ctx: context.Ctx, caller: context.Trainer, key: IdempotencyKey = None
) -> schemas.AcceptedAnswerOut:
    """Pull an answer by its id, or take its signed document (the envelope is the body): a calibration, a median, a
    prediction. The signing key must be pinned. 200 where it had been accepted before."""
    who, sent = caller.actor, json.dumps(body, sort_keys=True).encode()

    def take() -> Found:
        if "payload" in body:
            return ctx.answers.accept(Answer.envelope_bytes(body), actor=who)
        answer_pull_in = as_model(body, schemas.AnswerPullIn)
        return _pulled(ctx, answer_pull_in, who, partial(_answer, answer_pull_in))

    response.status_code, said = _once(ctx, caller, key, ANSWER.name, lambda: sent, take)
    return schemas.AcceptedAnswerOut(**said)


def _once(
    ctx: Services,
    caller: Principal,
    key: str | None,
    noun: str,
    content: Callable[[], bytes],
    take: Callable[[], Found],
) -> Reply:
    def accept(_: IdempotentCall) -> Reply:
        document = take()
        return 201 if document.fresh else 200, {"already_accepted": not document.fresh, noun: document.summary()}

    return context.claimed(context.idempotent(ctx, caller, key, f"POST /v1/{noun}s", content), accept)


def _pulled(
    ctx: Services,
    request: schemas.PullIn | schemas.AnswerPullIn,
    who: str,
    take: Callable[[LabelsService, Arrivals], Found],
) -> Found:
    """Pull a document and send its receipt; an undelivered one is sent with the next pull."""
    arrivals = ctx.arrivals(actor=who)
    with ctx.steps.step(PULL), context.labels_service(ctx, request.url, request.api_key) as service:
        document = take(service, arrivals)
        delivery = arrivals.acknowledge(service)
    if delivery is not None:
        level = logging.INFO if delivery.problem is None else logging.WARNING
        log.log(level, "%s", delivery.sentence, extra=event("receipts", delivered=delivery.delivered))
    return document


def _answer(request: schemas.AnswerPullIn, service: LabelsService, arrivals: Arrivals) -> SignedAnswer:
    if request.wait:
        with suppress(Unavailable):  # the pull reports the fault
            await_published(
                service, request.answer, Patience(request.wait, sleep=service.wire.sleep), silent, noun="answer"
            )
    return arrivals.pull_answer(service, request.answer)


def _uploaded(ctx: Services, parts: list[tuple[str, Path]], folder: Path, who: str) -> AcceptedMessage:
    message = folder / "message"
    message.mkdir(mode=0o700)
    return ctx.messages.accept(arrange(parts, ctx.pinned, ctx.settings.name, message), actor=who)


def _fingerprint(parts: list[tuple[str, Path]]) -> bytes:
    """Hash the files, not the form around them, whose boundary differs at every attempt."""
    return context.fingerprint(*(piece for name, path in sorted(parts) for piece in (name, path)))


@messages.get("/messages", responses=LINK_DOCS)
def list_messages(
    request: Request, response: Response, ctx: context.Ctx, _: context.Reader, page: PagedEitherWay
) -> list[schemas.MessageOut]:
    """What was accepted, and the ε of each."""
    return [schemas.MessageOut(**row) for row in with_link(ctx.acceptances.page(MESSAGE, page), request, response)]


@messages.get("/messages/{release}", responses=problem_responses(409))
def get_message(release: str, ctx: context.Ctx, _: context.Reader) -> schemas.AcceptedOut:
    """One accepted message, by its release id or its digest; its stored bytes are checked again. 409 where labels
    parties chose the same release id."""
    return schemas.AcceptedOut(
        already_accepted=True, message=schemas.MessageSummary.model_validate(ctx.messages.open(release).summary())
    )


@answers.get("/answers", responses=LINK_DOCS)
def list_answers(
    request: Request, response: Response, ctx: context.Ctx, _: context.Reader, page: PagedEitherWay
) -> list[schemas.AnswerOut]:
    """What was accepted, and the ε of each."""
    return [schemas.AnswerOut(**row) for row in with_link(ctx.acceptances.page(ANSWER, page), request, response)]


@answers.get("/answers/{answer}", responses=problem_responses(409))
def get_answer(answer: str, ctx: context.Ctx, _: context.Reader) -> schemas.AcceptedAnswerOut:
    """One accepted answer, by its id or the digest of its document. 409 where labels parties chose the same id."""
    return schemas.AcceptedAnswerOut(
        already_accepted=True, answer=schemas.AnswerSummary.model_validate(ctx.answers.open(answer).summary())
    )


@answers.get(
    "/answers/{answer}/document",
    response_class=Response,
    responses={
        200: {"description": "The envelope.", "content": {context.JSON_TYPE: {"schema": {"type": "object"}}}},
        **problem_responses(409),
    },
)
def get_document(answer: str, ctx: context.Ctx, _: context.Reader) -> Response:
    """The signed document as it came (DSSE envelope)."""
    return Response(ctx.answers.open(answer).envelope, media_type=context.JSON_TYPE)
