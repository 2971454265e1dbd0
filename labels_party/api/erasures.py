"""Erasure requests: the labels of some examples stop counting and are deleted from what is stored."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query, Request, Response
from pydantic import BaseModel, Field, StrictInt, StrictStr
from sqlalchemy.engine import Connection

from labels_party.api.context import Auditor, Ctx, IdempotencyKey, Owner, idempotent, to_the_day
from shared.schemas.base import Ask, whole
from shared.service.calls import LARGE
from shared.service.http import PROBLEM_RESPONSES, problem_responses
from shared.service.json_bodies import JsonRouter
from shared.service.links import LINK_DOCS, Paged, with_link
from shared.service.paging import Listing

router = JsonRouter(prefix="/v1/populations", tags=["erasures"], responses=PROBLEM_RESPONSES)


class ErasureIn(Ask):
    model_config = whole({"example_ids": ["click-1", "click-2"]})

    example_ids: list[StrictStr | StrictInt] = Field(
        min_length=1, max_length=100_000, examples=[["click-1", "click-2"]]
    )


class ErasureAsked(BaseModel):
    population: str
    examples: int
    requested: str


class Recall(BaseModel):
    work: str
    published: str


class ErasureOut(BaseModel):
    """`batch`, `effect` and what cannot be recalled follow from which batch the id is in, which is not secret; whether
    the example had a label is never said."""

    id: str
    state: str
    effect: str | None
    batch: str | None
    requested: str
    requested_by: str
    applied: str | None
    cannot_be_recalled: list[Recall]
    audiences: list[str]


@router.post("/{population}/erasures", status_code=202, responses=problem_responses(409, 413), dependencies=[LARGE])
def ask(
    population: str, body: ErasureIn, request: Request, ctx: Ctx, caller: Owner, key: IdempotencyKey = None
) -> ErasureAsked:
    """Erase the labels of these examples. The answer is the same whether an id was ever seen; labels that come later
    for one of them are accepted and ignored. It is carried out in the background."""
    call = idempotent(ctx, caller, key, request.url.path, body.model_dump_json().encode())
    _, answer = ctx.erasures.request(population, list(body.example_ids), caller.actor, call)
    ctx.worker.wake()
    return ErasureAsked(**answer)


@router.get("/{population}/erasures", responses=LINK_DOCS)
def erasures(
    request: Request,
    response: Response,
    population: str,
    ctx: Ctx,
    caller: Auditor,
    page: Paged,
    example_id: Annotated[str | None, Query(max_length=1024, description="What became of this one.")] = None,
) -> list[ErasureOut]:
    """What was asked for and done, and which releases carry the label's randomized value and cannot be recalled."""

    def look(connection: Connection) -> list[dict[str, Any]]:
        found = ctx.populations.get(connection, population)
        ids: list[str | int] = [] if example_id is None else [example_id]
        after = page.cursor or ""
        if not after.isprintable():  # no database takes every character, and no id has them
            return []
        return ctx.erasures.list(connection, found, ids=ids, after=after, limit=page.limit + 1)

    listing = Listing.of(ctx.database.read("erasure.list", look), page.limit, "id")
    return [ErasureOut(**to_the_day(e, caller)) for e in with_link(listing, request, response)]
