"""Bodies of the REST interface: models, their cards, comparisons and predictions."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from features_party.api.schemas import CLIPPING, AtLabelsParty, Described, EpsilonOut, UnitOut
from features_party.tables.unmatched import Counts
from features_party.training.capacity import Capacity
from features_party.training.column_cells import Holds, Kind
from features_party.training.intervals import Interval
from features_party.training.model import MOST_QUANTILES
from features_party.training.probabilities import Calibration as ProbabilityCalibration
from features_party.training.probabilities import Group as ReliabilityGroup
from label_dp.schemas.base import Ask, whole
from label_dp.schemas.calibration import Calibration

MOST_ROWS = 100_000
Cell = str | int | Annotated[float, Field(allow_inf_nan=False)] | bool | None


class EpsilonOf(BaseModel):
    """ε per example of a population."""

    name: str = Field(description="A population.")
    epsilon_per_example: str


class ModelSummary(BaseModel):
    """Summary of a model."""

    label: str
    epsilon: list[EpsilonOf]
    explained: float | None = Field(
        description="Estimated share of the labels' variance, without noise, by which its squared error is below that "
        "of a constant; null: not estimated."
    )


class ModelOut(BaseModel):
    """Model, in a list."""

    id: str = Field(examples=["m_0123456789abcdef"])
    name: str | None = Field(description="That of its training.")
    training: str
    kind: str
    loss: str
    releases: list[str]
    rows: int
    created: str
    aliases: list[str] = Field(description="Names that persons gave it, such as `champion`; each names one model.")
    calibration: str | None = Field(
        description="The answer whose map its predictions go through; null: they are the model's own."
    )
    summary: ModelSummary | None = Field(description="What tells it from others; null: of an earlier version.")


class _Open(BaseModel):
    """As it lies in the model's folder; a later version may have more members."""

    model_config = ConfigDict(extra="allow")


class CorrectionOut(_Open):
    """Correction of a message's labels for training."""

    applied: str = Field(examples=["debias"])
    why: str
    noise_variance: float
    unbiased: bool
    residual_bias: float = Field(description="Root mean square of E[corrected | label] − label over the prior.")
    rho: float | None = Field(description="Weight of bias against noise, less 1; null: not weighed.")


class CardUnit(_Open, UnitOut):
    """Privacy unit of a message, with ε per unit."""

    epsilon_per_unit: str | None


class CardMessage(_Open, Described):
    """Message that a model was trained on."""

    release: str
    manifest_digest: str
    mechanism: str
    loss: str
    unit: CardUnit
    clipping: dict[str, Any] | None = Field(description=CLIPPING)
    correction: CorrectionOut


class PopulationUnit(BaseModel):
    """Privacy unit of a population, with ε per unit."""

    column: str
    max_examples: int
    epsilon_per_unit: str


class CardEpsilon(_Open):
    """ε of one population's examples by all messages of the model, by `epsilon_rule`."""

    population: str
    name: str
    label: str
    key_id: str
    batches: int
    releases: int
    answers: int
    epsilon_per_example: str = Field(examples=["1.5"])
    delta_per_example: str
    unit: PopulationUnit | None


class CardCalibration(_Open):
    """The signed answer whose map every prediction goes through."""

    answer: str
    batch: str
    population: str
    document_digest: str
    calibrated: str
    loss: str
    shape: str
    pieces: int
    epsilon: EpsilonOut
    epsilon_spent: str
    epsilon_lifetime: str


class MemberOut(BaseModel):
    """A model of an ensemble, which adds `weight` times its difference from the mean of the labels."""

    name: str = Field(examples=["trees"])
    weight: float
    trees: int | None = Field(description="How many it has; null: it is of another kind.")


class FeatureOut(_Open):
    """Feature of a model."""

    name: str
    kind: str
    values: int | None = Field(default=None, description="Of a category: how many.")


class StatisticOut(_Open):
    """A number that the model also sees, made of a large category without any label."""

    name: str = Field(examples=["shop: rows", "price above that of its shop"])
    column: str = Field(description="The category.")


