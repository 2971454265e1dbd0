"""Bodies of the REST interface."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr

KEY_HELP = "Your key at the labels party; by default the configured one, where the service's operator listed the URL."
Cell = str | int | float | bool | None


class In(BaseModel):
    model_config = ConfigDict(extra="forbid")


class TablePath(In):
    """A feature table below the service's data folder."""

    path: str = Field(min_length=1, max_length=1000, examples=["2024-06/impressions.parquet"])
    id_column: str = Field(min_length=1, max_length=200, examples=["click_id"])


class ColumnOut(BaseModel):
    name: str
    type: str


class TableOut(BaseModel):
    id: str = Field(examples=["ft_0123456789abcdef"])
    name: str
    id_column: str
    uploaded: bool
    rows: int
    columns: list[ColumnOut]
    created: str


class IdListIn(In):
    """Where to declare the example ids of an open batch. The key is used for this call and not kept."""

    url: str = Field(max_length=2000, examples=["http://127.0.0.1:8001"])
    batch: str = Field(min_length=1, max_length=400, examples=["bat_0123456789abcdef"])
    api_key: SecretStr | None = Field(default=None, description=KEY_HELP)


class IdListOut(BaseModel):
    batch: str
    ids: int
    answer: dict[str, Any]


class PullIn(In):
    """A published release to fetch. The key is used for this call and not kept."""

    url: str = Field(max_length=2000, examples=["http://127.0.0.1:8001"])
    release: str = Field(min_length=1, max_length=400, examples=["rel_0123456789abcdef"])
    api_key: SecretStr | None = Field(default=None, description=KEY_HELP)


class AcceptedOut(BaseModel):
    already_accepted: bool
    message: dict[str, Any]


class MessageOut(BaseModel):
    release: str
    digest: str
    key_id: str
    population: str
    batch: str
    mechanism: str
    n: int
    epsilon: dict[str, str]
    accepted: str


class TrainingIn(In):
    feature_table: str = Field(max_length=40, examples=["ft_0123456789abcdef"])
    messages: list[str] = Field(
        min_length=1,
        max_length=1000,
        examples=[["rel_0123456789abcdef"]],
        description="Release ids; the digest where two labels parties chose the same id.",
    )
    model: Literal["gbdt", "linear"] = "gbdt"
    loss: Literal["squared", "absolute", "poisson"] | None = Field(
        default=None, description="Default: the loss of the messages."
    )
    correction: Literal["auto", "none", "debias"] = "auto"
    categorical: list[str] = Field(default=[], max_length=10_000)
    exclude: list[str] = Field(default=[], max_length=10_000)


class TrainingOut(BaseModel):
    id: str = Field(examples=["tr_0123456789abcdef"])
    state: Literal["accepted", "running", "succeeded", "failed"]
    request: dict[str, Any]
    step: str
    share: float = Field(description="Progress between 0 and 1.")
    attempts: int
    model: str | None
    problem: dict[str, Any] | None
    created: str
    finished: str | None


class ModelOut(BaseModel):
    id: str = Field(examples=["m_0123456789abcdef"])
    training: str
    kind: str
    loss: str
    releases: list[str]
    rows: int
    created: str


class CardOut(BaseModel):
    id: str
    card: dict[str, Any]


class PredictIn(In):
    rows: list[dict[str, Cell]] = Field(
        min_length=1, max_length=100_000, examples=[[{"age": 41, "country": "UK"}, {"age": None, "country": "FR"}]]
    )


class PredictOut(BaseModel):
    model: str
    predictions: list[float]


class Health(BaseModel):
    status: str
