"""Receipts: the audience of a release or an answer acknowledges that it accepted it."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Response
from pydantic import BaseModel, Field

from labels_party.api.context import Ctx, Receiver, actor
from labels_party.bootstrap import Services
from shared.audit.receipts import ANSWER, RELEASE
from shared.service.apikeys import Principal
from shared.service.http import PROBLEM_RESPONSES, problem_responses

router = APIRouter(prefix="/v1", tags=["receipts"], responses=PROBLEM_RESPONSES)
ENVELOPE = {
    "payload": "e30=",
    "payloadType": "application/vnd.label-dp.receipt+json",
    "signatures": [{"keyid": "ed25519:…", "sig": "…"}],
}


class ReceiptOut(BaseModel):
    release: str = Field(description="Id of the release, or of the answer.")
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


Sent = Annotated[dict[str, Any] | None, Body(examples=[ENVELOPE])]
RESPONSES: dict[int | str, dict[str, Any]] = {
    **problem_responses(409, 413),
    200: {"model": ReceiptOut, "description": "Kept before"},
}


@router.post("/releases/{release}/receipt", status_code=201, responses=RESPONSES)
def receive(release: str, response: Response, ctx: Ctx, caller: Receiver, envelope: Sent = None) -> ReceiptOut:
    """A signed receipt (DSSE envelope) of a release that the caller's audience accepted. It is checked against the
    registered key and the published manifest and kept in the audit store; the same one again is harmless."""
    return _keep(ctx, caller, response, release, RELEASE, envelope)


@router.post("/answers/{answer}/receipt", status_code=201, responses=RESPONSES)
def receive_of_answer(answer: str, response: Response, ctx: Ctx, caller: Receiver, envelope: Sent = None) -> ReceiptOut:
    """The same of an answer, of whatever kind; both are in one list."""
    return _keep(ctx, caller, response, answer, ANSWER, envelope)


def _keep(ctx: Services, caller: Principal, response: Response, name: str, noun: str, envelope: Any) -> ReceiptOut:
    fresh, receipt = ctx.receipts.keep(name, envelope, str(caller.audience), actor(caller), noun)
    if not fresh:
        response.status_code = 200
    return ReceiptOut(release=name, audience=receipt.audience, position=receipt.position, digest=receipt.digest)


@router.get("/receipts")
def state(ctx: Ctx, caller: Receiver) -> ReceiptStates:
    """How far the caller's list of receipts is kept here: what to send next, and whether both have the same one."""
    audience = str(caller.audience)
    return ReceiptStates(audience=audience, keys=[ReceiptState(**s) for s in ctx.receipts.state(audience)])
