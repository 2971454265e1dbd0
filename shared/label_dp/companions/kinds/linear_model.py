"""A linear model among the signed answers: private weights of features, and the rule that predicts a label with them.

`parameters`: the features with their public ranges or values, the `levels` a range is divided into, the scaling of the
label, and the training options. `result`: the `constant`, and a weight for every number and every value of a category.

To apply it, a number's place in its range (`label_dp.companions.maps.places.feature_places`) becomes x = 2·place/levels
− 1, a missing one 0; the values of a category become 1 for its own, 0 for the others. The prediction is middle +
half_width·(constant + Σ weight·x), clipped to the ends of the label domain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from label_dp.companions.costs.charge import check_charge
from label_dp.companions.costs.sessions import training_step
from label_dp.companions.costs.slices import Cost
from label_dp.companions.kinds.own_features import MANY, Charging, Features, FloatText, Name, check_features, plain
from label_dp.companions.maps.places import MISSING, feature_places, number_text
from label_dp.documents.kind import WHOLE_EXAMPLE, Facts, Kind
from label_dp.documents.members import ExactEpsilon, Strict
from label_dp.errors import InvalidEpsilon, InvalidInput, MalformedAnswer
from label_dp.schemas.base import Ask, whole
from label_dp.schemas.features import OF_TABLE, Declared
from label_dp.schemas.numbers import Decimalish

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from label_dp.documents.answer import Answer
    from label_dp.documents.signing import VerifyingKey
    from label_dp.domain import Domain

LINEAR_MODEL = "linear-model"
UNIFORM = "uniform"  # the training rule that is independent of the data
RULES = (UNIFORM, "easiest", "hardest", "largest-prediction")
MOST_WEIGHTS, LARGEST_WEIGHT, LARGEST_RATE = 256, 64, 16


class LinearModel(Ask):
    """Answer with private weights of features, trained once through the labels of a batch, signed and charged."""

    model_config = whole(
        {"epsilon": "1", "features": [{"name": "age", "range": [0, 90]}, {"name": "sector", "values": ["a", "b"]}]}
    )

    epsilon: Decimalish = Field(
        description="ε of the whole answer; every example of the batch is charged.", examples=["1"]
    )
    delta: Decimalish = Field(
        default="0", description="The most it may take of the population's lifetime δ; what it needs is charged."
    )
    features: Declared = Field(min_length=1, max_length=64, description=OF_TABLE)
    rule: Literal["uniform", "easiest", "hardest", "largest-prediction"] = Field(
        default="uniform", description="Which examples come first; all but uniform choose by the model so far."
    )
    steps: int | None = Field(default=None, ge=1, le=1000, description="How many minibatches; by default by n.")
    minibatch: int | None = Field(default=None, ge=1, description="Examples of one; by default by n.")
    clip: int = Field(default=2, ge=1, le=64, description="The most one example may contribute to a gradient (L1).")
    rate: Decimalish | None = Field(
        default=None, description="Learning rate; by default 1, or 0.25 where examples are chosen."
    )
    additional_release: bool = Field(default=False, description="Charge on top of what the batch carries already.")


class LinearModelParameters(Charging):
    """Parameters; `rule` says how minibatches are chosen. `middle` and `half_width` scale the label: (y −
    middle)/half_width."""

    features: Features
    rule: Literal["uniform", "easiest", "hardest", "largest-prediction"]
    epsilon_per_step: ExactEpsilon
    levels: int = Field(ge=1, le=MANY)
    steps: int = Field(ge=1, le=1 << 40)
    minibatch: int = Field(ge=1, le=1 << 40)
    clip: int = Field(ge=1, le=64)
    huber: int = Field(ge=1, le=64)
    rate: FloatText
    middle: FloatText
    half_width: FloatText

    def cost(self) -> Cost:
        """Compute the cost. Raises InvalidInput and its kinds."""
        if self.examples < self.steps * self.minibatch:
            raise InvalidInput("There are too few examples: each is used in one minibatch at most.")
        if not self.epsilon_per_step:
            raise InvalidEpsilon("ε must be greater than zero.")
        return self.session().cost(training_step(self.epsilon_per_step.fraction, self.rule == UNIFORM), self.steps)


def linear_model_cost(given: Mapping[str, Any]) -> Cost:
    """Compute the cost from the parameters of a linear model.

    Raises InvalidInput and its kinds, ValueError for another form.
    """
    return LinearModelParameters.model_validate(given).cost()


class Weight(Strict):
    """Weight of a number, whose `value` is null, or of a value of a category."""

    name: Name
    value: Name | None
    weight: FloatText


class LinearModelResult(Strict):
    """Result: a constant and weights."""

    constant: FloatText
    weights: list[Weight]


class LinearModelFacts(Facts):
    """Facts; `gradient_noise_scale` is that of the noise of a coordinate, in units of the largest contribution of one
    example."""

    gradient_noise_scale: FloatText


def label_scale(domain: Domain) -> tuple[float, float]:
    """Return (middle, half width) of the range of a label domain."""
    low, high = domain.ends
    return low + (high - low) / 2, (high - low) / 2


def members(features: list[dict[str, Any]]) -> list[dict[str, str | None]]:
    """List the members with a weight, in order: each value of a category; of a number its `value` is null."""
    return [
        {"name": feature["name"], "value": value} for feature in features for value in feature.get("values") or [None]
    ]


@dataclass(frozen=True)
class VerifiedLinearModel:
    """Verified answer of this kind; `digest` is the SHA-256 of its payload."""

    answer: Answer
    digest: str

    @property
    def weights(self) -> list[dict[str, str]]:
        """Weights: {"name", "weight"} of a number, {"name", "value", "weight"} of a value of a category."""
        return list(self.answer.result["weights"])

    def predict(self, columns: Mapping[str, Any]) -> npt.NDArray[np.float64]:
        """Predict labels float64[m] of the rows of a table, given by its columns of m values each. Raises
        InvalidInput."""
        import numpy as np

        parameters, domain = self.answer.parameters, self.answer.domain
        weights = iter(float(entry["weight"]) for entry in self.weights)
        total: Any = float(self.answer.result["constant"])
        for feature in parameters["features"]:
            place = feature_places(feature, columns, parameters["levels"])
            if "values" in feature:
                total = total + np.array([*(next(weights) for _ in feature["values"]), 0.0])[place]  # MISSING: the last
            else:
                total = total + next(weights) * np.where(place == MISSING, 0.0, 2 * place / parameters["levels"] - 1)
        middle, half = label_scale(domain)
        return np.asarray(np.clip(middle + half * total, domain.values[0], domain.values[-1]), np.float64)


def _rule(answer: Answer, parameters: LinearModelParameters, result: LinearModelResult) -> None:
    if parameters.examples > answer.n or not 0 < float(parameters.rate) <= LARGEST_RATE or answer.domain.k < 2:
        raise MalformedAnswer("a linear model learns at a rate up to 16, of labels that differ, from the batch.")
    check_charge(answer, parameters.cost(), WHOLE_EXAMPLE)
    scale = [number_text(value) for value in label_scale(answer.domain)]
    if [parameters.middle, parameters.half_width] != scale:
        raise MalformedAnswer("the scale of the label is not that of its domain.")
    check_features(parameters.features)
    entries = [{"name": weight.name, "value": weight.value} for weight in result.weights]
    if entries != members(plain(parameters.features)):
        raise MalformedAnswer("a linear model has a weight for every number and every value of a category, in order.")
    weights = [result.constant, *(weight.weight for weight in result.weights)]
    if len(weights) > MOST_WEIGHTS or any(abs(float(weight)) > LARGEST_WEIGHT for weight in weights):
        raise MalformedAnswer("there are at most 256 weights, and a weight is a decimal of at most 64.")


KIND = Kind(
    LINEAR_MODEL, LinearModelParameters, LinearModelResult, _rule, LinearModel, "features", facts=(LinearModelFacts,)
)


def open_linear_model(envelope: bytes, key: VerifyingKey, audience: str | None) -> VerifiedLinearModel:
    """Open a linear model from its envelope. Raises the VerificationFailed of the violated rule."""
    return VerifiedLinearModel(*KIND.trusted(envelope, key, audience))
