"""Private learning of an axis-aligned rectangle in d dimensions from labelled examples (Cohen, Lyu, Nelson, Sarlós &
Stemmer 2023).

For each axis, the `slice` positive examples of smallest coordinate are sliced off and an interval point of their
coordinates is the lower side; then those of largest coordinate, for the upper side. If every side lies within its
slice, at most 2·d·slice positive examples end outside, and no negative one inside if a rectangle separates the
examples.

An example is replaced as a whole, coordinates and label; n is public. Negative examples come last in every order and
count as points at the domain's far end, so that their number need not be public. The 2d slices are ordered by the data,
so their costs add up, or go by `costs.slices.noisy_bound` if `noise` is given and that is cheaper.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from label_dp.companions.costs.sessions import BASE
from label_dp.companions.costs.slices import Cost, SliceNoise, Step
from label_dp.errors import InvalidInput
from label_dp.privacy import ATTO
from labels_party.companions.mechanisms.private_median.accounting import largest_epsilon
from labels_party.companions.mechanisms.private_median.interval_point import IntervalPlan, IntervalPoint, Noise
from labels_party.companions.mechanisms.private_median.rsc import Keys, Rows, Session, SessionPlan
from labels_party.mechanisms.entropy import Keystream, Uint64Source, discrete_laplace

LARGEST_BITS = 62  # coordinates are signed, and one more value represents negative examples
NOISES = (50, 200, 800)  # mean noises of a slice's size that a search tries


@dataclass(frozen=True)
class RectanglePlan:
    """Plan of a rectangle from n examples with coordinates of `bits` bits in `axes` dimensions, from public facts.

    `epsilon` and `delta` are those of each of the 2·axes interval points; `cost` is of all. Raises InvalidInput,
    InvalidEpsilon.
    """

    n: int
    axes: int
    bits: int
    slice: int
    epsilon: Fraction
    delta: Fraction = Fraction(0)
    noise: SliceNoise | None = None
    slack: Fraction = Fraction(0)  # δ for the bounds that need one
    base: int = BASE

    def __post_init__(self) -> None:
        if self.axes < 1 or not 1 <= self.bits <= LARGEST_BITS:
            raise InvalidInput(f"A rectangle has at least one axis, and coordinates of 1 to {LARGEST_BITS} bits.")
        if self.slice < 1 or self.n < 2 * self.axes * self.slice:
            raise InvalidInput("A rectangle needs at least as many examples as its slices have together.")
        self.session.cost  # noqa: B018 - refuses an unpayable plan before anything is charged

    @classmethod
    def within(
        cls, total: Cost, *, n: int, axes: int, bits: int, slice: int | None = None, base: int = BASE
    ) -> RectanglePlan:
        """Return, over all proved bounds, the plan at a cost of at most `total` whose slices take the fewest examples.

        `slice` None: as large as `IntervalPlan.enough` says, so that no side is missed in most runs. Otherwise the plan
        has the largest ε of a step. Raises InvalidInput (too few examples), InvalidEpsilon.
        """
        if axes < 1:
            raise InvalidInput("A rectangle has at least one axis.")
        sides, recursive = 2 * axes, 1 << bits > base
        delta = Fraction(math.floor(total.delta * ATTO / sides), ATTO) if recursive else Fraction(0)
        bounds: list[tuple[SliceNoise | None, Fraction]] = [(None, Fraction(0))]
        if total.delta and not recursive and axes > 1:
            bounds += [(None, total.delta), *((SliceNoise(mean), total.delta) for mean in NOISES)]
        plans: list[tuple[int, Fraction, int, SliceNoise | None, Fraction]] = []
        for noise, slack in bounds:
            mean = 0 if noise is None else noise.mean
            hopeful = slice or IntervalPlan(bits, min(total.epsilon, Fraction(64)), delta, base).enough(sides)
            if (plans and sides * (hopeful + mean) >= plans[0][0]) if slice is None else mean > slice:
                continue  # not even with all of ε for each side
            cost_of = partial(_sides_cost, delta=delta, sides=sides, n=n, noise=noise, slack=slack)
            each = largest_epsilon(cost_of, total.epsilon)
            size = slice or IntervalPlan(bits, each, delta, base).enough(sides)
            plans.append((sides * (size + mean), each, size, noise, slack))
        fitting = [entry for entry in plans if entry[0] <= n]
        if not fitting:
            raise InvalidInput(
                f"A rectangle takes {min(entry[0] for entry in plans):,} examples for its {sides} sides at this ε and "
                f"δ, and there are {n:,}. Take more examples, a larger ε, or fewer features."
            )
        best = min(fitting, key=lambda entry: entry[:1] if slice is None else (-entry[1], entry[0]))
        _, each, size, noise, slack = best
        return cls(n, axes, bits, size, each, delta, noise, slack, base)

    @property
    def taken(self) -> int:
        """Mean number of examples that the slices take."""
        return 2 * self.axes * (self.slice + (0 if self.noise is None else self.noise.mean))

    @property
    def interval(self) -> IntervalPlan:
        return IntervalPlan(self.bits, self.epsilon, self.delta, self.base)

    @property
    def session(self) -> SessionPlan:
        cost = self.interval.cost(self.slice)
        return SessionPlan((Step(cost.epsilon, cost.delta),) * (2 * self.axes), self.n, self.noise, self.slack)

    @property
    def cost(self) -> Cost:
        return self.session.cost


@dataclass(frozen=True)
class AxisRectangle:
    """Sides int | None[axes]: None if no interval point was found, and then nothing is inside."""

    low: tuple[int | None, ...]
    high: tuple[int | None, ...]

    def contains(self, points: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Label int64[m, axes] as positive or not: bool[m]."""
        inside = np.ones(len(points), np.bool_)
        for axis, (low, high) in enumerate(zip(self.low, self.high, strict=True)):
            if low is None or high is None:
                return np.zeros(len(points), np.bool_)
            inside &= (points[:, axis] >= low) & (points[:, axis] <= high)
        return inside


