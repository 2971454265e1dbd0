"""The ways to answer: each method's needs, learning, evaluation and draw. Plans are pure and read no label."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from label_dp.companions.kinds.prediction_methods import GRID as STEPS
from label_dp.companions.kinds.prediction_methods import NOISE, AverageFacts, StableFacts, VoteFacts, WalkFacts
from label_dp.companions.maps.places import MISSING
from label_dp.companions.maps.places import number_text as decimal
from label_dp.documents.kind import IN_PARTS, LABEL_ALONE, WALKED, Facts
from label_dp.domain import Domain
from label_dp.errors import InvalidInput, InvalidMechanism
from label_dp.numbers import real_of
from label_dp.privacy import Epsilon
from label_dp.schemas.json_types import JsonObject
from labels_party.companions.kinds.feature_schema import FINE, NumericFeature, Schema
from labels_party.companions.mechanisms.private_prediction import GRID, average, stable, votes, walk
from labels_party.companions.mechanisms.private_prediction.lattice import Noise, laplace_noise, noisy
from labels_party.companions.mechanisms.private_prediction.learners import LEARNERS, stacked
from labels_party.mechanisms.choice import rate_of
from labels_party.mechanisms.entropy import Keystream, LaplaceNoise

IntArray = npt.NDArray[np.int64]
Arrays = Mapping[str, npt.NDArray[Any]]
WEIGHT_BYTES = 48
SOURCE = "Dwork & Feldman 2018, {}"


@dataclass(frozen=True)
class PredictorPlan:
    """Public parameters of a predictor. `cap` is the most ε that its queries may spend together."""

    method: str
    epsilon: Epsilon
    cap: Epsilon
    features: Schema
    n: int
    threshold: str | None = None
    learner: str | None = None
    parts: int | None = None
    regularisation: Fraction | None = None
    centre: str | None = None
    bound: int | None = None

    def as_json(self) -> JsonObject:
        return {
            "method": self.method,
            "epsilon_per_query": str(self.epsilon),
            "epsilon_cap": str(self.cap),
            "features": self.features.as_json(),
            "examples": self.n,
            "threshold": self.threshold,
            "learner": self.learner,
            "parts": self.parts,
            "regularisation": None if self.regularisation is None else decimal(self.regularisation),
            "centre": self.centre,
            "bound": self.bound,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> PredictorPlan:
        regularisation = data["regularisation"]
        return cls(
            data["method"],
            Epsilon.parse(data["epsilon_per_query"]),
            Epsilon.parse(data["epsilon_cap"]),
            Schema.from_json(data["features"], levels_of(data["method"])),
            data["examples"],
            data["threshold"],
            data["learner"],
            data["parts"],
            None if regularisation is None else Fraction(float(regularisation)),  # as many bits as floats have
            data["centre"],
            data["bound"],
        )

    @property
    def queries(self) -> int:
        """Number of queries that the cap pays for."""
        return self.cap.nano // self.epsilon.nano


@dataclass(frozen=True)
class Method:
    """Method of answering.

    `learn` maps coordinates or codes, labels and parts to arrays of fixed shapes. `evaluate` returns a whole number,
    which is not an answer yet: it depends on raw labels. `draw` maps it to another one, ε-DP. `ends`: its maximum, and
    the values of 0 and of that maximum.
    """

    name: str
    classifies: bool
    adjacency: str
    source: str
    learner: str | None
    check: Callable[[PredictorPlan], object]
    learn: Callable[[PredictorPlan, Domain, IntArray, IntArray, IntArray], Arrays]
    evaluate: Callable[[PredictorPlan, Domain, Arrays, IntArray], int]
    draw: Callable[[PredictorPlan, int], int]
    top: Callable[[PredictorPlan], int]
    facts: Callable[[PredictorPlan], Facts]


def levels_of(method: str) -> int:
    """Return the number of output levels of a method."""
    return FINE if method == "walk" else 2 << 12


def value_of(plan: PredictorPlan, domain: Domain, drawn: int) -> str:
    """Return the value of a draw: 0 or 1, a probability, or a value between the ends of the domain; a decimal."""
    method = METHODS[plan.method]
    share = Fraction(drawn, method.top(plan))
    if method.classifies:
        return decimal(share)
    low, high = (Fraction(repr(float(end))) for end in (domain.values[0], domain.values[-1]))
    return decimal(low + (high - low) * share)


def threshold_position(domain: Domain, threshold: str) -> int:
    """Find the first position whose value is at least the threshold. Raises InvalidInput for a threshold that all or no
    labels reach."""
    try:
        at = int(domain.values.searchsorted(real_of(threshold), side="left"))
    except ValueError:
        at = 0
    if not 0 < at < domain.k:
        raise InvalidInput("The threshold lies above the lowest value of the label domain and not above the highest.")
    return at


def shares(domain: Domain, positions: IntArray) -> IntArray:
    """Scale labels to 0 … GRID over the range of the domain: int64[n]."""
    low, high = float(domain.values[0]), float(domain.values[-1])
    share = (domain.values[positions] - low) / (high - low)
    return np.clip(np.rint(share * GRID), 0, GRID).astype(np.int64)


def classes(plan: PredictorPlan, domain: Domain, positions: IntArray) -> npt.NDArray[np.bool_]:
    """Mark bool[n] of labels at or above the plan's threshold."""
    assert plan.threshold is not None
    return np.asarray(positions >= threshold_position(domain, plan.threshold))


