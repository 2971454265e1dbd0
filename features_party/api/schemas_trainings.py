"""Bodies of the REST interface: trainings."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from label_dp.schemas.training import Learning

State = Literal["accepted", "running", "succeeded", "failed", "cancelled"]


class TrainingRequest(Learning):
    """What was asked for."""

    feature_table: str
    messages: list[str]
    digests: list[str] = Field(description="The manifests that `messages` meant when the training was asked for.")


class ProblemOut(BaseModel):
    """RFC 9457 problem details; `code` is stable."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(examples=["urn:label-dp:invalid-table"])
    title: str
    status: int
    detail: str
    code: str = Field(examples=["invalid-table"])


class TrainingOut(BaseModel):
    id: str = Field(examples=["tr_0123456789abcdef"])
    state: State
    name: str | None
    note: str | None
    request: TrainingRequest
    step: str = Field(examples=["tree 40 of 150"])
    share: float = Field(description="Progress between 0 and 1.")
    attempts: int
    revision: int = Field(description="Counts changes; the id of the server-sent event that shows this state.")
    model: str | None = Field(description="Once it succeeded.")
    problem: ProblemOut | None = Field(description="Once it failed.")
    created: str
    started: str | None
    finished: str | None
