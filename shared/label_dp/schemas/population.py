"""A population and its batches, as an owner declares them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, StrictFloat, StrictInt

from label_dp.schemas.base import EXPERT, NO_OPTION, SINGULAR, Ask, Word, whole
from label_dp.schemas.events import EventRule
from label_dp.schemas.numbers import Decimalish
from label_dp.schemas.release import Release

OF_WHAT = "a command has other names beside it"
BY_REST = Word(NO_OPTION, "a command seals a file of labels at once")


class Population(Ask):
    """One label column of one body of people: its public domain, its rules, its audiences and its lifetime ε."""

    model_config = whole(
        {
            "name": "shop-orders",
            "label": "revenue_eur",
            "domain": "0:400",
            "lifetime_epsilon": "3",
            "missing_label": 0,
            "audiences": ["features-party"],
            "unit_column": "user_id",
            "max_examples_per_unit": 5,
            "retention_days": 30,
            "alert_percent": [80, 100],
        }
    )

    name: Annotated[str, Word("--population", OF_WHAT)] = Field(
        max_length=200, examples=["shop-orders"], description="Name of the population; a command makes it on first use."
    )
    label: Annotated[str, Word("--label-column", "it is a column of the file", help="Its column with labels.")] = Field(
        max_length=200, examples=["revenue_eur"], description="Name of the label; an id has one batch per label name."
    )
    domain: Annotated[
        str | Annotated[list[StrictFloat | StrictInt | str], Field(max_length=4096)],  # as a manifest holds
        Word(
            help="LO:HI[:STEP] (both ends included), binary (0 and 1), names of classes (books,garden,toys), or a file "
            "with a column 'label'."
        ),
    ] = Field(
        examples=["0:400", "binary", ["books", "garden", "toys"]],
        description="LO:HI[:STEP], binary (0 and 1), the listed values, or the names of up to 100 classes.",
    )
    lifetime_epsilon: Annotated[Decimalish, Word("--budget", "the usual word of who spends it")] = Field(
        description="Lifetime ε per example of the population."
    )
    lifetime_delta: Annotated[Decimalish, Word("--budget-delta", "it goes with --budget", expert=True)] = Field(
        default="0",
        examples=["0.000001"],
        description="Lifetime δ per example, for answers that need a δ, such as medians; 0 allows pure ε only.",
    )
    audiences: Annotated[list[str] | None, Word("--audience", SINGULAR)] = Field(
        default=None, examples=[["features-party"]], description="Who may read what is made of it: features-party."
    )
    missing_label: str | StrictInt | StrictFloat | None = Field(
        default=None, description="Label of listed examples that have none."
    )
    unit_column: str | None = Field(
        default=None,
        max_length=200,
        examples=["user_id"],
        description="Column with the person (or other unit) behind each example.",
    )
    max_examples_per_unit: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="Examples of a unit that keep their label over the population's lifetime; others count as missing.",
    )
    people: str | None = Field(
        default=None,
        max_length=64,
        examples=["shop-customers"],
        description="Body of people whose label this is, declared before: one lifetime ε over all its populations.",
    )
    out_of_domain: Literal["clip", "refuse"] | None = Field(
        default=None,
        description="What becomes of labels outside the domain: clip by default, and refuse, the only rule, where it "
        "has names.",
    )
    events: Annotated[EventRule | None, Word(NO_OPTION, "a command reads it from the file that --rule names")] = Field(
        default=None,
        description="Rule by which conversion events become labels; they then come by POST /v1/events or from a file.",
    )
    four_eyes: Annotated[bool, EXPERT] = Field(
        default=False, description="A second person must approve each release before it is charged."
    )
    retention_days: Annotated[int | None, EXPERT] = Field(
        default=None, ge=0, le=36_500, description="Labels are purged that many days after publication."
    )
    alert_percent: Annotated[list[int], EXPERT] = Field(
        default=[], examples=[[80, 100]], description="Shares of the lifetime ε at whose crossing an alert is raised."
    )


class People(Ask):
    """A body of people, and the most that all label columns (populations) of it may reveal of one person."""

    model_config = whole({"name": "shop-customers", "lifetime_epsilon": "6", "unit_column": "user_id"})

    name: str = Field(
        max_length=64, examples=["shop-customers"], description="Name of the body; populations join it by `people`."
    )
    lifetime_epsilon: Annotated[Decimalish, Word("--budget", "the usual word of who spends it")] = Field(
        description="Lifetime ε of one person over all populations of the body."
    )
    lifetime_delta: Annotated[Decimalish, Word("--budget-delta", "it goes with --budget")] = Field(
        default="0", examples=["0.000001"], description="Lifetime δ of one person over all populations of the body."
    )
    unit_column: str | None = Field(
        default=None,
        max_length=200,
        examples=["user_id"],
        description="Column with the person behind each example, which every population of the body then names too; "
        "without it each example is a person of its own.",
    )


class Schedule(Ask):
    """When an open batch seals by itself, and what it then releases. What is absent stays; null removes."""

    model_config = whole({"seal_at": "2035-01-31T04:00:00Z", "release": {"epsilon": "1", "mechanism": "one-bit"}})

    seal_at: Annotated[str | None, BY_REST] = Field(
        default=None,
        max_length=40,
        examples=["2030-01-31T04:00:00Z"],
        description="RFC 3339 time at which the batch seals by itself; labels are taken until then.",
    )
    release: Annotated[Release | None, BY_REST] = Field(
        default=None, description="Charged and released when the batch has sealed by itself; needs seal_at."
    )

    def changes(self) -> dict[str, Any]:
        """Return the given members as they are stored; absent members of the template are left out."""
        release = None if self.release is None else self.release.model_dump(mode="json", exclude_none=True)
        values = {"seal_at": self.seal_at, "release": release}
        return {name: value for name, value in values.items() if name in self.model_fields_set}


class Batch(Schedule):
    """A set of examples of a population, open for labels until it is sealed."""

    model_config = whole(
        {
            "presence": "public",
            "seal_at": "2035-01-31T04:00:00Z",
            "release": {"epsilon": "1", "mechanism": "rr-on-bins", "prior": "latest"},
        }
    )

    presence: Annotated[Literal["id-list", "public"], BY_REST] = Field(
        default="id-list",
        description="'id-list': send the ids before any label. 'public': which ids appear is declared public.",
    )
    id_prefix: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        examples=["{day}/", "2030-01-31/eu/"],
        description="How every id of the batch begins, declared public; {day} stands for the UTC day on which it is "
        "opened. Batches whose prefixes exclude each other need not be compared when they are sealed.",
    )
