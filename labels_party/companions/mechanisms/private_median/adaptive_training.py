"""Private training with examples chosen by the state of the model: each rule reorders the remaining examples; each
minibatch is a slice with a noisy gradient, and is not used again (Cohen, Lyu, Nelson, Sarlós & Stemmer 2023).

A linear model w·x of y for the Huber loss, all in whole numbers, so that an example's contribution is a function of
that example and the weights, bit for bit, at any place in a minibatch. Features and labels are in units of 1/`UNIT`,
weights in 1/`WEIGHT`. An example's gradient is clip(w·x − y, ±R)·x, cut down to L1 norm C in whole lattice steps; a
minibatch shows the sum of its gradients plus discrete Laplace noise of scale s on every coordinate. Replacing an
example moves the sum by at most 2C in L1, adding one by C: a step costs 2C/s, or C/s if one is added.

The whole example, features and label, is protected (replace-one; n is public). The cost of all steps is the cheapest
bound of `label_dp.companions.costs.slices`: with noisy slice sizes it hardly grows with their number, and minibatches
in uniform order cost like one. Passing through the data once is part of the guarantee: there is no second epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from label_dp.companions.costs.sessions import training_step
from label_dp.companions.costs.slices import LARGEST_MEAN, Cost, SliceNoise, Step
from label_dp.errors import InvalidInput
from labels_party.companions.mechanisms.private_median.accounting import largest_epsilon
from labels_party.companions.mechanisms.private_median.interval_point import Noise
from labels_party.companions.mechanisms.private_median.rsc import Keys, Order, Rows, Session, SessionPlan
from labels_party.mechanisms.entropy import Keystream, LaplaceNoise, Uint64Source, discrete_laplace

IntArray = npt.NDArray[np.int64]

UNIT_BITS, WEIGHT_BITS = 10, 20
UNIT, WEIGHT = 1 << UNIT_BITS, 1 << WEIGHT_BITS
LARGEST = 1 << 14  # of a feature or label in units: 16, features are expected standardised
LARGEST_WEIGHT = 1 << 26  # 64
MOST_FEATURES = 256
RESIDUAL_BITS = WEIGHT_BITS  # from w·x in 1/(UNIT·WEIGHT) to units


def errors(rows: Rows, weights: IntArray) -> IntArray:
    """Compute w·x − y of every example, in 1/(UNIT·WEIGHT), exact: int64[m]."""
    return rows[:, :-1] @ weights - (rows[:, -1] << WEIGHT_BITS)


def easiest(rows: Rows, weights: IntArray) -> Keys:
    """Order examples by self-paced learning: those that the model fits best come first."""
    return np.abs(errors(rows, weights))


def hardest(rows: Rows, weights: IntArray) -> Keys:
    """Order examples by error: those that the model fits worst come first."""
    return -np.abs(errors(rows, weights))


def largest_prediction(rows: Rows, weights: IntArray) -> Keys:
    """Order examples by absolute prediction, largest first."""
    return -np.abs(rows[:, :-1] @ weights)


RULES: Mapping[str, Callable[[Rows, IntArray], Keys] | None] = {
    "uniform": None,
    "easiest": easiest,
    "hardest": hardest,
    "largest-prediction": largest_prediction,
}


@dataclass(frozen=True)
class TrainingPlan:
    """Plan of `steps` minibatches of about `minibatch` of n examples with `features` features, from public facts.

    `epsilon` is that of one step when an example is replaced. `clip` is C and `huber` R, in units of features. Raises
    InvalidInput, InvalidEpsilon.
    """

    n: int
    features: int
    steps: int
    minibatch: int
    epsilon: Fraction
    noise: SliceNoise | None = None
    slack: Fraction = Fraction(0)  # δ for the bounds that need one
    rule: str = "easiest"
    clip: int = 2
    huber: int = 2
    rate: Fraction = Fraction(1, 2)

    def __post_init__(self) -> None:
        if not 1 <= self.features <= MOST_FEATURES or self.steps < 1 or self.minibatch < 1:
            raise InvalidInput(f"Training needs 1 to {MOST_FEATURES} features, at least one step and one example each.")
        if self.rule not in RULES:
            raise InvalidInput(f"The rule that orders examples is one of {', '.join(RULES)}.")
        if self.n < self.steps * self.minibatch:
            raise InvalidInput("There are too few examples: each is used in one minibatch at most.")
        if not 1 <= self.clip <= 64 or not 1 <= self.huber <= 64 or self.epsilon <= 0 or not 0 < self.rate <= 16:
            raise InvalidInput("Clipping and Huber's bound are 1 to 64, ε and the learning rate greater than zero.")
        self.session.cost  # noqa: B018 - refuses an unpayable plan before anything is charged

    @classmethod
    def within(cls, total: Fraction, **rest: Any) -> TrainingPlan:
        """Return the plan whose steps together cost nearly `total`, at most. Raises InvalidInput, InvalidEpsilon."""
        return cls(epsilon=largest_epsilon(lambda each: cls(epsilon=each, **rest).cost, total), **rest)

    @classmethod
    def cheapest(cls, total: Cost, **rest: Any) -> TrainingPlan:
        """Return, over all proved bounds and noise in sizes as large as the examples allow, the plan of cost at most
        `total` with the largest ε of a step. Raises InvalidInput, InvalidEpsilon."""
        plans = [cls.within(total.epsilon, **rest)]
        n, steps, minibatch = (rest[name] for name in ("n", "steps", "minibatch"))
        if total.delta and steps > 1 and RULES[plans[0].rule] is not None:
            mean = min(n // steps - minibatch, minibatch, LARGEST_MEAN)  # the more noise, the cheaper the steps
            noise = SliceNoise(mean) if mean > 0 else None
            plans.append(cls.within(total.epsilon, noise=noise, slack=total.delta, **rest))
        return max(plans, key=lambda plan: plan.epsilon)

    @property
    def gradient_noise(self) -> LaplaceNoise:
        """Noise of all coordinates together, in lattice steps of 1/UNIT, for replacing one clipped gradient."""
        return LaplaceNoise(2 * self.clip * UNIT, self.epsilon)

    @property
    def scale(self) -> Fraction:
        """Scale of the noise of a coordinate, in lattice steps of 1/UNIT."""
        return self.gradient_noise.scale

    @property
    def step(self) -> Step:
        return training_step(self.epsilon, RULES[self.rule] is None)

    @property
    def session(self) -> SessionPlan:
        return SessionPlan((self.step,) * self.steps, self.n, self.noise, self.slack)

    @property
    def cost(self) -> Cost:
        return self.session.cost


def train(
    x: npt.NDArray[np.float64],
    y: npt.NDArray[np.float64],
    plan: TrainingPlan,
    source: Uint64Source | None = None,
    noise: Noise = discrete_laplace,
) -> npt.NDArray[np.float64]:
    """Train weights float64[features], `plan.cost`-DP under replacing one example of x float64[n, features], y
    float64[n].

    Values are rounded to 1/1024 and clipped to ±16. Raises InvalidInput (NaN, shapes), RandomnessUnavailable.
    """
    if x.shape != (plan.n, plan.features) or y.shape != (plan.n,):
        raise InvalidInput("Features and labels are as many rows and columns as planned.")
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise InvalidInput("Features and labels must be finite numbers.")
    stream, order = Keystream() if source is None else source, RULES[plan.rule]
    rows = np.rint(np.clip(np.column_stack([x, y]) * UNIT, -LARGEST, LARGEST)).astype(np.int64)
    session = Session(rows, plan.session, blank=[0] * rows.shape[1], source=stream)
    weights = np.zeros(plan.features, np.int64)
    total = np.zeros(plan.features, np.int64)
    for at in range(plan.steps):
        now = weights
        ordering = None if order is None else _ordered(order, now)
        gradient = session.step(NoisyGradient(plan, now, noise), plan.minibatch, ordering)
        weights = _moved(weights, gradient, plan)
        total += weights if 2 * at >= plan.steps - 1 else 0
    return np.asarray(total / (plan.steps // 2 + 1 if plan.steps % 2 else plan.steps // 2) / WEIGHT, np.float64)


def _ordered(rule: Callable[[Rows, IntArray], Keys], weights: IntArray) -> Order:
    return lambda rows: rule(rows, weights)


def _moved(weights: IntArray, gradient: IntArray, plan: TrainingPlan) -> IntArray:
    """Step against the mean gradient, in whole-number arithmetic on released values."""
    factor = plan.rate * WEIGHT / (UNIT * plan.minibatch)
    moved = [
        w - g * factor.numerator // factor.denominator for w, g in zip(weights.tolist(), gradient.tolist(), strict=True)
    ]
    return np.array([max(-LARGEST_WEIGHT, min(LARGEST_WEIGHT, w)) for w in moved], np.int64)


@dataclass(frozen=True)
class NoisyGradient:
    """Sum of clipped gradients plus noise; the noise has as many draws as there are features."""

    plan: TrainingPlan
    weights: IntArray
    noise: Noise = discrete_laplace

    @property
    def step(self) -> Step:
        return self.plan.step

    def __call__(self, rows: Rows) -> IntArray:
        noise = self.noise(self.plan.gradient_noise, self.plan.features)
        return np.asarray(gradients(rows, self.weights, self.plan).sum(axis=0) + noise, np.int64)


def gradients(rows: Rows, weights: IntArray, plan: TrainingPlan) -> IntArray:
    """Compute gradients int64[m, features] in lattice steps of 1/UNIT, each of L1 norm at most `clip`·UNIT, in whole
    numbers."""
    bound = plan.huber * UNIT
    residual = np.clip(errors(rows, weights) >> RESIDUAL_BITS, -bound, bound)
    whole = residual[:, None] * rows[:, :-1]  # in 1/UNIT²
    norm, most = np.abs(whole).sum(axis=1), plan.clip * UNIT * UNIT
    magnitude = np.abs(whole)
    # norm ≤ 256·2¹⁶·2¹⁴; scaled down in whole numbers, towards zero
    cut = np.where(
        (norm > most)[:, None], magnitude * (plan.clip * UNIT) // np.maximum(norm, 1)[:, None], magnitude >> UNIT_BITS
    )
    return np.asarray(np.sign(whole) * cut, np.int64)
