"""Powers of e by IEEE 754's operations alone: within the bounds that are proved, against Python's decimals."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from label_dp.errors import EpsilonNotProved, InvalidMechanism
from labels_party.mechanisms import exponentials
from labels_party.mechanisms.exponentials import END, LEAST, LOGISTIC_ERROR, POWER_ERROR, STEP, logistic, powers

MOST = (1 << 62) - 1
rates = st.one_of(
    st.fractions(Fraction(1, 10**6), 100, max_denominator=10**7),
    st.builds(Fraction, st.integers(1, 10**9), st.integers(1, 10**21)),
)


def exact(x: Fraction) -> Fraction:
    """e^−x by Python's decimals, which are no part of the product's own."""
    with localcontext() as context:
        context.prec = 60
        return Fraction((-Decimal(x.numerator) / Decimal(x.denominator)).exp())


def wrong(rate: Fraction, steps: Iterable[int]) -> int:
    """How many powers are not within the proved error."""
    each = list(steps)
    found = powers(rate, np.array(each, np.int64)).tolist()
    return sum(
        abs(Fraction(value) - exact(rate * step)) > exact(rate * step) * POWER_ERROR
        if value
        else exact(rate * step) > LEAST
        for step, value in zip(each, found, strict=True)
    )


@settings(deadline=None)
@given(rates, st.lists(st.fractions(0, 1, max_denominator=10**9), min_size=1, max_size=8))
def test_powers_are_within_the_proved_error(rate: Fraction, places: list[Fraction]) -> None:
    last = min(MOST, int(90 / rate) + 1)
    assert wrong(rate, [0, 1, *(int(place * last) for place in places), last, MOST]) == 0


def test_powers_of_every_length_and_of_whole_blocks() -> None:
    rate = Fraction(3, 10**17)  # every one of the 62 bits counts
    assert wrong(rate, [1 << bit for bit in range(62)]) == 0
    assert wrong(rate, [(1 << bit) - 1 for bit in range(62)]) == 0
    steps = np.arange(3 * exponentials.BLOCK + 5)
    assert np.array_equal(powers(Fraction(1, 10**4), steps)[-7:], powers(Fraction(1, 10**4), steps[-7:]))


def test_control_a_constant_that_is_a_hair_off_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    rounded = exponentials._rounded
    monkeypatch.setattr(exponentials, "_rounded", lambda low, high: rounded(low, high) * (1 + 2**-43))
    assert wrong(Fraction(1234567, 10**9), range(1, 50)) > 40


def test_bounds_too_far_apart_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    bounds = exponentials.exp_bounds
    monkeypatch.setattr(exponentials, "exp_bounds", lambda x: (bounds(x)[0], bounds(x)[1] * (1 + Fraction(1, 1 << 50))))
    with pytest.raises(EpsilonNotProved):
        powers(Fraction(1234567, 10**8), np.arange(3))


def test_steps_outside_are_refused() -> None:
    for steps in ([-1], [1 << 62]):
        with pytest.raises(InvalidMechanism, match="2⁶²"):
            powers(Fraction(1), np.array(steps))


def off(scores: list[float]) -> Fraction:
    """The largest error of the logistic function."""
    found = logistic(np.array(scores)).tolist()
    falls = [exact(abs(Fraction(score))) for score in scores]
    wanted = [(Fraction(1) if score >= 0 else fall) / (1 + fall) for score, fall in zip(scores, falls, strict=True)]
    return max(abs(Fraction(value) - want) for value, want in zip(found, wanted, strict=True))


@settings(deadline=None)
@given(st.lists(st.floats(-60, 60), min_size=1, max_size=20))
def test_the_logistic_function_is_within_the_proved_error(scores: list[float]) -> None:
    assert off(scores) <= LOGISTIC_ERROR


def test_the_logistic_function_at_its_joints_and_far_out() -> None:
    joints = [k / STEP for k in range(0, END * STEP, 97)]
    near = [np.nextafter(joint, side) for joint in joints for side in (-100.0, 100.0)]
    assert off([*joints, *near, *(-x for x in near), 700.0, -700.0, 1e300, -1e300, 5e-324, 0.0]) <= LOGISTIC_ERROR
    rising = logistic(np.sort(np.array(near)))
    assert np.all(np.diff(rising) >= -2.0 * float(LOGISTIC_ERROR))


def test_control_one_term_less_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exponentials, "SERIES", exponentials.SERIES[:-3])
    assert off([(k + 0.999) / STEP for k in range(50)]) > LOGISTIC_ERROR
