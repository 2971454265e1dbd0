"""A linear model among the signed answers: private weights of features, and how to predict a label with them.

`parameters`: the features with their public ranges or values, the `levels` a range is divided into, how the label was
scaled, and how training went. `result`: the `constant`, and a weight for every number and every value of a category.

Applying it: a number's place in its range (`shared.places.feature_places`) becomes x = 2·place/levels − 1, a missing
one 0; the values of a category 1 for the one it has, 0 for the others. The prediction is middle + half_width·(constant
+ Σ weight·x), clipped to the ends of the label domain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shared.domain import Domain
from shared.errors import MalformedAnswer
from shared.message.answer import Answer, register, trusted_answer
from shared.message.own_features import check_features, is_count, is_decimal
from shared.message.signing import VerifyingKey
from shared.places import MISSING, feature_places, number_text

LINEAR_MODEL = "linear-model"
RULES = ("uniform", "easiest", "hardest", "largest-prediction")
COUNTS = ("examples", "levels", "steps", "minibatch", "clip", "huber")
DECIMALS = ("rate", "epsilon_per_step", "delta_of_bound", "middle", "half_width")
PARAMETERS = {"features", "rule", "slice_noise", *COUNTS, *DECIMALS}


def label_scale(domain: Domain) -> tuple[float, float]:
    """(middle, half width) of the range of a label domain."""
    low, high = float(domain.values[0]), float(domain.values[-1])
    return low + (high - low) / 2, (high - low) / 2


def members(features: list[dict[str, Any]]) -> list[dict[str, str]]:
    """What has a weight, in order: {"name"} of a number, {"name", "value"} of each value of a category."""
    found: list[dict[str, str]] = []
    for feature in features:
        values = feature.get("values")
        found += [{"name": feature["name"]} | ({} if v is None else {"value": v}) for v in values or [None]]
    return found


@dataclass(frozen=True)
class LinearModel:
    """A verified answer of this kind; `digest` is the SHA-256 of its payload."""

    answer: Answer
    digest: str

    @property
    def weights(self) -> list[dict[str, str]]:
        """{"name", "weight"} of a number, {"name", "value", "weight"} of a value of a category, and the weight."""
        return list(self.answer.result["weights"])

    def predict(self, columns: Mapping[str, Any]) -> npt.NDArray[np.float64]:
        """float64[m]: labels of the rows of a table, given by its columns of m values each. Raises InvalidInput."""
        given, domain = self.answer.parameters, self.answer.read_domain()
        weights = iter(float(entry["weight"]) for entry in self.weights)
        total: Any = float(self.answer.result["constant"])
        for feature in given["features"]:
            place = feature_places(feature, columns, given["levels"])
            if "values" in feature:
                total = total + np.array([*(next(weights) for _ in feature["values"]), 0.0])[place]  # MISSING: the last
            else:
                total = total + next(weights) * np.where(place == MISSING, 0.0, 2 * place / given["levels"] - 1)
        middle, half = label_scale(domain)
        return np.asarray(np.clip(middle + half * total, domain.values[0], domain.values[-1]), np.float64)


def _check(answer: Answer) -> None:
    given, result = answer.parameters, answer.result
    if set(given) != PARAMETERS or given["rule"] not in RULES:
        raise MalformedAnswer("a linear model names features, scale and how it was trained.")
    if not all(is_count(given[name], 1) for name in COUNTS) or not is_count(given["slice_noise"]):
        raise MalformedAnswer("sizes of a linear model are whole numbers.")
    if not all(is_decimal(given[name]) for name in DECIMALS) or given["examples"] > answer.n:
        raise MalformedAnswer("ε, δ and scale of a linear model are decimals, its examples some of the batch.")
    scale = [number_text(value) for value in label_scale(answer.read_domain())]
    if [given["middle"], given["half_width"]] != scale:
        raise MalformedAnswer("the scale of the label is not that of its domain.")
    wanted = members(check_features(given["features"]))
    told = result["weights"]
    if set(result) != {"constant", "weights"} or [{k: e[k] for k in e if k != "weight"} for e in told] != wanted:
        raise MalformedAnswer("a linear model has a weight for every number and every value of a category, in order.")
    if not all(is_decimal(weight) for weight in (result["constant"], *(entry["weight"] for entry in told))):
        raise MalformedAnswer("a weight is a decimal.")


register(LINEAR_MODEL, _check)


def open_linear_model(envelope: bytes, key: VerifyingKey, audience: str | None) -> LinearModel:
    """A linear model from its envelope. Raises the VerificationFailed of the rule that was broken."""
    return LinearModel(*trusted_answer(envelope, key, audience, LINEAR_MODEL))
