"""An auditor of medians: what many of them on neighbouring labels show bounds ε from below, never above what is paid,
and a median that draws at more than it is paid for is found.

The bound that must hold is wrong with probability at most ALPHA; that is how often this file fails by chance. δ is
checked exactly, over all noise, in `tests/unit/test_interval_point.py`, and what slices cost together over all
transcripts in `tests/unit/test_slice_accounting.py`.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from labels_party.mechanisms.private_median.median import MedianPlan, private_median
from tests.support.auditor import audit

ALPHA = 1e-6
RUNS = 1200

# the middle third of nine labels holds the replaced one, at either end of the domain
ONE, OTHER = ([0] * 4 + [end] + [7] * 4 for end in (0, 7))


def medians(labels: list[int], epsilon: int) -> list[int | None]:
    plan = MedianPlan(9, 8, Fraction(epsilon))
    points = np.array(labels, np.uint64)
    return [private_median(points, plan) for _ in range(RUNS)]


def test_medians_of_neighbours_never_prove_more_than_was_paid() -> None:
    assert audit(medians(ONE, 1), medians(OTHER, 1), ALPHA).bound <= 1


def test_control_a_median_drawn_at_four_times_its_epsilon_is_found() -> None:
    assert audit(medians(ONE, 4), medians(OTHER, 4), ALPHA).bound > 1
