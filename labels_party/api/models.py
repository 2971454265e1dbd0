"""Replies, in which ε is a decimal string; what is asked for is in `label_dp.schemas`."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from label_dp.schemas.base import Ask, whole
from label_dp.schemas.filters import WorkState


class Accepted(BaseModel):
    batch: str
    accepted: int


class EventsOut(BaseModel):
    accepted: int = Field(description="Events of the body, whatever becomes of them.")


class DecisionIn(Ask):
    model_config = whole({"decision": "drop"})

    decision: Literal["drop", "replace"] = Field(description="replace: as if it came now, with mode=upsert.")


class ListingOut(BaseModel):
    batch: str
    examples: int


class ReleasePrior(BaseModel):
    source: str
    release: str | None


class FileOut(BaseModel):
    name: str
    role: str
    bytes: int
    sha256: str


class WorkOut(BaseModel):
    """Charged work of whatever kind."""

    id: str
    kind: str
    batch: str
    population: str
    state: WorkState = Field(description="failed: its charge is kept where a draw may have been seen.")
    epsilon: dict[str, str]
    audiences: list[str]
    created: str
    published: str | None
    files: list[FileOut]
    problem: dict[str, Any] | None
    requested_by: str | None
    requested_by_name: str | None = Field(None, description="Of a person, or of an API key that has one.")
    approved_by: str | None
    approved_by_name: str | None = None
    approved: str | None


class ReleaseOut(WorkOut):
    model_config = ConfigDict(extra="allow")  # what its schema declares for the manifest

    mechanism: str
    drawn_mechanism: str | None = Field(
        None, description="Of a published one that was asked for by its id: what auto took."
    )
    loss: str
    prior: ReleasePrior
    clip_quantiles: list[str] | None = Field(description="Null where no clipping bounds are bought.")
    manifest_sha256: str | None


class AnswerOut(WorkOut):
    parameters: dict[str, Any]
    sha256: str | None = Field(description="Of the payload of the signed document.")


class DeclineIn(Ask):
    model_config = whole({"reason": "the budget of this month is for the other model"})

    reason: str = Field(default="", max_length=500, description="One line for the audit store.")
