"""Bodies of requests and replies. ε is a decimal string in every reply; requests may also use a JSON number."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, StrictFloat, StrictInt

from shared.errors import InvalidLoss
from shared.losses import MatrixLoss

Decimalish = Annotated[
    str | StrictInt | StrictFloat, Field(description="A decimal number with at most 9 places.", examples=["0.5"])
]


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


def whole(example: dict[str, Any]) -> ConfigDict:
    """With a body that can be sent as it stands: examples of single members do not show which go together."""
    return ConfigDict(json_schema_extra={"examples": [example]})


class PopulationIn(Body):
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

    name: str = Field(max_length=200, examples=["shop-orders"])
    label: str = Field(
        max_length=200, examples=["revenue_eur"], description="Name of the label; an id has one batch per label name."
    )
    domain: str | list[StrictFloat | StrictInt | str] = Field(
        examples=["0:400"], description="LO:HI[:STEP], or the listed values."
    )
    lifetime_epsilon: Decimalish
    lifetime_delta: Decimalish = Field(
        default="0",
        examples=["0.000001"],
        description="Per example, for mechanisms that need a δ, such as medians; 0 (default) allows pure ε only.",
    )
    out_of_domain: Literal["clip", "refuse"] = "clip"
    missing_label: str | StrictInt | StrictFloat | None = Field(
        default=None, description="Label of listed examples without one."
    )
    audiences: list[str] | None = Field(default=None, examples=[["features-party"]])
    unit_column: str | None = Field(
        default=None, max_length=200, examples=["user_id"], description="Whose labels belong together, such as a user."
    )
    max_examples_per_unit: int | None = Field(
        default=None, ge=1, le=1_000_000, description="Of each unit's examples, over the population's lifetime."
    )
    four_eyes: bool = Field(default=False, description="A release is charged only after a second person approved it.")
    retention_days: int | None = Field(
        default=None, ge=0, le=36_500, description="Labels are purged that many days after publication."
    )
    alert_percent: list[int] = Field(
        default=[], examples=[[80, 100]], description="Shares of the lifetime ε at whose crossing an alert is raised."
    )


class UnitOut(BaseModel):
    kind: str
    column: str | None
    max_examples: int | None


class PopulationOut(BaseModel):
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


SEAL_AT = "RFC 3339 time at which the batch seals by itself; labels are taken until then."
TEMPLATE = "Charged and released when the batch has sealed by itself; needs seal_at."


class ScheduleIn(Body):
    """Members that are absent stay as they are; null removes."""

    model_config = whole({"seal_at": "2035-01-31T04:00:00Z", "release": {"epsilon": "1", "mechanism": "one-bit"}})

    seal_at: str | None = Field(default=None, max_length=40, examples=["2030-01-31T04:00:00Z"], description=SEAL_AT)
    release: ReleaseIn | None = Field(default=None, description=TEMPLATE)

    def changes(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if "seal_at" in self.model_fields_set:
            found["seal_at"] = self.seal_at
        if "release" in self.model_fields_set:
            found["release"] = None if self.release is None else self.release.template()
        return found


class BatchIn(ScheduleIn):
    model_config = whole(
        {
            "presence": "public",
            "seal_at": "2035-01-31T04:00:00Z",
            "release": {"epsilon": "1", "mechanism": "rr-on-bins", "prior": "latest"},
        }
    )

    presence: Literal["id-list", "public"] = Field(
        default="id-list",
        description="'id-list': send the ids before any label. 'public': which ids appear is declared public.",
    )


class BatchOut(BaseModel):
    id: str
    population: str
    state: str
    presence: str
    created: str
    sealed: str | None
    examples: int | None
    seal_at: str | None
    release_template: dict[str, Any] | None
    schedule_problem: dict[str, Any] | None
    scheduled_release: str | None
    purged: str | None


class Accepted(BaseModel):
    batch: str
    accepted: int


class Listed(BaseModel):
    batch: str
    examples: int


class LossMatrix(Body):
    labels: list[float]
    outputs: list[float]
    matrix: list[list[float]]

    def loss(self) -> MatrixLoss:
        """Raises InvalidLoss."""
        try:
            arrays = [np.array(part, np.float64) for part in (self.labels, self.outputs, self.matrix)]
        except ValueError:
            raise InvalidLoss("Every row of a loss matrix must have one number per output.") from None
        return MatrixLoss(*arrays)


class ReleaseIn(Body):
    model_config = whole({"epsilon": "1", "mechanism": "one-bit"})

    epsilon: Decimalish
    mechanism: str = Field(default="auto", examples=["auto", "rr-on-bins", "one-bit", "unbiased"])
    loss: str | LossMatrix = Field(default="squared", examples=["squared", "absolute", "poisson"])
    prior: str | dict[str, Any] | None = Field(
        default=None,
        examples=["estimate", "uniform", "latest", {"release": "rel_…"}, {"probabilities": [0.5, 0.5]}],
        description="'latest': that of the population's newest published release, at no cost; estimated if none is.",
    )
    prior_epsilon: Decimalish = "auto"
    prior_method: Literal["project", "clip"] = "project"
    clip: list[str | int | float] | Literal["auto"] | None = Field(
        default=None,
        description="One bit only: public clipping ends, or 'auto': from the prior.",
        examples=[["0", "200"], "auto"],
    )
    unclipped: bool = Field(default=False, description="Additive noise only: outputs may leave the domain.")
    tight: bool = Field(default=False, description="exponential only: scale Δ/ε instead of the paper's 2Δ/ε.")
    clip_quantile: Decimalish | list[Decimalish] | None = Field(
        default=None,
        examples=["0.95", ["0.05", "0.95"]],
        description="Labels are clipped at this quantile (or at LOW:HIGH), bought with clip_epsilon of the total ε.",
    )
    clip_epsilon: Decimalish | None = Field(default=None, examples=["0.05"])
    additional_release: bool = False

    def template(self) -> dict[str, Any]:
        """As it is stored with a batch: decimals as strings."""
        data = self.model_dump(mode="json")
        data |= {"epsilon": str(self.epsilon), "prior_epsilon": str(self.prior_epsilon)}
        bought = self.clip_quantile, self.clip_epsilon
        data["clip_quantile"], data["clip_epsilon"] = (_as_text(given) for given in bought)
        if bought == (None, None):
            del data["clip_quantile"], data["clip_epsilon"]
        return data | {"clip": self.clip if self.clip in (None, "auto") else [str(end) for end in self.clip or ()]}


def _as_text(given: Any) -> Any:
    return [str(one) for one in given] if isinstance(given, list) else None if given is None else str(given)


class ReleasePrior(BaseModel):
    source: str
    release: str | None


class FileOut(BaseModel):
    name: str
    role: str
    bytes: int
    sha256: str


ReleaseState = Literal["accepted", "charged", "drawing", "published", "failed"]


class ReleaseOut(BaseModel):
    id: str
    batch: str
    population: str
    state: ReleaseState
    mechanism: str
    loss: str
    epsilon: dict[str, str]
    prior: ReleasePrior
    clip_quantiles: list[str] | None = Field(description="Null where no clipping bounds are bought.")
    created: str
    published: str | None
    manifest_sha256: str | None
    files: list[FileOut]
    problem: dict[str, Any] | None
    requested_by: str | None
    approved_by: str | None
    approved: str | None


class BudgetOut(BaseModel):
    population: str
    name: str
    unit: UnitOut
    epsilon_lifetime: str
    epsilon_spent_at_most: str
    epsilon_per_unit_at_most: str | None = Field(description="Of all examples of a unit; null where no unit is bound.")
    delta_lifetime: str
    delta_spent_at_most: str
    delta_per_unit_at_most: str | None = Field(description="Of all examples of a unit; null where no unit is bound.")
    alert_percent: list[int]
    batches: list[dict[str, Any]]


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
    rank_error: float = Field(description="Labels by which a bound misses its quantile, exceeded once in 20 times.")
    note: str | None = Field(description="Set where that is more than lie beyond the quantile.")


class PlanOut(BaseModel):
    population: str
    n: int
    loss: str
    prior: str
    clip: PlanClip | None = Field(description="Null where no clipping bounds are bought.")
    mechanisms: list[dict[str, Any]]
    left_out: str | None = Field(description="Which mechanisms are not in the list because they take long, and why.")
    recommendations: list[Recommendation]
    model_error_rule: str


class Health(BaseModel):
    status: str
