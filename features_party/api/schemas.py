"""Bodies of the REST interface: feature tables, messages and answers."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from label_dp.schemas.base import Ask, whole

KEY_HELP = "Your key at the labels party; by default the configured one, where the service's operator listed the URL."
CLIPPING = "Bounds that were bought with ε_clip; null where none were."


class TablePath(Ask):
    """A feature table below the service's data folder."""

    path: str = Field(min_length=1, max_length=1000, examples=["2024-06/impressions.parquet"])
    id_column: str = Field(min_length=1, max_length=200, examples=["click_id"])


class AtLabelsParty(Ask):
    """A labels party, and our key there for this one call."""

    url: str = Field(max_length=2000, examples=["http://127.0.0.1:8001"])
    api_key: SecretStr | None = Field(default=None, description=KEY_HELP)


class IdListIn(AtLabelsParty):
    """Where to declare the example ids of an open batch. The key is used for this call and not kept."""

    model_config = whole({"url": "http://127.0.0.1:8001", "batch": "bat_0123456789abcdef"})

    batch: str = Field(min_length=1, max_length=400, examples=["bat_0123456789abcdef"])
    time_column: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        description="The table's column with the time of each example, for labels that count events within days of it.",
    )


class IdListOut(BaseModel):
    """Declared ids of a batch."""

    batch: str
    ids: int
    answer: dict[str, Any] = Field(description="What the labels party answered.")


class PullIn(AtLabelsParty):
    """A published release to fetch. The key is used for this call and not kept."""

    release: str = Field(min_length=1, max_length=400, examples=["rel_0123456789abcdef"])


class AnswerPullIn(AtLabelsParty):
    """A published answer to fetch. The key is used for this call and not kept."""

    answer: str = Field(min_length=1, max_length=400, examples=["ans_0123456789abcdef"])
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


class Described(BaseModel):
    """What is said of messages and answers alike."""

    batch: str
    population: str
    population_name: str
    label: str
    key_id: str
    created: str
    n: int
    epsilon: EpsilonOut
    epsilon_spent: str = Field(description="Per example, by the labels party's ledger when it signed this.")
    epsilon_lifetime: str


class Summary(Described):
    """Public facts of a message or an answer."""

    audiences: list[str]
    domain: str = Field(examples=["0:400:1"])
    mechanism: str
    unit: UnitOut


class MessageSummary(Summary):
    """Public facts of a message."""

    model_config = ConfigDict(extra="allow")

    release: str = Field(examples=["rel_0123456789abcdef"])
    clipping: dict[str, Any] | None = Field(description=CLIPPING)
    channel: str
    outputs: int
    unbiased: bool
    loss: str
    manifest_digest: str


class AcceptedOut(BaseModel):
    """Accepted message."""

    already_accepted: bool
    message: MessageSummary


class AcceptanceOut(BaseModel):
    """What was accepted, as listings show it."""

    digest: str
    key_id: str
    population: str
    batch: str
    n: int
    epsilon: EpsilonOut
    accepted: str


class MessageOut(AcceptanceOut):
    """Accepted message, in a list."""

    release: str
    mechanism: str


class AnswerSummary(Summary):
    """Public facts of an answer."""

    answer: str = Field(examples=["ans_0123456789abcdef"])
    kind: str = Field(examples=["calibration"])
    parameters: dict[str, Any]
    result: dict[str, Any]
    adjacency: str
    document_digest: str


class AcceptedAnswerOut(BaseModel):
    """Accepted answer."""

    already_accepted: bool
    answer: AnswerSummary


class AnswerOut(AcceptanceOut):
    """Accepted answer, in a list."""

    answer: str
    kind: str
    population_name: str
