"""Replies of the services, each declared once: for REST, pages and commands. They are plain dictionaries at run time,
so nothing is converted. ε and δ are decimal strings."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict  # that of the standard library is read from Python 3.12 on

CLOSED = with_config(ConfigDict(extra="ignore"))  # also inside replies with more members


@CLOSED
class UnitOut(TypedDict):
    """Privacy unit."""

    kind: str
    column: str | None
    max_examples: int | None


@with_config(ConfigDict(extra="allow"))  # further members of the population's schema
class PopulationOut(TypedDict):
    """As it was declared."""

    id: str
    name: str
    label: str
    domain: dict[str, Any]
    lifetime_epsilon: str
    lifetime_delta: str
    out_of_domain: str
    missing_label: str | None
    audiences: list[str]
    unit: UnitOut
    created: str
    four_eyes: bool
    retention_days: int | None
    alert_percent: list[int]
    ruled_out: Annotated[
        list[str], Field(description="What can never be done with it, because its rules cannot change.")
    ]


class BatchOut(TypedDict):
    """Batch of a population."""

    id: str
    population: str
    state: str
    presence: str
    id_prefix: Annotated[str | None, Field(description="How every id of the batch begins; null: in any way.")]
    created: str
    sealed: str | None
    examples: int | None
    examples_beyond: Annotated[
        int | None,
        Field(
            description="Of a sealed batch: examples beyond the most that one unit may have, which count as the "
            "missing label. Null where units have no bound."
        ),
    ]
    seal_at: str | None
    release_template: dict[str, Any] | None
    schedule_problem: dict[str, Any] | None
    scheduled_release: str | None
    purged: str | None
    closed: Annotated[
        str | None,
        Field(
            description="Since when keys of the role ingest are refused: its seal was asked for, and may have failed. "
            "A new `seal_at` lets them send again."
        ),
    ]
    set_aside: Annotated[
        int | None,
        Field(
            description="Uploads that wait for the owner's decision; the batch does not seal before. To an auditor "
            "null, as all that tells of labels."
        ),
    ]


@CLOSED
class ReceiptOfWork(TypedDict):
    """Receipt of an audience."""

    audience: str
    position: int
    key_id: str
    digest: str
    day: Annotated[str, Field(description="On which it came.")]


@CLOSED
class FetchOfWork(TypedDict):
    """Fetches by one key of an audience."""

    audience: str
    first: Annotated[str, Field(description="The day of the first fetch with this key.")]
    last: str
    key: str
    key_name: str | None


@with_config(ConfigDict(extra="allow"))
class GivenOut(TypedDict):
    """A release or an answer; of the digests the one of its family is there."""

    id: str
    family: Literal["release", "answer"]
    kind: str
    state: str
    batch: str
    population: str
    population_name: str
    label: str
    examples: int
    audiences: list[str]
    epsilon: str
    delta: str
    created: Annotated[str, Field(description="When it was asked for.")]
    requested_by: str
    requested_by_name: str | None
    approved: str | None
    approved_by: str | None
    approved_by_name: str | None
    published: str | None
    purged: Annotated[str | None, Field(description="When the labels of its batch were deleted here.")]
    receipts: list[ReceiptOfWork]
    fetched: Annotated[
        list[FetchOfWork], Field(description="By which keys of an audience; receipts prove what arrived.")
    ]


class ListedBatch(BatchOut):
    """Batch, in a list, with its spent and remaining budget."""

    population_name: str
    label: str
    releases: Annotated[int, Field(description="Published ones.")]
    answers: int
    epsilon_spent: str
    epsilon_left: str
    delta_spent: str
    delta_left: str
    purge_due: Annotated[str | None, Field(description="The day on which its labels are to be deleted.")]


class ListedWork(TypedDict):
    """Published release or answer, in a list."""

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


class ListedRelease(ListedWork):
    """Published release, in a list."""

    manifest_sha256: str


class ListedAnswer(ListedWork):
    """Published answer, in a list."""

    sha256: Annotated[str, Field(description="Of the payload of the signed document.")]


class BudgetOut(TypedDict):
    """Budget of a population: lifetime and spent ε and δ."""

    population: str
    name: str
    unit: UnitOut
    epsilon_lifetime: str
    epsilon_spent_at_most: str
    epsilon_per_unit_at_most: Annotated[
        str | None, Field(description="Of all examples of a unit; null where no unit is bound.")
    ]
    epsilon_per_unit_lifetime: Annotated[str | None, Field(description="The most that they can ever spend.")]
    delta_lifetime: str
    delta_spent_at_most: str
    delta_per_unit_at_most: Annotated[
        str | None, Field(description="Of all examples of a unit; null where no unit is bound.")
    ]
    alert_percent: list[int]
    batches: list[dict[str, Any]]


class ColumnOut(TypedDict):
    """Column of a feature table."""

    name: str
    type: str


class TableOut(TypedDict):
    """Feature table."""

    id: Annotated[str, Field(examples=["ft_0123456789abcdef"])]
    name: str
    id_column: str
    uploaded: bool
    rows: int
    columns: list[ColumnOut]
    created: str
