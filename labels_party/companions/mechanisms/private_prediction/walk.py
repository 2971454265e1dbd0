"""The exponential projected walk: thresholds, and unions of intervals, along one ordered feature."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from label_dp.errors import InvalidMechanism
from labels_party.mechanisms.choice import choose, rate_of
from labels_party.mechanisms.entropy import Uint64Source

IntArray = npt.NDArray[np.int64]
SENSITIVITY = 2  # Lemma 5.1: 1 for removing an example, 1 for adding another
MOST_BOUND = 1 << 40
BLOCK = 1 << 14  # steps that are composed at a time
LEAST_BOUND = 8  # by default: a few wrong labels in a row should not turn the walk


def bound_for(alpha: Fraction, epsilon: Fraction) -> int:
    """Return T = ⌈2 ln(2/α)/ε⌉ (Theorem 5.3)."""
    return math.ceil(2 * math.log(2 / alpha) / epsilon)


def alpha_for(n: int, epsilon: Fraction, ends: int = 1) -> Fraction:
    """Return the least α that Theorem 5.3 promises of n examples for unions with `ends` ends, by default a threshold.

    Kept between 10⁻⁶ and 1/20, since the resulting bound is a choice, not a promise.
    """
    low, high = 1e-6, 0.05
    for _ in range(60):
        middle = math.sqrt(low * high)
        if n * float(epsilon) * middle < 4 * (ends + 2) * math.log(2 / middle):
            low = middle
        else:
            high = middle
    return Fraction(high)


def default_bound(n: int, epsilon: Fraction) -> int:
    """Return T for n examples, of public numbers alone: that of Theorem 5.3 at its least α, and at least
    LEAST_BOUND."""
    return max(bound_for(alpha_for(n, epsilon), epsilon), LEAST_BOUND)


@dataclass(frozen=True, eq=False)
class Walk:
    """State of a walk: `starts` int64[u] rising are the different positions of examples, `values` int64[u] the value
    behind the last example of each, all within ±`bound`. Their lengths depend on features alone."""

    starts: IntArray
    values: IntArray
    bound: int

    def at(self, x: int) -> int:
        """Return the value after all examples at positions ≤ x; 0 before the first.

        Its time depends on the number of positions alone.
        """
        i = int(np.searchsorted(self.starts, x, side="right"))
        return int(self.values[i - 1]) if i else 0


def walk(x: IntArray, labels: npt.NDArray[np.bool_], bound: int) -> Walk:
    """Walk over positions `x` int64[n] with `labels` bool[n]: one up for 1, one down for 0, kept within ±`bound`.

    Examples of equal position go in the order given, which must not depend on labels. A sort by position, then the same
    work for every label. Source: Dwork & Feldman 2018, Figure 1. Raises InvalidMechanism.
    """
    if not 1 <= bound <= MOST_BOUND:
        raise InvalidMechanism("The bound of a walk lies between 1 and 2⁴⁰.")
    order = np.argsort(x, kind="stable")
    sorted_x, steps = x[order], 2 * labels[order].astype(np.int64) - 1
    starts, first = np.unique(sorted_x, return_index=True)
    values = np.empty(len(sorted_x), np.int64)
    at = np.zeros(1, np.int64)
    for start in range(0, len(steps), BLOCK):
        moved, low, high = _composed(steps[start : start + BLOCK], bound)
        values[start : start + BLOCK] = np.minimum(np.maximum(at + moved, low), high)
        at = values[start + len(moved) - 1 : start + len(moved)]
    last = np.append(first[1:], len(sorted_x))[: len(starts)] - 1
    return Walk(starts.astype(np.int64), values[last], bound)


def _composed(steps: IntArray, bound: int) -> tuple[IntArray, IntArray, IntArray]:
    """Compose steps: from a value v the first i + 1 steps lead to min(max(v + moved_i, low_i), high_i), int64[n] each.

    Steps kept within bounds compose to one such step, so all prefixes come from doubling (Hillis & Steele 1986), in
    branch-free arithmetic: Python numbers, created or cached by their size, would reveal labels by time.
    """
    moved, low, high = steps, np.full(len(steps), -bound), np.full(len(steps), bound)
    reach = 1
    while reach < len(steps):
        on, least, most = moved[reach:], low[reach:], high[reach:]
        ends = [np.minimum(np.maximum(end[:-reach] + on, least), most) for end in (low, high)]
        moved = np.concatenate([moved[:reach], moved[:-reach] + on])
        low, high = (np.concatenate([end[:reach], new]) for end, new in zip((low, high), ends, strict=True))
        reach *= 2
    return moved, low, high


def answer(value: int, bound: int, epsilon: Fraction, source: Uint64Source) -> int:
    """Draw 1 with probability e^(εv/2)/(1 + e^(εv/2)) for the walk's `value` v, else 0, ε being less the choice's
    slack.

    ε-DP if replacing one example, label and features, moves v by at most 2 (Lemma 5.1: projecting brings two walks no
    further apart). Raises InvalidEpsilon, InvalidMechanism, RandomnessUnavailable.
    """
    if not -bound <= value <= bound:
        raise InvalidMechanism("The walk stands outside its bound.")
    return choose(np.array([bound + value, bound - value], np.int64), rate_of(epsilon, SENSITIVITY), source)
