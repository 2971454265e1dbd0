"""Receipts: the audience of a release acknowledges that it accepted it."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Response
from pydantic import BaseModel, Field

from labels_party.api.context import Ctx, Receiver, actor
from shared.service.http import PROBLEM_RESPONSES, problem_responses

router = APIRouter(prefix="/v1", tags=["receipts"], responses=PROBLEM_RESPONSES)
ENVELOPE = {
    "payload": "e30=",
    "payloadType": "application/vnd.label-dp.receipt+json",
    "signatures": [{"keyid": "ed25519:…", "sig": "…"}],
}


class ReceiptOut(BaseModel):
    release: str
    audience: str
    position: int = Field(description="In the receiver's list of receipts for us, from 1.")
    digest: str = Field(description="SHA-256 of the receipt, which the next one names.")


class ReceiptState(BaseModel):
    key_id: str
    last: int = Field(description="The highest position that we keep; 0 for none.")
    digest: str | None
    missing: list[int] = Field(description="Positions before it that we do not keep; at most 1,000 of them.")


class ReceiptStates(BaseModel):
    audience: str
    keys: list[ReceiptState] = Field(description="A registered receipt key each; none: no receipts are kept.")


@router.post(
    "/releases/{release}/receipt",
    status_code=201,
    responses=problem_responses(409, 413) | {200: {"model": ReceiptOut, "description": "Kept before"}},
)
def receive(
    release: str,
    response: Response,
    ctx: Ctx,
    caller: Receiver,
    envelope: Annotated[dict[str, Any] | None, Body(examples=[ENVELOPE])] = None,
) -> ReceiptOut:
    """A signed receipt (DSSE envelope) of a release that the caller's audience accepted. It is checked against the
    registered key and the published manifest and kept in the audit store; the same one again is harmless."""
    fresh, receipt = ctx.receipts.keep(release, envelope, str(caller.audience), actor(caller))
    if not fresh:
        response.status_code = 200
    return ReceiptOut(
        release=release, audience=receipt.audience, position=receipt.position, digest=receipt.digest
    )  # fmt: skip


@router.get("/receipts")
def state(ctx: Ctx, caller: Receiver) -> ReceiptStates:
    """How far the caller's list of receipts is kept here: what to send next, and whether both have the same one."""
    audience = str(caller.audience)
    return ReceiptStates(audience=audience, keys=[ReceiptState(**s) for s in ctx.receipts.state(audience)])
