"""Messages: pulled from a labels party or uploaded; verified and accounted for in either case."""

from __future__ import annotations

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
from features_party.api.schemas import AcceptedOut, MessageOut, PullIn
from features_party.bootstrap import Services
from features_party.intake.accepted import AcceptedMessage
from features_party.intake.uploads import arrange, untar
from features_party.pull import pull
from shared.errors import InvalidInput
from shared.service.http import PROBLEM_RESPONSES

router = APIRouter(prefix="/v1", tags=["messages"], responses=PROBLEM_RESPONSES)

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


@router.post("/messages", status_code=201, openapi_extra=MESSAGE_DOCS)
async def accept(request: Request, response: Response, ctx: Ctx, caller: Trainer) -> AcceptedOut:
    """Pull a release (JSON), or upload a message: a form or an uncompressed tar with the signed manifest
    (`….dsse.json`) and its files. The signing key must be pinned (`features-party pin-key`). 200 where the message
    had been accepted before."""
    kind = media_type(request)
    if kind not in (JSON_TYPE, FORM_TYPE, TAR_TYPE):
        raise unsupported(JSON_TYPE, FORM_TYPE, TAR_TYPE)
    async with workspace(ctx, ctx.home.messages) as folder:
        if kind == JSON_TYPE:
            body = await _pull_body(request)
            accepted = await run_in_threadpool(_pull, ctx, body, folder, actor(caller))
        else:
            if kind == FORM_TYPE:
                parts, _ = await form_to_files(request, folder)
            else:
                archive = folder / "upload.tar"
                await body_to_file(request, archive)
                parts = await run_in_threadpool(untar, archive, folder)
            accepted = await run_in_threadpool(_take, ctx, parts, folder, actor(caller))
    if not accepted.fresh:
        response.status_code = 200
    return AcceptedOut(already_accepted=not accepted.fresh, message=accepted.summary())


def _pull(ctx: Services, body: PullIn, folder: Path, who: str) -> AcceptedMessage:
    with labels_service(ctx, body.url, body.api_key) as service:
        got = pull(
            service,
            body.release,
            ctx.pinned.for_envelope,
            ctx.settings.name,
            folder / "message.parquet",
            lambda _what, _share: None,
        )
    return ctx.intake.accept(got.path, actor=who)


def _take(ctx: Services, parts: list[tuple[str, Path]], folder: Path, who: str) -> AcceptedMessage:
    message = folder / "message"
    message.mkdir(mode=0o700)
    return ctx.intake.accept(arrange(parts, ctx.pinned, ctx.settings.name, message), actor=who)


async def _pull_body(request: Request) -> PullIn:
    from pydantic import ValidationError

    try:
        return PullIn.model_validate_json(await request.body())
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        raise InvalidInput(f"{'.'.join(str(p) for p in first['loc']) or 'body'}: {first['msg']}.") from None


@router.get("/messages")
def list_messages(ctx: Ctx, _: Reader) -> list[MessageOut]:
    """What was accepted, and the ε of each."""
    return [MessageOut(**row) for row in ctx.intake.list()]


@router.get("/messages/{release}")
def get_message(release: str, ctx: Ctx, _: Reader) -> AcceptedOut:
    """One accepted message, by its release id or its digest; its stored bytes are checked again."""
    return AcceptedOut(already_accepted=True, message=ctx.intake.open(release).summary())