def private_rectangle(
    points: npt.NDArray[np.int64],
    positive: npt.NDArray[np.bool_],
    plan: RectanglePlan,
    source: Uint64Source | None = None,
    noise: Noise = discrete_laplace,
) -> AxisRectangle:
    """Learn the rectangle of `points` int64[n, axes] (0 … 2^bits − 1) labelled by `positive` bool[n].

    `plan.cost`-DP under replacing one example. Raises InvalidInput, RandomnessUnavailable.
    """
    if points.shape != (plan.n, plan.axes) or positive.shape != (plan.n,) or points.dtype != np.int64:
        raise InvalidInput("Points are as many rows of whole numbers as planned, one for each axis, with a label each.")
    if int(points.min()) < 0 or int(points.max()) >> plan.bits:
        raise InvalidInput("A coordinate lies outside the domain.")
    stream = Keystream() if source is None else source
    rows = np.column_stack([points, positive.astype(np.int64)])
    session = Session(rows, plan.session, blank=[0] * (plan.axes + 1), source=stream)
    low: list[int | None] = []
    high: list[int | None] = []
    for axis in range(plan.axes):
        for sides, down in ((low, False), (high, True)):
            order = partial(_keys, axis=axis, down=down, bits=plan.bits)
            sides.append(session.step(_Side(plan, axis, down, stream, noise), plan.slice, order))
    return AxisRectangle(tuple(low), tuple(high))


def _sides_cost(
    each: Fraction, *, delta: Fraction, sides: int, n: int, noise: SliceNoise | None, slack: Fraction
) -> Cost:
    return SessionPlan((Step(each, delta),) * sides, n, noise, slack).cost


def _keys(rows: Rows, axis: int, down: bool, bits: int) -> Keys:
    """Order positive examples by their coordinate, negative ones after all of them."""
    far = np.int64(1 << bits)
    coordinate = far - 1 - rows[:, axis] if down else rows[:, axis]
    return np.asarray(np.where(rows[:, -1] == 1, coordinate, far), np.int64)


@dataclass(frozen=True)
class _Side:
    plan: RectanglePlan
    axis: int
    down: bool
    source: Uint64Source
    noise: Noise

    @property
    def step(self) -> Step:
        cost = self.plan.interval.cost(self.plan.slice)
        return Step(cost.epsilon, cost.delta)

    def __call__(self, rows: npt.NDArray[Any]) -> int | None:
        far = (1 << self.plan.bits) - 1
        keys = np.minimum(_keys(rows, self.axis, self.down, self.plan.bits), far).astype(np.uint64)
        algorithm = IntervalPoint(self.plan.interval, self.plan.slice, self.source, self.noise, shuffled=False)
        order = algorithm(keys)
        return None if order is None else far - order if self.down else order
