"""What has been published for a receiver: the call behind a daily pull."""

from __future__ import annotations

import re
from datetime import date
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, BeforeValidator

from labels_party.api.context import Ctx, Reader
from labels_party.release.listing import published_releases
from shared.service.http import PROBLEM_RESPONSES

MAX_PAGE = 1000

router = APIRouter(prefix="/v1", responses=PROBLEM_RESPONSES)


def _written_out(value: object) -> object:
    """A date as text; pydantic would take a number for seconds since 1970."""
    if isinstance(value, str) and not re.fullmatch(r"\d{4}-\d\d-\d\d", value, re.ASCII):
        raise ValueError("a date is written as YYYY-MM-DD")
    return value


Day = Annotated[date, BeforeValidator(_written_out)]


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


@router.get("/releases", tags=["releases"])
def list_releases(
    ctx: Ctx,
    caller: Reader,
    since: Annotated[Day | None, Query(description="First day of publication, such as 2026-11-01.")] = None,
    population: Annotated[str | None, Query(max_length=200, description="Only this one (name or id).")] = None,
    after: Annotated[str | None, Query(max_length=40, description="`next` of the page before.")] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 100,
) -> ReleaseList:
    """Published releases whose audiences name the caller (for the owner: all), by day of publication, newest last."""
    audience = caller.audience if caller.role == "features" else None
    if caller.role == "features" and audience is None:
        return ReleaseList(releases=[], next=None)
    found = ctx.database.read(
        "release.list",
        lambda c: published_releases(
            c,
            ctx.populations,
            audience,
            since=since.isoformat() if since is not None else None,
            population=population,
            after=after,
            limit=limit,
        ),
    )
    listed = [ListedRelease(**release) for release in found.releases]
    return ReleaseList(releases=listed, next=listed[-1].id if found.more else None)
