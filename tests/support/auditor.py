"""An empirical auditor: how large ε must at least be, judged from what releases of two neighbouring label vectors show.

It knows nothing of mechanisms. Of each release it keeps a symbol (a tuple of what could be told apart); a first part
of the releases only chooses the event whose odds differ most, the rest bounds its two probabilities (Clopper & Pearson
1934), so nothing was looked at before it is tested. Every claim carries the error rate of the whole audit divided by
the number of audits and of directions (Bonferroni).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from scipy.stats import beta

CHOOSING = 0.3  # of the releases


@dataclass(frozen=True)
class Finding:
    """`bound` < ε with probability 1 − alpha at least; `event` names the symbols that told most."""

    bound: float
    event: frozenset[Hashable]
    hits: tuple[int, int]
    releases: int


def lower_bound(hits: int, n: int, alpha: float) -> float:
    """A probability is at least this, but for an error rate of `alpha` (Clopper-Pearson)."""
    return 0.0 if hits == 0 else float(beta.ppf(alpha, hits, n - hits + 1))


def upper_bound(hits: int, n: int, alpha: float) -> float:
    return 1.0 if hits == n else float(beta.ppf(1.0 - alpha, hits + 1, n - hits))


def epsilon_bound(hits: int, n: int, other_hits: int, other_n: int, alpha: float) -> float:
    """ln of the ratio of an event's probabilities is at least this, but for an error rate of `alpha`."""
    least, most = lower_bound(hits, n, alpha / 2), upper_bound(other_hits, other_n, alpha / 2)
    return math.log(least / most) if least > 0 else 0.0


def _chosen(one: Sequence[Hashable], two: Sequence[Hashable], alpha: float) -> frozenset[Hashable]:
    """The event that bounds ε best on these releases: some symbols that are likelier under the first vector."""
    a, b = Counter(one), Counter(two)
    ranked = sorted(a, key=lambda s: ((a[s] + 0.5) / (b[s] + 0.5), repr(s)), reverse=True)
    best, event, hits, others = -math.inf, frozenset[Hashable](), 0, 0
    for place, symbol in enumerate(ranked, start=1):
        hits, others = hits + a[symbol], others + b[symbol]
        bound = epsilon_bound(hits, len(one), others, len(two), alpha)
        if bound > best:
            best, event = bound, frozenset(ranked[:place])
    return event


def audit(one: Sequence[Hashable], two: Sequence[Hashable], alpha: float) -> Finding:
    """The lower bound of ε that symbols of the two vectors' releases prove, wrong with probability at most `alpha`."""
    found = []
    for left, right in ((one, two), (two, one)):
        i, j = int(CHOOSING * len(left)), int(CHOOSING * len(right))
        event = _chosen(left[:i], right[:j], 0.05)
        hits, others = (sum(s in event for s in part) for part in (left[i:], right[j:]))
        bound = max(0.0, epsilon_bound(hits, len(left) - i, others, len(right) - j, alpha / 2))
        found.append(Finding(bound, event, (hits, others), len(left) + len(right)))
    return max(found, key=lambda finding: finding.bound)


def power(epsilon: float, releases: int, alpha: float) -> float:
    """The lower bound that as many releases of each vector prove of randomized response of this ε, on average: a leak
    is noticed where this exceeds what was charged."""
    n = releases - int(CHOOSING * releases)
    p = math.exp(epsilon) / (1.0 + math.exp(epsilon))
    return max(0.0, epsilon_bound(round(p * n), n, round((1.0 - p) * n), n, alpha / 2))
