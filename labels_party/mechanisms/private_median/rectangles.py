"""Private learning of an axis-aligned rectangle in d dimensions from labelled examples (Cohen, Lyu, Nelson, Sarlós &
Stemmer 2023): for each axis, the `slice` positive examples of smallest coordinate are sliced off and an interval point
of their coordinates is the lower side; then those of largest coordinate, for the upper side. About 2·d·slice positive
examples end outside, no negative one inside if a rectangle separates the examples.

An example is replaced as a whole, coordinates and label; n is public. Negative examples come last in every order and
count as points at the domain's far end, so that how many there are need not be public. The 2d slices are ordered by the
data, so their costs add up, or go by `accounting.noisy_slices` where `noise` is given and that is cheaper.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from labels_party.mechanisms.entropy import Keystream, Uint64Source, discrete_laplace
from labels_party.mechanisms.private_median.accounting import Cost, SliceNoise, Step
from labels_party.mechanisms.private_median.interval_point import BASE, IntervalPlan, IntervalPoint, Noise
from labels_party.mechanisms.private_median.rsc import Keys, Plan, Rows, Session
from shared.errors import InvalidInput

LARGEST_BITS = 62  # coordinates are signed, and one value more stands for negative examples


@dataclass(frozen=True)
class RectanglePlan:
    """A rectangle from n examples with coordinates of `bits` bits in `axes` dimensions, from public facts.

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
        self.session.cost  # noqa: B018 - refuses what cannot be paid for before anything is charged

    @property
    def interval(self) -> IntervalPlan:
        return IntervalPlan(self.bits, self.epsilon, self.delta, self.base)

    @property
    def session(self) -> Plan:
        cost = self.interval.cost(self.slice)
        return Plan((Step(cost.epsilon, cost.delta),) * (2 * self.axes), self.n, self.noise, self.slack)

    @property
    def cost(self) -> Cost:
        return self.session.cost


@dataclass(frozen=True)
class Rectangle:
    """Sides int | None[axes]: None where no interval point was found, and nothing is inside of it."""

    low: tuple[int | None, ...]
    high: tuple[int | None, ...]

    def contains(self, points: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """bool[m]: which of int64[m, axes] are labelled positive."""
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
) -> Rectangle:
    """The rectangle of `points` int64[n, axes] (0 … 2^bits − 1) labelled by `positive` bool[n]; `plan.cost`-DP under
    replacing one example. Raises InvalidInput, RandomnessUnavailable."""
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
    return Rectangle(tuple(low), tuple(high))


def _keys(rows: Rows, axis: int, down: bool, bits: int) -> Keys:
    """Positive examples by their coordinate, negative ones after all of them."""
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
        found = algorithm(keys)
        return None if found is None else far - found if self.down else found
