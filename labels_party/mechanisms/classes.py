"""Labels that are classes: whether a prior is worth its ε, and the number of likeliest classes to respond on.

Randomized response on the d likeliest classes shows them more often than one on all k, the more so the smaller e^ε is
beside k, and carries no information on the others. The share of information φ² (`label_dp.channels.information`) weighs
both.

Whether `auto` buys a prior is decided from n, k and ε alone: where a message without one is worth fewer than FEW labels
without noise for each class. Such a message does not even tell the shares of the classes, which a histogram tells for a
fraction of ε. On 17 levels of education (two splits of `make tables ARGS="--only classes"`) the model's log loss was
2.8, that of equal shares, at 1 to 1.5 such labels for each class, and 1.8 to 2.1 with a prior. At 3.3 to 4 of them (ε =
0.3, and 4,000 rows at ε = 1) it was 1.78 without a prior and 1.91 with one.

Elsewhere a prior gains little, since subset selection needs none. `make around ARGS=classes` prints the gain: φ² with a
bought prior over φ² without one, for k = 3 to 100, ε = 0.5 to 4 and n = 10³ to 10⁶. On equal shares and Zipf's law of
exponent 1 it gains nowhere, of exponent 2 by 15 % at most, of exponent 3 by 41 %. It costs up to 10 % at n = 10⁴ and 62
% at n = 10³. So whoever knows that a few classes hold nearly all labels asks for a prior or gives one.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from label_dp.channels.base import N
from label_dp.privacy import Epsilon
from labels_party.mechanisms.prior import FloatArray, PriorPlan, prior_epsilon
from labels_party.mechanisms.randomized_response import rr_weights
from labels_party.mechanisms.subset_selection import even_share

FEW = 2.0  # labels without noise for each class
SHARE, LARGEST_SHARE = 40, 10  # of ε, for the prior
LEAST, EACH = 50, 30  # n·ε_prior: at least, and for each class


def buys_prior(k: int, n: int, epsilon: Epsilon) -> bool:
    """Decide whether `auto` pays for a prior of k classes, from public figures alone."""
    return n * even_share(k, epsilon) < FEW * k


def class_prior(rule: str | Epsilon, *, k: int, n: int, epsilon: Epsilon) -> PriorPlan:
    """Plan the prior as `prior_epsilon`, with a cell for every class, since neighbours in a list of names are
    unrelated.

    "auto": ε/40, less if 30·k/n is less, at least 50/n, at most ε/10. Raises InvalidEpsilon.
    """
    cells = np.arange(k + 1, dtype=np.int64)
    if rule != "auto":
        return PriorPlan(prior_epsilon(rule, k=k, n=n, epsilon=epsilon).epsilon, cells)
    rows = max(n, 1)
    fraction = max(Fraction(LEAST, rows), min(epsilon.fraction / SHARE, Fraction(EACH * k, rows)))
    return PriorPlan(Epsilon.round_down(min(fraction, epsilon.fraction / LARGEST_SHARE)), cells)


def most_informative(prior: FloatArray, epsilon: Epsilon) -> int:
    """Find the largest d of 2 … k for which randomized response on the d likeliest classes of `prior` float64[k]
    maximises φ².

    Raises InvalidEpsilon.
    """
    p = np.sort(prior)[::-1]
    figures = [_figure(p, d, epsilon) for d in range(2, p.size + 1)]
    best = max(figures)
    return max(d for d, figure in enumerate(figures, 2) if figure >= best - 1e-12 * (1.0 + best))


def _figure(falling: FloatArray, d: int, epsilon: Epsilon) -> float:
    """Compute (k − 1)·φ² + 1 of the channel on the first d classes, in O(d)."""
    A, B = rr_weights(epsilon, d)
    own, other = A / N, B / N
    p, inside = falling[:d], float(np.sum(falling[:d]))
    rest = max(0.0, 1.0 - inside)
    share = other * inside + (own - other) * p + rest / d
    squares = other**2 * inside + (own**2 - other**2) * p + rest / d**2
    return float(np.sum(squares / share))