# --- parts of examples ---------------------------------------------------------------------------------------


def _check_parts(plan: PredictorPlan, most: int = votes.MOST_PARTS) -> None:
    if plan.parts is None or not 1 <= plan.parts <= min(most, plan.n):
        raise InvalidMechanism(
            f"There are between 1 and {most} parts, and no more than the {plan.n} examples with features."
        )
    if plan.learner not in LEARNERS:
        raise InvalidMechanism(f"The learner of parts is one of {', '.join(LEARNERS)}.")


def _check_votes(plan: PredictorPlan) -> None:
    _check_parts(plan)
    rate_of(plan.epsilon.fraction, votes.SENSITIVITY)


def _check_average(plan: PredictorPlan) -> None:
    _check_parts(plan)
    LaplaceNoise(average.SENSITIVITY, plan.epsilon.fraction)


def _learn_classes(plan: PredictorPlan, domain: Domain, codes: IntArray, positions: IntArray, part: IntArray) -> Arrays:
    assert plan.learner is not None
    assert plan.parts is not None
    y = classes(plan, domain, positions).astype(np.float64)
    return stacked(LEARNERS[plan.learner], plan.features.coordinates(codes), y, part, plan.parts)


def _learn_shares(plan: PredictorPlan, domain: Domain, codes: IntArray, positions: IntArray, part: IntArray) -> Arrays:
    assert plan.learner is not None
    assert plan.parts is not None
    y = shares(domain, positions) / GRID
    return stacked(LEARNERS[plan.learner], plan.features.coordinates(codes), y, part, plan.parts)


def _predictions(plan: PredictorPlan, arrays: Arrays, codes: IntArray) -> npt.NDArray[np.float64]:
    assert plan.learner is not None
    return LEARNERS[plan.learner].predict(arrays, plan.features.coordinates(codes[None, :])[0])


def _ones(plan: PredictorPlan, _: Domain, arrays: Arrays, codes: IntArray) -> int:
    # a float comparison, but within one part: for any result, one example changes one vote
    return int((_predictions(plan, arrays, codes) >= 0.5).sum())


def _parts(plan: PredictorPlan) -> int:
    assert plan.parts is not None
    return plan.parts


# --- stable learners -----------------------------------------------------------------------------------------


def _regularisation(plan: PredictorPlan) -> Fraction:
    assert plan.regularisation is not None
    return plan.regularisation


def centre_of(plan: PredictorPlan, domain: Domain) -> int:
    """Return the public value that ridge regression shrinks to, as a share: the middle, unless the owner names one."""
    if plan.centre is None:
        return GRID // 2
    low, high = float(domain.values[0]), float(domain.values[-1])
    return round(min(max((float(plan.centre) - low) / (high - low), 0.0), 1.0) * GRID)


def _ridge_step(plan: PredictorPlan) -> int:
    return stable.ridge_sensitivity(plan.n, _regularisation(plan))


def _logistic_step(plan: PredictorPlan) -> int:
    return stable.logistic_sensitivity(plan.n, plan.features.width, plan.features.squared_norm, _regularisation(plan))


def _check_ridge(plan: PredictorPlan) -> None:
    stable.check_regularisation(_regularisation(plan))
    LaplaceNoise(_ridge_step(plan), plan.epsilon.fraction)


def _learn_ridge(plan: PredictorPlan, domain: Domain, codes: IntArray, positions: IntArray, _: IntArray) -> Arrays:
    x, norm = plan.features.coordinates(codes), plan.features.squared_norm
    model = stable.fit_ridge(x, shares(domain, positions), norm, _regularisation(plan), centre_of(plan, domain))
    packed = b"".join(weight.to_bytes(WEIGHT_BYTES, "little", signed=True) for weight in model.weights)
    return {"weights": np.frombuffer(packed, np.uint8).reshape(-1, WEIGHT_BYTES)}


def _ridge(plan: PredictorPlan, domain: Domain, arrays: Arrays, codes: IntArray) -> int:
    weights = tuple(int.from_bytes(row.tobytes(), "little", signed=True) for row in arrays["weights"])
    model = stable.Ridge(weights, stable.ridge_scale(plan.n), centre_of(plan, domain))
    return stable.ridge_position(model, plan.features.coordinates(codes[None, :])[0])


