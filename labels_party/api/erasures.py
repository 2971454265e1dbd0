"""Erasure requests: the labels of some examples, or of a person, stop counting and are deleted from what is stored."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import Query, Request, Response
from pydantic import Field, StrictInt, StrictStr, model_validator
from sqlalchemy.engine import Connection

from label_dp.http.calls import LARGE
from label_dp.http.filters import LINK_DOCS, Paged, with_link
from label_dp.http.json_bodies import JsonRouter
from label_dp.http.route_docs import PROBLEM_RESPONSES, problem_responses
from label_dp.schemas.base import Ask, whole
from label_dp.schemas.replies import ErasureAsked, ErasureOut
from label_dp.store.paging import Listing
from labels_party.api.context import Auditor, Ctx, IdempotencyKey, Owner, idempotent, to_the_day

router = JsonRouter(prefix="/v1/populations", tags=["erasures"], responses=PROBLEM_RESPONSES)


class ErasureIn(Ask):
    model_config = whole({"example_ids": ["click-1", "click-2"]})

    example_ids: list[StrictStr | StrictInt] | None = Field(
        None, min_length=1, max_length=100_000, examples=[["click-1", "click-2"]]
    )
    units: list[StrictStr] | None = Field(
        None,
        min_length=1,
        max_length=100_000,
        examples=[["person-1"]],
        description="In place of ids: every example of these, in every batch, open, sealed and later.",
    )

    @model_validator(mode="after")
    def _one_of_both(self) -> ErasureIn:
        if (self.example_ids is None) == (self.units is None):
            raise ValueError("names `example_ids` or `units`, one of both")
        return self


@router.post("/{population}/erasures", status_code=202, responses=problem_responses(409, 413), dependencies=[LARGE])
def ask(
    population: str, body: ErasureIn, request: Request, ctx: Ctx, caller: Owner, key: IdempotencyKey = None
) -> ErasureAsked:
    """Erase the labels of these examples, or of every example of these units (persons). It says which ids or units no
    batch has. Labels that come later for one of them are accepted and ignored. It is carried out in the background."""
    call = idempotent(ctx, caller, key, request.url.path, body.model_dump_json().encode())
    if body.units is not None:
        _, answer = ctx.unit_erasures.request(population, body.units, caller.actor, call)
    else:
        _, answer = ctx.erasures.request(population, list(body.example_ids or []), caller.actor, call)
    ctx.worker.wake()
    return cast("ErasureAsked", answer)


@router.get("/{population}/erasures", responses=LINK_DOCS | problem_responses(409))
def erasures(
    request: Request,
    response: Response,
    population: str,
    ctx: Ctx,
    caller: Auditor,
    page: Paged,
    example_id: Annotated[str | None, Query(max_length=1024, description="What became of this one.")] = None,
    unit: Annotated[str | None, Query(max_length=1024, description="What became of all that this one has.")] = None,
) -> list[ErasureOut]:
    """What was asked for and done, and which releases carry the label's randomized value and cannot be recalled."""

    def look(connection: Connection) -> list[ErasureOut]:
        found = ctx.populations.get(connection, population)
        ids: list[str | int] = [] if example_id is None else [example_id]
        after = page.cursor or ""
        if not after.isprintable():  # no database takes every character, and no id has them
            return []
        units = [] if unit is None else ctx.unit_erasures.digests(found, [unit])
        return ctx.erasures.list(connection, found, ids=ids, after=after, limit=page.limit + 1, units=units)

    listing = Listing.of(ctx.database.read("erasure.list", look), page.limit, "id")
    return [to_the_day(e, caller) for e in with_link(listing, request, response)]
