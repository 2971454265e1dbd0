"""Calibrations by noisy sums, audited from outside: maps of neighbouring labels prove no more than the ε that was paid.

Both bounds that must hold are wrong with probability ALPHA at most; that is how often this file fails by chance. With
8,000 maps a side of four labels in two cells an auditor proves over half of an ε of 1, and noise of two thirds of the
scale, the control, is found.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from label_dp.domain import Domain
from label_dp.privacy import Epsilon
from labels_party.companions.audit_bounds import audit
from labels_party.companions.mechanisms.isotonic.binned import BinnedMeans
from labels_party.companions.mechanisms.isotonic.cells import Cells
from labels_party.mechanisms.entropy import LaplaceNoise, discrete_laplace

pytestmark = pytest.mark.extended

ALPHA = 1e-6
MAPS = 8_000
X = np.array([0, 0, 1, 1])


def maps(labels: list[int], factor: Fraction = Fraction(1)) -> list[Any]:
    """What a receiver sees of each map: its lower value, to whole labels. Noise of `factor` times the scale."""
    plan = BinnedMeans(Domain.parse("0:4"), (Cells.even(2, 2),), len(X), Epsilon.parse("1"))
    weaker = LaplaceNoise(plan.noise.sensitivity, plan.noise.epsilon / factor)
    y, drawn = np.array(labels), iter(discrete_laplace(weaker, 2 * MAPS).reshape(MAPS, 2))
    return [round(float(plan.fit(X, y, lambda _scale, _n: next(drawn)).values[0])) for _ in range(MAPS)]


def test_maps_of_neighbours_prove_no_more_than_was_paid() -> None:
    assert 0.5 < audit(maps([0, 0, 4, 4]), maps([4, 0, 4, 4]), ALPHA / 2) <= 1


def test_control_noise_of_two_thirds_of_the_scale_is_found() -> None:
    weaker = Fraction(2, 3)
    assert audit(maps([0, 0, 4, 4], weaker), maps([4, 0, 4, 4], weaker), ALPHA / 2) > 1


@pytest.mark.parametrize("labels", [[0, 0, 0, 0], [4, 4, 4, 4]])
def test_as_many_draws_whatever_the_labels(labels: list[int]) -> None:
    asked = list[int]()
    plan = BinnedMeans(Domain.parse("0:4"), (Cells.even(2, 2),), len(X), Epsilon.parse("1"))

    def noise(_noise: LaplaceNoise, n: int) -> Any:
        asked.append(n)
        return np.zeros(n, np.int64)

    plan.fit(X, np.array(labels), noise)
    assert asked == [2]