def _learn_logistic(plan: PredictorPlan, domain: Domain, codes: IntArray, positions: IntArray, _: IntArray) -> Arrays:
    x, norm = plan.features.coordinates(codes), plan.features.squared_norm
    return {"weights": stable.fit_logistic(x, classes(plan, domain, positions), norm, _regularisation(plan))}


def _logistic(plan: PredictorPlan, _: Domain, arrays: Arrays, codes: IntArray) -> int:
    return stable.logistic_position(arrays["weights"], plan.features.coordinates(codes[None, :])[0])


# --- the walk ------------------------------------------------------------------------------------------------


def _bound(plan: PredictorPlan) -> int:
    assert plan.bound is not None
    return plan.bound


def _check_walk(plan: PredictorPlan) -> None:
    if len(plan.features.features) != 1 or not isinstance(plan.features.features[0], NumericFeature):
        raise InvalidMechanism("A walk goes along one feature with a range of numbers.")
    if not 1 <= _bound(plan) <= walk.MOST_BOUND:
        raise InvalidMechanism("The bound of a walk lies between 1 and 2⁴⁰.")
    rate_of(plan.epsilon.fraction, walk.SENSITIVITY)


def _learn_walk(plan: PredictorPlan, domain: Domain, codes: IntArray, positions: IntArray, _: IntArray) -> Arrays:
    # examples of equal position go in the order of their ids, in which they come
    state = walk.walk(codes[:, 0], classes(plan, domain, positions), _bound(plan))
    return {"starts": state.starts, "values": state.values}


def _stands(plan: PredictorPlan, _: Domain, arrays: Arrays, codes: IntArray) -> int:
    if int(codes[0]) == MISSING:
        raise InvalidInput(f"The feature '{plan.features.names[0]}' may not be missing: a walk goes along it.")
    return walk.Walk(arrays["starts"], arrays["values"], _bound(plan)).at(int(codes[0]))


def _laplace(step: Callable[[PredictorPlan], int], top: int) -> Callable[[PredictorPlan, int], int]:
    noise: Noise = laplace_noise
    return lambda plan, fact: noisy(fact, step(plan), plan.epsilon.fraction, (0, top), noise)


def _facts_of_noise(step: Callable[[PredictorPlan], int]) -> Callable[[PredictorPlan], Facts]:
    return lambda plan: StableFacts(
        noise=NOISE,
        grid=STEPS,
        stability=decimal(Fraction(step(plan), GRID)),
        scale=decimal(Fraction(step(plan), GRID) / plan.epsilon.fraction),
    )


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method(
            "soft-majority",
            True,
            IN_PARTS,
            SOURCE.format("Theorem 4.1"),
            "logistic",
            _check_votes,
            _learn_classes,
            _ones,
            lambda plan, ones: votes.soft_majority(ones, _parts(plan), plan.epsilon.fraction, Keystream()),
            lambda plan: 1,
            lambda plan: VoteFacts(parts=_parts(plan)),
        ),
        Method(
            "average",
            False,
            IN_PARTS,
            SOURCE.format("Lemmas 4.5 and 4.6"),
            "ridge",
            _check_average,
            _learn_shares,
            lambda plan, _, arrays, codes: average.clipped_sum(_predictions(plan, arrays, codes)),
            lambda plan, total: average.noisy_average(total, _parts(plan), plan.epsilon.fraction),
            lambda plan: _parts(plan) * GRID,
            lambda plan: AverageFacts(
                noise=NOISE, grid=STEPS, parts=_parts(plan), scale=decimal(1 / (_parts(plan) * plan.epsilon.fraction))
            ),
        ),
        Method(
            "stable-ridge",
            False,
            LABEL_ALONE,
            SOURCE.format("Theorem 4.9 for labels, Lemma 4.5"),
            None,
            _check_ridge,
            _learn_ridge,
            _ridge,
            _laplace(_ridge_step, GRID),
            lambda plan: GRID,
            _facts_of_noise(_ridge_step),
        ),
        Method(
            "stable-logistic",
            True,
            LABEL_ALONE,
            SOURCE.format("Theorem 4.9 for labels, Lemma 4.5"),
            None,
            lambda plan: LaplaceNoise(_logistic_step(plan), plan.epsilon.fraction),
            _learn_logistic,
            _logistic,
            _laplace(_logistic_step, GRID),
            lambda plan: GRID,
            _facts_of_noise(_logistic_step),
        ),
        Method(
            "walk",
            True,
            WALKED,
            SOURCE.format("Figure 1 and Lemma 5.1"),
            None,
            _check_walk,
            _learn_walk,
            _stands,
            lambda plan, value: walk.answer(value, _bound(plan), plan.epsilon.fraction, Keystream()),
            lambda plan: 1,
            lambda plan: WalkFacts(bound=_bound(plan)),
        ),
    )
}