class CrossingOut(_Open):
    """The rows that share a value of a number, or of two columns, as a further category."""

    name: str = Field(examples=["price", "product × price"])
    groups: int


OF_TWO = "Where labels have two values, of which the larger one is positive."


class EstimateOut(_Open):
    """Mean squared error over the true labels below that of the constant, with its 95 % interval, from privatized
    labels of rows that the judged models did not see; `mse` itself where the channel identifies it."""

    mse_below_constant: float
    low: float
    high: float
    rows: int
    mse: Interval | None
    constant_mse: Interval | None
    mse_why: str = Field(description="Why there is no `mse`, or how far it is identified.")
    reliability: list[ReliabilityGroup] = Field(
        default=[], description="The mean label by groups of predictions; of two values `calibration` has them."
    )
    positive_rate: Interval | None = Field(default=None, description=OF_TWO)
    brier: Interval | None = Field(default=None, description=OF_TWO)
    log_loss: Interval | None = Field(default=None, description=OF_TWO)
    constant_log_loss: Interval | None = Field(default=None, description=OF_TWO)
    auc: Interval | None = Field(default=None, description=OF_TWO)
    auc_why: str | None = Field(default=None, description="Why there is no `auc`, where labels have two values.")
    calibration: ProbabilityCalibration | None = Field(default=None, description=OF_TWO)


class ClassEstimateOut(_Open):
    """Of probabilities of classes, over the true labels, with 95 % intervals, from privatized labels of rows that the
    judged models did not see. The constant is the class shares."""

    rows: int
    accuracy: Interval
    constant_accuracy: Interval
    log_loss: Interval
    constant_log_loss: Interval
    log_loss_below_constant: Interval
    macro_auc: Interval | None = Field(description="The mean over classes of the AUC of one against the rest.")
    macro_auc_why: str
    macro_auc_classes: int = Field(description="How many classes are frequent enough to count in it.")


class ReportOut(_Open, Counts):
    """Report of a training."""

    rows: int
    corrected_mean: float
    noise_variance: float
    label_variance: float
    error_estimate: EstimateOut | ClassEstimateOut | None
    error_estimate_why: str


class DomainOut(_Open):
    """The label domain as in the manifest: a range, listed values, or names of classes."""

    range: str | None = Field(default=None, examples=["0:400:1"])
    values: list[str | int | float] | None = None
    names: list[str] | None = None


class Card(_Open):
    """Card of a model: its origin, privacy cost and quality."""

    format: str
    version: int
    model_sha256: str
    created: str
    seconds: float = Field(description="How long the training took.")
    kind: str
    loss: str
    objective: str
    label: str
    domain: DomainOut
    domain_text: str = Field(examples=["0:400:1"])
    classes: list[str] | None = Field(default=None, description="What the model predicts probabilities of; null: none.")
    messages: list[CardMessage]
    answers: list[dict[str, Any]] = Field(
        default=[], description="Of a model of sums, which has no messages: the answer that it was trained on."
    )
    epsilon: list[CardEpsilon]
    epsilon_rule: str
    calibration: CardCalibration | None = Field(description="null: predictions are the model's own.")
    capacity: Capacity
    trees: int | None = Field(description="All members together; null: the model has none.")
    members: list[MemberOut] = Field(description="Of an ensemble; empty for other models.")
    features: list[FeatureOut]
    statistics: list[StatisticOut] = Field(description="Made of large categories; requests lack them.")
    crossings: list[CrossingOut] = Field(description="Made of columns; requests lack them.")
    importance: dict[str, float]
    report: ReportOut
    notes: list[str]


class CalibratedOut(BaseModel):
    """New model with a calibration."""

    id: str = Field(description="The new model, whose predictions go through the map.")
    model: str = Field(description="The same.")
    answer: str
    document_digest: str


