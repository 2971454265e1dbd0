"""A private point between the smallest and the largest of n points of a domain up to 2⁶⁴: every step maps the domain to
the logarithm of its size, so that it needs log* of it many (Cohen, Lyu, Nelson, Sarlós & Stemmer 2023, who improve on
Kaplan, Ligett, Mansour, Naor & Stemmer 2020; the recursion is that of Beimel, Nissim & Stemmer 2013).

A step on points of b bits, in the paradigm of `rsc`:

1. A uniform slice, `PAIRED` of the points, is paired up, and each pair becomes the length 0 … b of its common prefix:
   points of a domain of b + 1 values. Their smallest and largest third are dropped, and an interval point L of the rest
   is found by the same recursion, or by the exponential mechanism if the domain has at most `base` points. So at
   least a third of the pairs share L bits or more, hence some prefix of L bits is that of about a third of the points;
   and at least a third share L bits or fewer, so no prefix of L + 1 bits is that of nearly all.
2. On the remaining points: the most common prefix of L bits, by a noisy histogram with a threshold (ε·`FIND`,
   δ); then one of three points, the first and the last with that prefix and the middle one, by the exponential
   mechanism with the loss −min(#{y ≤ v}, #{y ≥ v}) (the rest of ε). One of them has many points on either side.

**Guarantee** (replace-one, n public): (ε, δ) for the whole recursion. 1 and 2 are the two slices of a session in
uniform order, so a replaced point is in one of them (`costs.slices.in_order`: the larger cost, not the sum). A replaced
point replaces at most one pair, dropping shows nothing, so 1 has the cost of the recursion. In 2, a replaced point
moves two counts by one each. A count c ≥ 1 is shown as c + X if that reaches T, X discrete Laplace of scale s ≥
2/(ε·FIND), and a count of 0 never is: between counts that differ by one, both ≥ 1, that is (1/s, 0)-DP; between 0 and 1
it is (0, δ/2)-DP as P[1 + X ≥ T] ≤ e^(−(T−1)/s) ≤ δ/2 (from X's exact tail). Two counts make (2/s, δ) by composition,
and the prefix of the largest shown count is post-processing. The loss of the choice in 2 moves by one at most:
`choice.rate_of`. δ = 0 is refused if the domain has more than `base` points: no threshold would be high enough.

No sample size is proved: `tests/benchmarks/around/rsc.py` finds it. The result may be None (no prefix reached T), and
may miss the interval if there are too few points; both are answers, and paid for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt

from label_dp.companions.costs.sessions import BASE
from label_dp.companions.costs.slices import Cost, Step
from label_dp.errors import InvalidEpsilon, InvalidInput
from label_dp.privacy import log_upper
from labels_party.companions.mechanisms.private_median.rsc import Drop, Rows, Session, SessionPlan
from labels_party.mechanisms.choice import choose, choose_point, rate_of
from labels_party.mechanisms.entropy import LaplaceNoise, Uint64Source, discrete_laplace

Points = npt.NDArray[np.uint64]
Noise = Callable[[LaplaceNoise, int], npt.NDArray[np.int64]]

PAIRED = Fraction(1, 2)
TRIMMED = Fraction(1, 3)  # of the pairs, from either side
FIND = Fraction(3, 5)  # of ε for the prefix
MISSED = 20
LARGEST_BITS = 64


@dataclass(frozen=True)
class IntervalPlan:
    """Cost of an interval point of a domain of 2^`bits` points, from public facts. Raises InvalidInput,
    InvalidEpsilon."""

    bits: int
    epsilon: Fraction
    delta: Fraction = Fraction(0)
    base: int = BASE

    def __post_init__(self) -> None:
        if not 0 <= self.bits <= LARGEST_BITS or self.base < 8:
            raise InvalidInput("The points of a domain have 0 to 64 bits, and the recursion ends at 8 of them or more.")
        if not 0 < self.epsilon <= 64 or not 0 <= self.delta < 1:
            raise InvalidEpsilon("An interval point needs 0 < ε ≤ 64 and 0 ≤ δ < 1.")
        if self.recursive and not self.delta:
            raise InvalidEpsilon(
                f"δ = 0 is too little for a domain of more than {self.base} points: this mechanism shows a prefix only "
                "if enough points have it, which holds but with a probability δ. Give a δ, or use the exponential "
                "mechanism, which needs none."
            )
        rate_of(self.epsilon * (1 - FIND) if self.recursive else self.epsilon, 1)

    @property
    def recursive(self) -> bool:
        return 1 << self.bits > self.base

    @property
    def depth(self) -> int:
        """Count the mappings of the domain to the logarithm of its size."""
        return 1 + self.lengths.depth if self.recursive else 0

    @property
    def lengths(self) -> IntervalPlan:
        """Plan for the lengths of common prefixes, 0 … bits."""
        return IntervalPlan(self.bits.bit_length(), self.epsilon, self.delta, self.base)

    @property
    def choosing(self) -> Step:
        return Step(self.epsilon, self.delta, shuffled=True)

    @cached_property
    def counting(self) -> LaplaceNoise:
        """Noise of prefixes' counts, of which a replaced point moves two by one each."""
        return LaplaceNoise(2, self.epsilon * FIND)

    @cached_property
    def threshold(self) -> int:
        """Threshold T."""
        return 1 + math.ceil(self.counting.scale * log_upper(2 / self.delta).fraction)

    def session(self, n: int) -> SessionPlan:
        """Return the session of one step on n points."""
        return SessionPlan(
            (Step(self.lengths_cost(n).epsilon, self.lengths_cost(n).delta, shuffled=True), self.choosing), n
        )

    def trimmed(self, pairs: int) -> SessionPlan:
        """Return the session on the lengths of so many pairs: both ends dropped, the rest used."""
        cost = self.lengths.cost(pairs - 2 * math.floor(TRIMMED * pairs))
        nothing = Step(Fraction(0))
        return SessionPlan((nothing, nothing, Step(cost.epsilon, cost.delta, shuffled=True)), pairs)

    def lengths_cost(self, n: int) -> Cost:
        return self.trimmed(self.paired(n) // 2).cost

    def prefix(self, n: int) -> tuple[int, int]:
        """Return (T, how many of n points may share a prefix): if T is larger, none is ever found. Recursive plans
        only."""
        return self.threshold, n - self.paired(n)

    def enough(self, tries: int) -> int:
        """Return a number of points for which, of `tries` interval points of as many different ones, all are found 19
        times in 20.

        By ranks from the exponential mechanism's tail: points beyond the ends have loss 0, one in the middle −n/2. By
        recursion twice T on either half, as `tests/benchmarks/around/rsc.py` finds, which is no proof.
        """
        if self.recursive:
            return 4 * self.threshold
        return 2 + math.ceil(4 * (self.bits * math.log(2) + math.log(MISSED * tries)) / float(self.epsilon))

    @staticmethod
    def paired(n: int) -> int:
        """Return how many of n points are paired up; the others look for the prefix."""
        return math.floor(PAIRED * n)

    def cost(self, n: int) -> Cost:
        """Return (ε, δ) of an interval point of n points. Raises InvalidInput if there are too few for the
        recursion."""
        if n < 1:
            raise InvalidInput("There are too few points for slices: take more, or ranks.")
        return self.session(n).cost if self.recursive else Cost(self.epsilon)


@dataclass(frozen=True)
class IntervalPoint:
    """Algorithm for a step of `rsc.Session`: rows uint64[m] → a point, or None. Always exactly `m` points."""

    plan: IntervalPlan
    m: int
    source: Uint64Source
    noise: Noise = discrete_laplace
    shuffled: bool = True

    @property
    def step(self) -> Step:
        cost = self.plan.cost(self.m)
        return Step(cost.epsilon, cost.delta, shuffled=self.shuffled)

    def __call__(self, rows: Rows) -> int | None:
        if len(rows) != self.m:
            raise InvalidInput("An interval point was planned for another number of points.")
        return _find(rows, self.plan, self.source, self.noise)


def _find(points: Points, plan: IntervalPlan, source: Uint64Source, noise: Noise) -> int | None:
    if not plan.recursive:
        return by_ranks(points, plan, source)
    session = Session(points, plan.session(len(points)), source=source)
    paired = plan.paired(len(points))
    length = session.step(_Lengths(plan, paired, source, noise), paired)
    return session.step(_Prefix(plan, length, source, noise), len(points) - paired)


def by_ranks(points: Points, plan: IntervalPlan, source: Uint64Source) -> int:
    """Draw by the exponential mechanism with loss −min(#{y ≤ v}, #{y ≥ v}), from intervals of points of one loss; ε-DP.

    As many intervals as there are points, equal ones or not, so that the work reveals nothing.
    """
    ordered, n = np.sort(points), len(points)
    last = np.append(ordered[1:] != ordered[:-1], True)
    first = np.searchsorted(ordered, ordered, side="left")
    edges = [0, *(point + 1 for point in ordered.tolist())]
    starts, sizes, losses = [0] * (2 * n + 1), [0] * (2 * n + 1), np.zeros(2 * n + 1, np.int64)
    starts[0::2], starts[1::2] = edges, ordered.tolist()
    sizes[0::2] = [max(stop - start, 0) for start, stop in zip(edges, [*ordered.tolist(), 1 << plan.bits], strict=True)]
    sizes[1::2] = last.astype(int).tolist()
    upto = np.arange(n + 1)
    losses[0::2] = -np.minimum(upto, n - upto)
    losses[1::2] = -np.minimum(upto[1:], n - first)
    return choose_point(losses, starts, sizes, rate_of(plan.epsilon, 1), source)


@dataclass(frozen=True)
class _Lengths:
    """Step 1: rows in uniform order, so that neighbours in it are uniform pairs."""

    plan: IntervalPlan
    rows: int
    source: Uint64Source
    noise: Noise

    @property
    def step(self) -> Step:
        cost = self.plan.trimmed(self.rows // 2).cost
        return Step(cost.epsilon, cost.delta, shuffled=True)

    def __call__(self, rows: Rows) -> int | None:
        pairs = len(rows) // 2
        lengths = common_prefix(rows[: 2 * pairs : 2], rows[1 : 2 * pairs : 2], self.plan.bits)
        session = Session(lengths, self.plan.trimmed(pairs), source=self.source)
        many = math.floor(TRIMMED * pairs)
        session.step(Drop(), many, lambda left: left.astype(np.int64))
        session.step(Drop(), many, lambda left: -left.astype(np.int64))
        middle = IntervalPoint(self.plan.lengths, pairs - 2 * many, self.source, self.noise)
        found = session.step(middle, pairs - 2 * many)
        return None if found is None else min(found, self.plan.bits)


def common_prefix(a: Points, b: Points, bits: int) -> Points:
    """Count the equal leading bits of `bits` bits: uint64[m]."""
    different, length = a ^ b, np.full(a.shape, bits, np.uint64)
    for bit in range(bits):
        length -= ((different >> np.uint64(bit)) > 0).astype(np.uint64)
    return length


@dataclass(frozen=True)
class _Prefix:
    """Step 2, for prefixes of `length` bits; None if step 1 found none."""

    plan: IntervalPlan
    length: int | None
    source: Uint64Source
    noise: Noise

    @property
    def step(self) -> Step:
        return self.plan.choosing

    def __call__(self, rows: Rows) -> int | None:
        threshold = self.plan.threshold
        noise = self.noise(self.plan.counting, len(rows))  # one each, so that their number reveals nothing
        if self.length is None:
            return None
        rest = self.plan.bits - self.length
        shift = partial(np.right_shift, rows, np.uint64(min(rest, LARGEST_BITS - 1)))
        prefixes, counts = np.unique(shift() if rest < LARGEST_BITS else np.zeros_like(rows), return_counts=True)
        noisy_counts = counts + noise[: len(counts)]
        best = int(np.argmax(noisy_counts))
        if int(noisy_counts[best]) < threshold:
            return None
        first = int(prefixes[best]) << rest
        last = first + (1 << rest) - 1
        candidates = [first, first + (1 << rest >> 1), last]
        losses = [-min(int(np.sum(rows <= np.uint64(c))), int(np.sum(rows >= np.uint64(c)))) for c in candidates]
        rate = rate_of(self.plan.epsilon * (1 - FIND), 1)
        return candidates[choose(np.array(losses, np.int64), rate, self.source)]
