"""Messages: pulled from a labels party or uploaded; verified and accounted for in either case."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from features_party.api.context import (
    FORM_TYPE,
    JSON_TYPE,
    TAR_TYPE,
    Ctx,
    Reader,
    Trainer,
    actor,
    body_to_file,
    form_to_files,
    labels_service,
    media_type,
    unsupported,
    workspace,
)
from features_party.api.idempotent import IdempotencyKey, claimed, fingerprint
from features_party.api.listings import LINK_DOCS, Paged, with_link
from features_party.api.schemas import AcceptedOut, MessageOut, PullIn
from features_party.bootstrap import Services
from features_party.intake.accepted import AcceptedMessage
from features_party.intake.uploads import arrange, untar
from features_party.pull import pull
from features_party.storage.idempotency import Answer
from shared.service.apikeys import Principal
from shared.service.http import PROBLEM_RESPONSES, problem_responses, read_model

log = logging.getLogger("label_dp.features_party")
router = APIRouter(prefix="/v1", tags=["messages"], responses=PROBLEM_RESPONSES)

MESSAGE: dict[int | str, dict[str, Any]] = {
    200: {"model": AcceptedOut, "description": "Accepted before"},
    **problem_responses(409, 413, 415, 502, 503),
}
MESSAGE_DOCS: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            JSON_TYPE: {
                "schema": PullIn.model_json_schema(),
                "example": {"url": "http://127.0.0.1:8001", "release": "rel_0123456789abcdef", "api_key": "lp_…"},
            },
            FORM_TYPE: {
                "schema": {
                    "type": "object",
                    "properties": {"file": {"type": "array", "items": {"type": "string", "format": "binary"}}},
                }
            },
            TAR_TYPE: {"schema": {"type": "string", "format": "binary"}},
        },
    }
}


@router.post("/messages", status_code=201, openapi_extra=MESSAGE_DOCS, responses=MESSAGE)
async def accept(
    request: Request, response: Response, ctx: Ctx, caller: Trainer, key: IdempotencyKey = None
) -> AcceptedOut:
    """Pull a release (JSON), or upload a message: a form or an uncompressed tar with the signed manifest
    (`….dsse.json`) and its files. The signing key must be pinned (`features-party pin-key`). 200 where the message
    had been accepted before."""
    kind = media_type(request)
    if kind not in (JSON_TYPE, FORM_TYPE, TAR_TYPE):
        raise unsupported(JSON_TYPE, FORM_TYPE, TAR_TYPE)
    async with workspace(ctx, ctx.home.messages) as folder:
        if kind == JSON_TYPE:
            body = await request.body()
            wanted = read_model(body, PullIn)
            content, take = (lambda: body), partial(_pull, ctx, wanted, folder, actor(caller))
        else:
            if kind == FORM_TYPE:
                parts, _ = await form_to_files(request, folder)
            else:
                archive = folder / "upload.tar"
                await body_to_file(request, archive)
                parts = await run_in_threadpool(untar, archive, folder)
            content, take = partial(_fingerprint, parts), partial(_take, ctx, parts, folder, actor(caller))
        response.status_code, answer = await run_in_threadpool(_once, ctx, caller, key, content, take)
    return AcceptedOut(**answer)


def _once(
    ctx: Services, caller: Principal, key: str | None, content: Callable[[], bytes], take: Callable[[], AcceptedMessage]
) -> Answer:
    with claimed(ctx, caller, key, "POST /v1/messages", content) as claim:
        if claim.answer is not None:
            return claim.answer
        accepted = take()
        status, answer = 201 if accepted.fresh else 200, _answer(accepted, not accepted.fresh)
        claim.keep_now(status, answer)
        return status, answer


def _answer(accepted: AcceptedMessage, already: bool) -> dict[str, Any]:
    return {"already_accepted": already, "message": accepted.summary()}


def _fingerprint(parts: list[tuple[str, Path]]) -> bytes:
    """Of the files, not of the form around them, whose boundary differs from try to try."""
    return fingerprint(*(piece for name, path in sorted(parts) for piece in (name, path)))


def _pull(ctx: Services, body: PullIn, folder: Path, who: str) -> AcceptedMessage:
    """The receipt goes back at once; one that could not be delivered goes with the next pull."""
    with labels_service(ctx, body.url, body.api_key) as service:
        got = pull(
            service,
            body.release,
            ctx.pinned.for_envelope,
            ctx.settings.name,
            folder / "message.parquet",
            lambda _what, _share: None,
        )
        accepted = ctx.intake.accept(got.path, actor=who)
        delivery = ctx.receipts.deliver(service, accepted.manifest.key_id)
    log.log(logging.INFO if delivery.problem is None else logging.WARNING, "%s", delivery.sentence)
    return accepted


def _take(ctx: Services, parts: list[tuple[str, Path]], folder: Path, who: str) -> AcceptedMessage:
    message = folder / "message"
    message.mkdir(mode=0o700)
    return ctx.intake.accept(arrange(parts, ctx.pinned, ctx.settings.name, message), actor=who)


@router.get("/messages", responses=LINK_DOCS)
def list_messages(request: Request, response: Response, ctx: Ctx, _: Reader, page: Paged) -> list[MessageOut]:
    """What was accepted, and the ε of each."""
    return [MessageOut(**row) for row in with_link(ctx.intake.page(page), request, response)]


@router.get("/messages/{release}", responses=problem_responses(409))
def get_message(release: str, ctx: Ctx, _: Reader) -> AcceptedOut:
    """One accepted message, by its release id or its digest; its stored bytes are checked again. 409 where labels
    parties chose the same release id."""
    return AcceptedOut(**_answer(ctx.intake.open(release), True))
