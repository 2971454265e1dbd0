"""An approximate median: a private point with about a third of the points on either side of it, or more.

Two ways. By Reorder–Slice–Compute (`private_median`): the smallest and the largest third are sliced off, which shows
nothing and costs nothing, and an interval point of the rest is drawn (Cohen, Lyu, Nelson, Sarlós & Stemmer 2023). (ε,
δ)-DP, for domains up to 2⁶⁴. By the exponential mechanism on ranks (`quantiles.quantiles` at ½): pure ε, and fewer
labels on every domain that fits into 64 bits, see `tests/benchmarks/around/rsc.py`; log* pays off on larger ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from label_dp.companions.costs.sessions import BASE
from label_dp.companions.costs.slices import Cost, Step
from label_dp.errors import InvalidInput
from labels_party.companions.mechanisms.private_median.interval_point import IntervalPlan, IntervalPoint, Noise, Points
from labels_party.companions.mechanisms.private_median.rsc import Drop, Keys, Session, SessionPlan
from labels_party.mechanisms.entropy import Keystream, Uint64Source, discrete_laplace

SHARE = Fraction(1, 3)
SIGN = np.int64(-(1 << 63))


@dataclass(frozen=True)
class MedianPlan:
    """Plan of an approximate median of n points 0 … size − 1 at (ε, δ), from public facts. Raises InvalidInput,
    InvalidEpsilon."""

    n: int
    size: int
    epsilon: Fraction
    delta: Fraction = Fraction(0)
    base: int = BASE

    def __post_init__(self) -> None:
        if self.n < 1:
            raise InvalidInput("There are no labels to take a median of.")
        if not 1 <= self.size <= 1 << 64:
            raise InvalidInput("A domain has 1 to 2⁶⁴ points.")
        self.session.cost  # noqa: B018 - refuses an unpayable plan before anything is charged

    @property
    def interval(self) -> IntervalPlan:
        return IntervalPlan((self.size - 1).bit_length(), self.epsilon, self.delta, self.base)

    @property
    def sliced(self) -> int:
        """Number of points that are sliced off on either side."""
        return math.floor(SHARE * self.n) if self.n > 2 else 0

    @property
    def session(self) -> SessionPlan:
        cost = self.interval.cost(self.n - 2 * self.sliced)
        nothing = Step(Fraction(0))
        return SessionPlan((nothing, nothing, Step(cost.epsilon, cost.delta, shuffled=True)), self.n)

    @property
    def cost(self) -> Cost:
        return self.session.cost


def private_median(
    points: Points, plan: MedianPlan, source: Uint64Source | None = None, noise: Noise = discrete_laplace
) -> int | None:
    """Draw a point 0 … size − 1 between the ⅓ and the ⅔ quantile of `points` uint64[n], if there are enough; or None.

    `plan.cost`-DP under replacing one point. Raises InvalidInput, RandomnessUnavailable.
    """
    if points.ndim != 1 or points.dtype != np.uint64 or points.size != plan.n:
        raise InvalidInput("Points are a column of as many unsigned 64-bit numbers as planned.")
    if int(points.max()) >= plan.size:
        raise InvalidInput("A point lies outside the domain.")
    stream = Keystream() if source is None else source
    session = Session(points, plan.session, source=stream)
    session.step(Drop(), plan.sliced, rising)
    session.step(Drop(), plan.sliced, lambda left: ~rising(left))
    many = plan.n - 2 * plan.sliced
    point = session.step(IntervalPoint(plan.interval, many, stream, noise), many)
    return None if point is None else min(point, plan.size - 1)


def rising(points: Points) -> Keys:
    """Return int64[n] in the order of uint64[n]."""
    return points.view(np.int64) ^ SIGN