class AskCalibrationIn(AtLabelsParty, Calibration):
    """Which calibration to ask of which labels party. The key is used for this call and not kept."""

    model_config = ConfigDict(strict=True) | whole(
        {
            "feature_table": "ft_0123456789abcdef",
            "url": "http://127.0.0.1:8001",
            "batch": "bat_0123456789abcdef",
            "epsilon": "0.5",
        }
    )

    feature_table: str = Field(max_length=40, description="Features of examples of the batch, whose scores are sent.")
    batch: str = Field(min_length=1, max_length=400, examples=["bat_0123456789abcdef"])


class AskedOut(BaseModel):
    """Requested calibration."""

    answer: str = Field(description="Charged; `POST /answers` fetches it once it is published.")
    state: str = Field(examples=["charged"])
    batch: str
    scores: int = Field(description="How many were sent.")


class CardOut(BaseModel):
    """Card of a model, with its id."""

    id: str
    card: Card


class ComparedModel(BaseModel):
    """Model in a comparison."""

    model: str
    kind: str
    loss: str
    objective: str
    mechanisms: list[str]
    corrections: list[str]
    releases: list[str]
    epsilon: list[EpsilonOf]
    rows: int
    effective_rows: float
    noise_variance: float
    trees: int | None
    depth: int | None
    members: list[MemberOut] = Field(description="Of an ensemble; empty for other models.")
    gain: EstimateOut | ClassEstimateOut | None = Field(
        description="Only where the channel identifies it; `gain_why` says why not."
    )
    gain_why: str
    seconds: float
    created: str


class Comparison(BaseModel):
    """Comparison of models."""

    label: str
    domain: str
    same_messages: bool
    note: str
    models: list[ComparedModel]


class SchemaColumn(BaseModel):
    """Column of a model's features."""

    name: str
    kind: Kind
    holds: Holds = Field(description="What its cells held in training: cells of another spelling become these.")
    accepts: str
    missing: str = Field(description="What becomes of null.")
    categories: list[str] | None = Field(default=None, description="Most frequent first; up to the limit asked for.")
    categories_total: int | None = None
    unknown: str | None = Field(default=None, description="What becomes of a category that training did not see.")


class LeftOut(BaseModel):
    """Unused column, with the reason."""

    name: str
    why: str


class SchemaOut(BaseModel):
    """What a row for this model looks like."""

    model: str
    label: str
    columns: list[SchemaColumn]
    left_out: list[LeftOut] = Field(description="Columns of the training table that are not used; they may come along.")
    most_rows: int
    example: dict[str, Cell]


class PredictIn(Ask):
    """Rows to predict."""

    model_config = whole({"rows": [{"age": 41, "country": "UK"}, {"age": None, "country": "FR"}]})

    rows: list[dict[str, Cell]] = Field(
        max_length=MOST_ROWS, examples=[[{"age": 41, "country": "UK"}, {"age": None, "country": "FR"}]]
    )
    unknown_categories: Literal["encode", "refuse"] = Field(
        default="encode", description="A category that training did not see: encoded as missing, or refused."
    )
    unexpected_columns: Literal["refuse", "ignore"] = Field(
        default="refuse", description="A column that the model does not know."
    )
    quantiles: list[float] = Field(
        default_factory=list,
        max_length=MOST_QUANTILES,
        description="Probabilities above 0 and below 1: the labels that are not exceeded with these, for models that "
        "know them.",
    )


class PredictOut(BaseModel):
    """Predictions, one per row."""

    model: str
    predictions: list[float] | list[str] = Field(
        description="One per row, inside the label domain; of classes the likeliest, by its name where it has one."
    )
    classes: list[str] | None = Field(default=None, description="Of a model of classes: their names.")
    probabilities: list[list[float]] | None = Field(
        default=None, description="Of a model of classes: one row per row, with the probability of each."
    )
    quantiles: list[list[float]] | None = Field(
        default=None, description="Where they were asked for: one row per row, in the order asked."
    )
    rows: int
    unknown_categories: dict[str, int] = Field(description="Cells by column; only columns that have some.")
    missing_values: dict[str, int] = Field(description="Cells by column; only columns that have some.")
