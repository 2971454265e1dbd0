"""Bodies of the REST interface: trainings."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from features_party.api.schemas import In, whole

State = Literal["accepted", "running", "succeeded", "failed", "cancelled"]


class TrainingIn(In):
    model_config = whole(
        {
            "feature_table": "ft_0123456789abcdef",
            "messages": ["rel_0123456789abcdef"],
            "model": "gbdt",
            "name": "weekly revenue, ε 1",
        }
    )

    feature_table: str = Field(max_length=40, examples=["ft_0123456789abcdef"])
    messages: list[str] = Field(
        min_length=1,
        max_length=1000,
        examples=[["rel_0123456789abcdef"]],
        description="Release ids; the digest where two labels parties chose the same id.",
    )
    model: Literal["gbdt", "trees", "linear", "mlp"] = Field(
        default="gbdt",
        description="`gbdt`: boosted trees, with additive models and a Gaussian process where labels allow validation; "
        "`trees`: boosted trees alone; `mlp`, a neural network, where the service has PyTorch.",
    )
    loss: Literal["squared", "absolute", "poisson"] | None = Field(
        default=None, description="Default: the loss of the messages."
    )
    correction: Literal["auto", "none", "debias", "posterior"] = "auto"
    categorical: list[str] = Field(default=[], max_length=10_000, description="Columns to treat as categories.")
    exclude: list[str] = Field(default=[], max_length=10_000, description="Columns to leave out.")
    name: str | None = Field(default=None, min_length=1, max_length=200, examples=["weekly revenue, ε 1"])
    note: str | None = Field(default=None, max_length=2000, description="For people; shown as it was sent.")


class TrainingRequest(BaseModel):
    """What was asked for."""

    feature_table: str
    messages: list[str]
    digests: list[str] = Field(description="The manifests that `messages` meant when the training was asked for.")
    model: str
    loss: str | None
    correction: str
    categorical: list[str]
    exclude: list[str]


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
