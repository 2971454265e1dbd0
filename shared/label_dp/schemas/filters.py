"""Filters of lists, each declared once: the query of its call, the options of its command, the form of its page."""

from __future__ import annotations

import re
from datetime import date
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from label_dp.schemas.base import QueryAsk, Word

WorkState = Literal["accepted", "charged", "drawing", "published", "failed"]
BatchState = Literal["open", "sealed", "purged"]


def _written_out(value: object) -> object:
    """Require a date as text; pydantic would read a number as seconds since 1970."""
    if isinstance(value, str) and not re.fullmatch(r"\d{4}-\d\d-\d\d", value, re.ASCII):
        raise ValueError("is a day, written as YYYY-MM-DD")
    return value


Day = Annotated[date, BeforeValidator(_written_out)]


class Filter(QueryAsk):
    """Which rows of a list are asked for; a member that is None leaves none out."""


class GivenFilter(Filter):
    """Releases and answers. `since` and `until` (both included) are days of publication, or of the request where
    nothing was published."""

    population: str | None = Field(default=None, max_length=200, description="Only this one (name or id).")
    audience: str | None = Field(default=None, max_length=200, description="Only what is meant for it, or what it has.")
    since: Day | None = Field(default=None, description="First day, such as 2026-11-01.")
    until: Day | None = Field(default=None, description="Last day, such as 2026-11-30.")
    batch: str | None = Field(default=None, max_length=64, description="Only of this batch, by its id.")
    kind: str | None = Field(default=None, max_length=40, description="Such as release or median.")
    state: Annotated[WorkState | None, Word(help="Only accepted, charged, drawing, published or failed.")] = Field(
        default=None, description="Only releases in this state."
    )


class BatchFilter(Filter):
    """Batches. `since` and `until` (both included) are days on which the batch was opened."""

    population: str | None = Field(default=None, max_length=200, description="Only this one (name or id).")
    audience: str | None = Field(default=None, max_length=200, description="Only of populations with this one.")
    since: Day | None = Field(default=None, description="First day, such as 2026-11-01.")
    until: Day | None = Field(default=None, description="Last day, such as 2026-11-30.")
    state: BatchState | None = Field(default=None, description="Only open, sealed or purged.")


class PopulationFilter(Filter):
    """Populations."""

    audience: str | None = Field(default=None, max_length=200, description="Only populations of this audience.")
