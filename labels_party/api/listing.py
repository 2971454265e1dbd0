"""What has been published for a receiver: the calls behind a daily pull."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, BeforeValidator, Field
from sqlalchemy.engine import Connection

from labels_party.answers.listing import published_answers
from labels_party.api.context import Ctx, Reader
from labels_party.bootstrap import Services
from labels_party.budget.populations import Populations
from labels_party.release.listing import Listing, Wanted, published_releases
from shared.service.apikeys import Principal
from shared.service.http import PROBLEM_RESPONSES

MAX_PAGE = 1000

router = APIRouter(prefix="/v1", responses=PROBLEM_RESPONSES)


def _written_out(value: object) -> object:
    """A date as text; pydantic would take a number for seconds since 1970."""
    if isinstance(value, str) and not re.fullmatch(r"\d{4}-\d\d-\d\d", value, re.ASCII):
        raise ValueError("a date is written as YYYY-MM-DD")
    return value


Day = Annotated[date, BeforeValidator(_written_out)]
Since = Annotated[Day | None, Query(description="First day of publication, such as 2026-11-01.")]
InPopulation = Annotated[str | None, Query(max_length=200, description="Only this one (name or id).")]
After = Annotated[str | None, Query(max_length=40, description="`next` of the page before.")]
Limit = Annotated[int, Query(ge=1, le=MAX_PAGE)]


class ListedRelease(BaseModel):
    id: str
    batch: str
    population: str
    population_name: str
    label: str
    published: str
    epsilon: str
    manifest_sha256: str


class ReleaseList(BaseModel):
    """`next` is the `after` of the next page, null on the last one."""

    releases: list[ListedRelease]
    next: str | None


class ListedAnswer(BaseModel):
    id: str
    kind: str
    batch: str
    population: str
    population_name: str
    label: str
    audiences: list[str]
    published: str
    epsilon: str
    delta: str
    sha256: str = Field(description="Of the payload of the signed document.")


class AnswerList(BaseModel):
    """`next` is the `after` of the next page, null on the last one."""

    answers: list[ListedAnswer]
    next: str | None


@router.get("/releases", tags=["releases"])
def list_releases(
    ctx: Ctx,
    caller: Reader,
    since: Since = None,
    population: InPopulation = None,
    after: After = None,
    limit: Limit = 100,
) -> ReleaseList:
    """Published releases whose audiences name the caller (for the owner: all), by day of publication, newest last."""
    found = _listed(ctx, caller, published_releases, since, population, after, limit)
    listed = [ListedRelease(**release) for release in found.rows]
    return ReleaseList(releases=listed, next=listed[-1].id if found.more else None)


@router.get("/answers", tags=["answers"])
def list_answers(
    ctx: Ctx,
    caller: Reader,
    since: Since = None,
    population: InPopulation = None,
    after: After = None,
    limit: Limit = 100,
) -> AnswerList:
    """Published answers of whatever kind, those of predictors included, that are meant for the caller (for the owner:
    all), by day of publication, newest last."""
    found = _listed(ctx, caller, published_answers, since, population, after, limit)
    listed = [ListedAnswer(**answer) for answer in found.rows]
    return AnswerList(answers=listed, next=listed[-1].id if found.more else None)


def _listed(
    ctx: Services,
    caller: Principal,
    of: Callable[[Connection, Populations, Wanted], Listing],
    since: date | None,
    population: str | None,
    after: str | None,
    limit: int,
) -> Listing:
    audience = caller.audience if caller.role == "features" else None
    if caller.role == "features" and audience is None:
        return Listing([], False)
    wanted = Wanted(audience, None if since is None else since.isoformat(), population, after, limit)
    return ctx.database.read("published.list", lambda c: of(c, ctx.populations, wanted))
