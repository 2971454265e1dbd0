"""What every kind of answer shows: its state, and its signed document once it is published; by id alone, whatever its
kind, for a receiver that was told of one."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field
from sqlalchemy.engine import Connection

from labels_party.answers.answers import StoredAnswer
from labels_party.api.context import Ctx, Reader, Viewer
from labels_party.bootstrap import Services
from shared.errors import NotFound
from shared.service.apikeys import Principal
from shared.service.http import PROBLEM_RESPONSES, problem_responses

router = APIRouter(prefix="/v1/answers", tags=["answers"], responses=PROBLEM_RESPONSES)


class AnswerOut(BaseModel):
    id: str
    kind: str
    batch: str
    population: str
    state: str = Field(description="charged, computing, published or failed (its charge is kept).")
    epsilon: dict[str, str]
    parameters: dict[str, Any]
    audiences: list[str]
    created: str
    published: str | None
    sha256: str | None = Field(description="Of the payload of the signed document.")
    problem: dict[str, Any] | None
    requested_by: str | None


class AllowanceOut(BaseModel):
    batch: str
    kind: str
    epsilon: str
    epsilon_used: str
    epsilon_left: str


@router.get("/{answer}")
def get_answer(answer: str, ctx: Ctx, caller: Viewer) -> AnswerOut:
    """An answer of whatever kind, also a predictor's: its state and cost."""
    return described(ctx, caller, answer, None)


@router.get("/{answer}/document", response_class=Response, responses=problem_responses(409))
def get_document(answer: str, request: Request, ctx: Ctx, caller: Reader) -> Response:
    """The signed document (DSSE envelope): the same bytes for ever."""
    return document(ctx, caller, answer, None, request)


def described(ctx: Services, caller: Principal, answer: str, kind: str | None) -> AnswerOut:
    """Raises NotFound, also where the answer is not for the caller."""

    def look(connection: Connection) -> dict[str, Any]:
        found = _allowed(ctx, connection, caller, answer, kind)
        _, population = ctx.answers.population_of(connection, found)
        return shown(ctx.answers.describe(found, population), caller)

    return AnswerOut(**ctx.database.read("answer.get", look))


def shown(answer: dict[str, Any], caller: Principal) -> dict[str, Any]:
    """To an audience times are told to the day, as in the document, and nothing of who asked."""
    if caller.role == "features":
        answer = answer | {name: answer[name] and answer[name][:10] for name in ("created", "published")}
        answer |= {"requested_by": None}
    return answer


def document(ctx: Services, caller: Principal, answer: str, kind: str | None, request: Request) -> Response:
    """The signed envelope, the same bytes for ever. Raises NotFound, Conflict (not published)."""

    def look(connection: Connection) -> tuple[bytes, str | None]:
        found = _allowed(ctx, connection, caller, answer, kind)
        return ctx.answers.envelope(connection, answer), found.sha256

    envelope, sha256 = ctx.database.read("answer.document", look)
    etag = f'"{sha256}"'
    headers = {"ETag": etag, "Cache-Control": "private, immutable"}
    known = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
    if etag in known or "*" in known:
        return Response(status_code=304, headers=headers)
    return Response(envelope, media_type="application/json", headers=headers)


def _allowed(ctx: Services, connection: Connection, caller: Principal, answer: str, kind: str | None) -> StoredAnswer:
    found = ctx.answers.get(connection, answer, kind)
    if caller.role == "features" and caller.audience not in found.audiences:
        raise NotFound(f"There is no {kind or 'answer'} '{answer}'.")
    return found
