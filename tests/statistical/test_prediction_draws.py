"""Answers of soft majorities and of walks are as probable as the paper says, counted exactly: an answer is a rising
function of one uniform integer, and how many of its values give 0 is found by bisection with the product itself. No
chance decides. ε that are a quarter off are told apart."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from labels_party.companions.mechanisms.private_prediction import votes, walk
from labels_party.mechanisms.choice import SLACK

pytestmark = pytest.mark.extended

Draw = Callable[[Any], int]


class Drawn:
    """A source whose words together are the share `numerator`/2^`BITS` of all that they can be."""

    BITS = 128

    def __init__(self, numerator: int) -> None:
        self.numerator = numerator

    def uint64(self, n: int) -> np.ndarray:
        assert 64 * n >= self.BITS
        whole = self.numerator << (64 * n - self.BITS)
        return np.frombuffer(whole.to_bytes(8 * n, "little"), np.uint64)


def probability_of_one(draw: Draw) -> float:
    """By bisection, after a look at many places: below the found one 0 is drawn, from there on 1."""
    low, high = -1, 1 << Drawn.BITS
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if draw(Drawn(middle)) else (middle, high)
    for place in range(0, 1 << Drawn.BITS, 1 << Drawn.BITS - 8):
        assert draw(Drawn(place)) == (place >= high)
    return float(1 - Fraction(high, 1 << Drawn.BITS))


def one(logit: float) -> float:
    return float(1 / (1 + np.exp(-logit)))


def check(draw: Draw, logit: float, epsilon: Fraction) -> None:
    """`logit` of 1 at ε; SLACK of ε is left for rounding, and 2⁻³² of the mass is uniform."""
    found = probability_of_one(draw)
    kept = float((epsilon - SLACK) / epsilon)
    assert found == pytest.approx(one(kept * logit), abs=2.0**-31)
    if logit:
        assert abs(found - one(1.25 * logit)) > 0.01


@pytest.mark.parametrize(("ones", "parts", "epsilon"), [(6, 9, "0.5"), (1, 4, "1"), (10, 20, "2")])
def test_soft_majority(ones: int, parts: int, epsilon: str) -> None:
    exact = Fraction(epsilon)
    check(lambda source: votes.soft_majority(ones, parts, exact, source), float(exact) * (2 * ones - parts) / 2, exact)


@pytest.mark.parametrize(("value", "bound", "epsilon"), [(3, 5, "0.5"), (-4, 4, "0.5"), (0, 7, "3")])
def test_walk(value: int, bound: int, epsilon: str) -> None:
    exact = Fraction(epsilon)
    check(lambda source: walk.answer(value, bound, exact, source), float(exact) * value / 2, exact)
