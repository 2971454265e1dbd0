"""Bodies of the REST interface: feature tables, messages and answers."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from shared.schemas.base import Ask, whole

KEY_HELP = "Your key at the labels party; by default the configured one, where the service's operator listed the URL."


class TablePath(Ask):
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


class IdListIn(Ask):
    """Where to declare the example ids of an open batch. The key is used for this call and not kept."""

    model_config = whole({"url": "http://127.0.0.1:8001", "batch": "bat_0123456789abcdef"})

    url: str = Field(max_length=2000, examples=["http://127.0.0.1:8001"])
    batch: str = Field(min_length=1, max_length=400, examples=["bat_0123456789abcdef"])
    api_key: SecretStr | None = Field(default=None, description=KEY_HELP)


class IdListOut(BaseModel):
    batch: str
    ids: int
    answer: dict[str, Any] = Field(description="What the labels party answered.")


class PullIn(Ask):
    """A published release to fetch. The key is used for this call and not kept."""

    url: str = Field(max_length=2000, examples=["http://127.0.0.1:8001"])
    release: str = Field(min_length=1, max_length=400, examples=["rel_0123456789abcdef"])
    api_key: SecretStr | None = Field(default=None, description=KEY_HELP)


class AnswerPullIn(Ask):
    """A published answer to fetch. The key is used for this call and not kept."""

    url: str = Field(max_length=2000, examples=["http://127.0.0.1:8001"])
    answer: str = Field(min_length=1, max_length=400, examples=["ans_0123456789abcdef"])
    api_key: SecretStr | None = Field(default=None, description=KEY_HELP)
    wait: float = Field(
        default=0.0, ge=0, le=30, description="Seconds to wait for its publication before it is refused (409)."
    )


class EpsilonOut(BaseModel):
    """The exact split, as decimal strings."""

    clip: str = Field(examples=["0"])
    prior: str = Field(examples=["0.02"])
    randomize: str = Field(examples=["0.98"])
    total: str = Field(examples=["1"])
    delta: str = Field(examples=["0"])


class UnitOut(BaseModel):
    """What ε protects: the label of one example, or all labels of one unit."""

    kind: Literal["example", "unit"]
    column: str | None
    max_examples: int | None


class MessageSummary(BaseModel):
    model_config = ConfigDict(extra="allow")

    release: str = Field(examples=["rel_0123456789abcdef"])
    batch: str
    population: str
    population_name: str
    label: str
    audiences: list[str]
    n: int
    domain: str = Field(examples=["0:400:1"])
    clipping: dict[str, Any] | None = Field(description="Bounds that were bought with ε_clip; null where none were.")
    mechanism: str
    channel: str
    outputs: int
    unbiased: bool
    loss: str
    epsilon: EpsilonOut
    epsilon_spent: str
    epsilon_lifetime: str
    unit: UnitOut
    created: str
    key_id: str
    manifest_digest: str


class AcceptedOut(BaseModel):
    already_accepted: bool
    message: MessageSummary


class MessageOut(BaseModel):
    release: str
    digest: str
    key_id: str
    population: str
    batch: str
    mechanism: str
    n: int
    epsilon: EpsilonOut
    accepted: str


class AnswerSummary(BaseModel):
    answer: str = Field(examples=["ans_0123456789abcdef"])
    kind: str = Field(examples=["calibration"])
    batch: str
    population: str
    population_name: str
    label: str
    audiences: list[str]
    n: int
    domain: str = Field(examples=["0:400:1"])
    parameters: dict[str, Any]
    mechanism: str
    result: dict[str, Any]
    epsilon: EpsilonOut
    epsilon_spent: str
    epsilon_lifetime: str
    unit: UnitOut
    adjacency: str
    created: str
    key_id: str
    document_digest: str


class AcceptedAnswerOut(BaseModel):
    already_accepted: bool
    answer: AnswerSummary


class AnswerOut(BaseModel):
    answer: str
    kind: str
    digest: str
    key_id: str
    population: str
    population_name: str
    batch: str
    n: int
    epsilon: EpsilonOut
    accepted: str
