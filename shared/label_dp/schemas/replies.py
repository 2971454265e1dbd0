"""Replies of the services, each declared once: for REST, pages and commands. They are plain dictionaries at run time,
so nothing is converted. ε and δ are decimal strings."""

from __future__ import annotations

from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,  # that of the standard library is read from Python 3.12 on
)

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

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


@CLOSED
class PeopleOut(TypedDict):
    """A body of people, as it was declared."""

    name: str
    lifetime_epsilon: str
    lifetime_delta: str
    unit_column: str | None
    created: str


@CLOSED
class PeopleLeft(TypedDict):
    """Of one person, over all label columns of its body; batches of the same ids are added up one by one."""

    people: str
    person: Annotated[str, Field(description="The unit column, or example.")]
    epsilon_lifetime: str
    epsilon_spent_at_most: str
    epsilon_left: Annotated[str, Field(description="Of a plan or a population: for a batch, or a new one.")]
    delta_lifetime: str
    delta_spent_at_most: str


class PeopleBudgetOut(PeopleLeft):
    """Budget of a body of people."""

    populations: list[dict[str, Any]]


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
    people: Annotated[
        PeopleLeft | None,
        Field(description="What a new batch may be charged over all label columns; null without a body of people."),
    ]
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


class SetAsideOut(TypedDict):
    id: str
    batch: str
    sent_by: str
    sent_by_name: NotRequired[Annotated[str | None, Field(None, description="Of the API key, if it has one.")]]
    received: str
    rows: int
    decision: Annotated[str | None, Field(description="drop, replace, or repeat: its sender sent the same before.")]
    decided: str | None
    decided_by: str | None
    decided_by_name: NotRequired[Annotated[str | None, Field(None)]]
    examples: NotRequired[
        Annotated[list[str], Field([], description="While it waits, some of its ids that have a record.")]
    ]


class ErasureAsked(TypedDict):
    population: str
    examples: Annotated[int, Field(description="Asked for by id; of units, those that were found.")]
    units: NotRequired[Annotated[int, Field(0)]]
    requested: str
    unmatched: Annotated[int, Field(description="Ids, or units, of which no batch of the population has an example.")]
    unmatched_ids: NotRequired[Annotated[list[str], Field([], description="Some of them.")]]
    unmatched_units: NotRequired[Annotated[list[str], Field([], description="Some of them.")]]


class Recall(TypedDict):
    work: str
    published: str


class ErasureOut(TypedDict):
    """`batch`, `effect` and what cannot be recalled follow from which batch the id is in, which is not secret; whether
    the example had a label is never said."""

    id: str
    state: str
    effect: str | None
    batch: str | None
    requested: str
    requested_by: str
    requested_by_name: str | None
    applied: str | None
    cannot_be_recalled: list[Recall]
    audiences: list[str]


class WebhookOut(TypedDict):
    id: str
    population: str | None
    url: str
    events: list[str]
    created: str
    created_by: str
    created_by_name: NotRequired[Annotated[str | None, Field(None)]]


class NewWebhookOut(WebhookOut):
    secret: Annotated[str, Field(description="whsec_…, for checking signatures; it is shown here only.")]


class DeliveryOut(TypedDict):
    id: str
    event: str
    state: str
    attempts: int
    created: str
    delivered: str | None
    failure: str | None
    body: dict[str, Any]


class ReceiptState(TypedDict):
    key_id: str
    labels_key_id: Annotated[str, Field(description="The key of ours that the list is for.")]
    last: Annotated[int, Field(description="The highest position that we keep; 0 for none.")]
    digest: str | None
    missing: Annotated[list[int], Field(description="Positions before it that we do not keep; at most 1,000 of them.")]


class SigningKeysOut(TypedDict):
    key_id: Annotated[str, Field(description="The key that signs now.")]
    public_key: Annotated[str, Field(description="Its 32 bytes in base64.")]
    hand_overs: Annotated[list[dict[str, Any]], Field(description="Signed, from our first key to this one.")]


class AllowanceOut(TypedDict):
    batch: str
    kind: str
    epsilon: str
    epsilon_used: str
    epsilon_left: str


class Recommendation(TypedDict):
    epsilon: str
    epsilon_left: Annotated[
        str | None, Field(description="Of the lifetime ε afterwards; null where it is not allowed.")
    ]
    mechanism: Annotated[str, Field(description="What auto would choose under the prior of this plan.")]
    options: dict[str, Any]
    epsilon_split: dict[str, str]
    why: str


class PlanClip(TypedDict):
    quantiles: list[str]
    epsilon: str
    domain: Annotated[
        dict[str, Any], Field(description="Where the prior of this plan would put the bounds; the real ones vary.")
    ]
    rank_error: Annotated[
        float,
        Field(
            description="Labels by which a bound misses its quantile at most, 19 times in 20, beside those between two "
            "candidates."
        ),
    ]
    note: Annotated[str | None, Field(description="Set where that is more than lie beyond the quantile.")]


class PlanRate(TypedDict):
    rate: str
    rows_without_noise: Annotated[
        float, Field(description="Rows without noise that tell as much of the rate (Fisher).")
    ]
    rarer_without_noise: Annotated[float, Field(description="Of these, those that would have the rarer value.")]
    standard_error: Annotated[
        float | None, Field(description="Of the overall rate, from the message alone; null: no bound.")
    ]
    too_few: Annotated[bool, Field(description="Fewer of the rarer value than the 30 or so that a model needs.")]


class PlanWorth(TypedDict):
    epsilon: str
    value: Annotated[str, Field(description="The higher value, whose share a rate is.")]
    flip_probability: float
    rates: list[PlanRate]
    prior_epsilon: Annotated[str, Field(description="What a prior costs; where none is bought, a hundredth of ε.")]
    prior_standard_error: Annotated[float | None, Field(description="Of the overall rate, from that prior.")]
    warnings: list[str]


class PlanTwoValues(TypedDict):
    rates: Annotated[str, Field(description="Where the rates come from: assumed by the owner, or examples.")]
    worth: list[PlanWorth]


class PlanOut(TypedDict):
    population: str
    n: int
    loss: str
    prior: str
    clip: Annotated[PlanClip | None, Field(description="Null where no clipping bounds are bought.")]
    mechanisms: list[dict[str, Any]]
    left_out: Annotated[
        str | None, Field(description="Which mechanisms are not in the list because they take long, and why.")
    ]
    unused: Annotated[
        list[str], Field(description="Of each mechanism that charges more for labels than its channel proves.")
    ]
    recommendations: list[Recommendation]
    two_values: Annotated[
        PlanTwoValues | None, Field(description="What can be learnt; null for domains of other sizes.")
    ]
    model_error_rule: str
    sums_below: Annotated[
        float | None,
        Field(
            description="ε below which a model of sums by public codes should err less than one of a message, by a "
            "rule of thumb; such codes are features that leave the features party. Null for classes."
        ),
    ]
    events: Annotated[str | None, Field(description="Rule by which events become labels, in words; null without one.")]
    people: Annotated[
        PeopleLeft | None, Field(description="What is left over all label columns; null without a body of people.")
    ]
