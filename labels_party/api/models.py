"""Replies, in which ε is a decimal string; what is asked for is in `label_dp.schemas`."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from label_dp.schemas.base import Ask, whole
from label_dp.schemas.filters import WorkState


class Accepted(BaseModel):
    batch: str
    accepted: int


class DecisionIn(Ask):
    model_config = whole({"decision": "drop"})

    decision: Literal["drop", "replace"] = Field(description="replace: as if it came now, with mode=upsert.")


class SetAsideOut(BaseModel):
    id: str
    batch: str
    sent_by: str
    sent_by_name: str | None = Field(None, description="Of the API key, if it has one.")
    received: str
    rows: int
    decision: str | None = Field(description="drop, replace, or repeat: its sender sent the same before.")
    decided: str | None
    decided_by: str | None
    decided_by_name: str | None = None
    examples: list[str] = Field(default=[], description="While it waits, some of its ids that have a record.")


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


class Recommendation(BaseModel):
    epsilon: str
    epsilon_left: str | None = Field(description="Of the lifetime ε afterwards; null where it is not allowed.")
    mechanism: str = Field(description="What auto would choose under the prior of this plan.")
    options: dict[str, Any]
    epsilon_split: dict[str, str]
    why: str


class PlanClip(BaseModel):
    quantiles: list[str]
    epsilon: str
    domain: dict[str, Any] = Field(description="Where the prior of this plan would put the bounds; the real ones vary.")
    rank_error: float = Field(
        description="Labels by which a bound misses its quantile at most, 19 times in 20, beside those between two "
        "candidates."
    )
    note: str | None = Field(description="Set where that is more than lie beyond the quantile.")


class PlanRate(BaseModel):
    rate: str
    rows_without_noise: float = Field(description="Rows without noise that tell as much of the rate (Fisher).")
    rarer_without_noise: float = Field(description="Of these, those that would have the rarer value.")
    standard_error: float | None = Field(description="Of the overall rate, from the message alone; null: no bound.")
    too_few: bool = Field(description="Fewer of the rarer value than the 30 or so that a model needs.")


class PlanWorth(BaseModel):
    epsilon: str
    value: str = Field(description="The higher value, whose share a rate is.")
    flip_probability: float
    rates: list[PlanRate]
    prior_epsilon: str = Field(description="What a prior costs; where none is bought, a hundredth of ε.")
    prior_standard_error: float | None = Field(description="Of the overall rate, from that prior.")
    warnings: list[str]


class PlanTwoValues(BaseModel):
    rates: str = Field(description="Where the rates come from: assumed by the owner, or examples.")
    worth: list[PlanWorth]


class PlanOut(BaseModel):
    population: str
    n: int
    loss: str
    prior: str
    clip: PlanClip | None = Field(description="Null where no clipping bounds are bought.")
    mechanisms: list[dict[str, Any]]
    left_out: str | None = Field(description="Which mechanisms are not in the list because they take long, and why.")
    unused: list[str] = Field(description="Of each mechanism that charges more for labels than its channel proves.")
    recommendations: list[Recommendation]
    two_values: PlanTwoValues | None = Field(description="What can be learnt; null for domains of other sizes.")
    model_error_rule: str
