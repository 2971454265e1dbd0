"""Answers of soft majorities and of walks come as often as the paper says: χ² at α = 10⁻⁶ per setting, against planted
ε that are a quarter off; so a run fails by chance with probability below 10⁻⁵ in all."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from labels_party.mechanisms.entropy import Keystream
from labels_party.mechanisms.private_prediction import votes, walk
from tests.statistical.test_sampler_frequencies import ALPHA, p_value

DRAWS = 20_000


def chances(logit: float) -> np.ndarray:
    one = 1 / (1 + np.exp(-logit))
    return np.array([1 - one, one])


@pytest.mark.parametrize(("ones", "parts", "epsilon"), [(6, 9, "0.5"), (1, 4, "1"), (10, 20, "2")])
def test_soft_majority(ones: int, parts: int, epsilon: str) -> None:
    source, exact = Keystream(), Fraction(epsilon)
    counts = np.bincount([votes.soft_majority(ones, parts, exact, source) for _ in range(DRAWS)], minlength=2)
    logit = float(exact) * (2 * ones - parts) / 2
    assert p_value(counts, chances(logit)) > ALPHA
    if logit:
        assert p_value(counts, chances(1.25 * logit)) < ALPHA


@pytest.mark.parametrize(("value", "bound", "epsilon"), [(3, 5, "0.5"), (-4, 4, "0.5"), (0, 7, "3")])
def test_walk(value: int, bound: int, epsilon: str) -> None:
    source, exact = Keystream(), Fraction(epsilon)
    counts = np.bincount([walk.answer(value, bound, exact, source) for _ in range(DRAWS)], minlength=2)
    logit = float(exact) * value / 2
    assert p_value(counts, chances(logit)) > ALPHA
    if value:
        assert p_value(counts, chances(1.25 * logit)) < ALPHA
