"""Subsample and aggregate: models of disjoint parts vote, a soft majority answers."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from label_dp.errors import InvalidMechanism
from labels_party.mechanisms.choice import choose, rate_of
from labels_party.mechanisms.entropy import Uint64Source

SENSITIVITY = 1  # one example is in one part, whose vote may move from one count to the other
MOST_PARTS = 4096


def parts_for(alpha: Fraction, epsilon: Fraction) -> int:
    """Return ⌈6 ln(4/α)/ε⌉ parts: with models of error α/4 the answers then err by at most α (Theorem 4.1)."""
    return math.ceil(6 * math.log(4 / alpha) / epsilon)


def soft_majority(ones: int, parts: int, epsilon: Fraction, source: Uint64Source) -> int:
    """Draw 0 or 1, each with probability ∝ e^(c·its votes), `ones` of `parts` votes being for 1.

    2c is ε less the slack of the exact choice, so this is ε-DP if replacing one example, label and features, changes
    one vote: the parts are disjoint, and an example's part depends on its id alone. Source: Dwork & Feldman 2018,
    Theorem 4.1. Raises InvalidEpsilon (too small), InvalidMechanism, RandomnessUnavailable.
    """
    if not 0 <= ones <= parts or parts < 1:
        raise InvalidMechanism("Of the votes between none and all are for 1.")
    against = np.array([ones, parts - ones], np.int64)  # the loss of an answer: the votes for the other
    return choose(against, rate_of(epsilon, SENSITIVITY), source)
