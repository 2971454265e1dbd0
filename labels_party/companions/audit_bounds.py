"""Statistics of privacy audits: how large ε must at least be, judged from outputs on neighbouring labels alone.

`audit` knows nothing of mechanisms. Each release is a symbol, whatever could be told apart. The first part of the
releases only chooses the event whose odds differ most. The rest bounds its two probabilities (Clopper & Pearson 1934),
so that nothing was looked at before it is tested. Callers divide `alpha` by the number of their audits (Bonferroni).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence

CHOOSING = 0.3  # share of the releases that choose the event
CHOOSING_Z = 1.96  # deviations of the approximate bounds by which it is chosen
HALVINGS = 60  # of the interval in which a bound lies


def tail(hits: int, n: int, p: float) -> float:
    """Return P[at least `hits` of n | p] for p up to hits/n, from where on its terms fall."""
    if p == 0:
        return 0.0
    ways = math.lgamma(n + 1) - math.lgamma(hits + 1) - math.lgamma(n - hits + 1)
    term = math.exp(ways + hits * math.log(p) + (n - hits) * math.log1p(-p)) if p < 1 else 1.0
    total = 0.0
    while hits <= n and term > total * 1e-17:
        total, term, hits = total + term, term * (n - hits) / (hits + 1) * p / (1 - p), hits + 1
    return total


def lower_bound(hits: int, n: int, alpha: float) -> float:
    """Bound a probability from below, with error rate `alpha` (Clopper-Pearson)."""
    low, high = 0.0, hits / max(n, 1)
    for _ in range(HALVINGS if hits else 0):
        middle = (low + high) / 2
        low, high = (middle, high) if tail(hits, n, middle) <= alpha else (low, middle)
    return low


def upper_bound(hits: int, n: int, alpha: float) -> float:
    """Bound a probability from above, with error rate `alpha`."""
    return 1.0 - lower_bound(n - hits, n, alpha)


def epsilon_bound(hits: int, n: int, other_hits: int, other_n: int, alpha: float) -> float:
    """Bound ln of the ratio of an event's probabilities from below, with error rate `alpha`."""
    least, most = lower_bound(hits, n, alpha / 2), upper_bound(other_hits, other_n, alpha / 2)
    return math.log(least / most) if least > 0 else 0.0


def guess_bound(right: int, guesses: int, alpha: float) -> float:
    """Bound ε from below by right guesses among two labels that were equally likely, with error rate `alpha`.

    Whatever an ε-DP output is, and whatever the other labels are, the odds of a label given the output are at most e^ε.
    So right guesses are at most binomial with e^ε/(1 + e^ε), also where the output decides for which labels one guesses
    (Steinke, Nasr & Jagielski 2023, for pure ε).
    """
    p = lower_bound(right, guesses, alpha)
    return max(0.0, math.log(p / (1.0 - p))) if 0 < p < 1 else 0.0


def _score(hits: int, n: int, sign: int) -> float:
    """Return the end of Wilson's interval of a probability, the lower one for a `sign` of -1."""
    z, share = CHOOSING_Z, hits / max(n, 1)
    spread = z * math.sqrt(share * (1 - share) / max(n, 1) + (z / (2 * max(n, 1))) ** 2)
    return (share + z * z / (2 * max(n, 1)) + sign * spread) / (1 + z * z / max(n, 1))


def _chosen(one: Sequence[Hashable], two: Sequence[Hashable]) -> frozenset[Hashable]:
    """Choose the event that bounds ε best on these releases: symbols that are likelier in the first world."""
    a, b = Counter(one), Counter(two)
    ranked = sorted(a, key=lambda s: ((a[s] + 0.5) / (b[s] + 0.5), repr(s)), reverse=True)
    best, event, hits, others = -math.inf, frozenset[Hashable](), 0, 0
    for place, symbol in enumerate(ranked, start=1):
        hits, others = hits + a[symbol], others + b[symbol]
        bound = math.log(max(_score(hits, len(one), -1), 1e-12) / _score(others, len(two), 1))
        if bound > best:
            best, event = bound, frozenset(ranked[:place])
    return event


def audit(one: Sequence[Hashable], two: Sequence[Hashable], alpha: float) -> float:
    """Return the lower bound of ε that symbols of two worlds prove, wrong with probability at most `alpha`."""
    bounds = [0.0]
    for left, right in ((one, two), (two, one)):
        i, j = int(CHOOSING * len(left)), int(CHOOSING * len(right))
        event = _chosen(left[:i], right[:j])
        hits, others = (sum(s in event for s in part) for part in (left[i:], right[j:]))
        bounds.append(epsilon_bound(hits, len(left) - i, others, len(right) - j, alpha / 2))
    return max(bounds)


def power(epsilon: float, releases: int, alpha: float) -> float:
    """Return the lower bound that as many releases of each world prove of randomized response of this ε, on average: a
    leak is noticed where this exceeds what was charged. An infinite ε gives the largest bound of all."""
    n = releases - int(CHOOSING * releases)
    p = 1.0 / (1.0 + math.exp(-epsilon))
    return max(0.0, epsilon_bound(round(p * n), n, round((1.0 - p) * n), n, alpha / 2))
