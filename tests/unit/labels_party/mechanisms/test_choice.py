"""The exponential mechanism in integers: its probabilities are those of its docstring, and its ε holds exactly."""

from __future__ import annotations

import itertools
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from label_dp.errors import InvalidEpsilon, InvalidMechanism
from label_dp.privacy import exp_bounds
from labels_party.mechanisms.choice import BLOCK, SLACK, choose, choose_point, rate_of, uniform_below, weights
from labels_party.mechanisms.entropy import Keystream

HUGE = 1 << 64


class Fixed:
    """Words that were chosen by the test."""

    def __init__(self, value: float) -> None:
        self.value = value

    def uint64(self, n: int) -> npt.NDArray[np.uint64]:
        drawn = int(Fraction(self.value) * (1 << (64 * n)))
        return np.frombuffer(drawn.to_bytes(8 * n, "little"), "<u8").astype(np.uint64)


def column(*scores: int) -> npt.NDArray[np.int64]:
    return np.array(scores, np.int64)


def within_epsilon(one: list[int], other: list[int], epsilon: Fraction, sizes: list[int]) -> bool:
    """Whether no point's probability differs by more than e^ε, in exact arithmetic, bounds of e^ε towards privacy."""
    sums = [sum(w * size for w, size in zip(each, sizes, strict=True)) for each in (one, other)]
    limit = exp_bounds(epsilon)[0]
    quotients = [Fraction(a * sums[1], b * sums[0]) for a, b in zip(one, other, strict=True)]
    return all(1 / limit <= quotient <= limit for quotient in quotients)


@given(
    st.lists(st.tuples(st.integers(0, 3000), st.integers(-3, 3)), min_size=1, max_size=12),
    st.sampled_from(["0.05", "0.3", "1", "4", "20"]),
    st.sampled_from([1, 1 << 10, 1 << 60]),
)
def test_no_probability_moves_by_more_than_e_to_the_epsilon(
    pairs: list[tuple[int, int]], epsilon: str, size: int
) -> None:
    rate, sizes = rate_of(Fraction(epsilon), 3), [size] * len(pairs)
    one, other = (
        weights(column(*scores), rate, sum(sizes)) for scores in ([a for a, _ in pairs], [a + b for a, b in pairs])
    )
    assert within_epsilon(one, other, Fraction(epsilon), sizes)


def test_the_worst_neighbours_use_nearly_all_epsilon_and_excess_is_seen() -> None:
    # one candidate falls by Δ while the many that make up the sum rise by Δ: both move as far as they can
    pair = column(8, *[0] * 1000), column(6, *[2] * 1000)
    sizes = [1] * 1001

    def bounded(rate: Fraction, epsilon: Fraction) -> bool:
        one, other = (weights(scores, rate, 1001) for scores in pair)
        return within_epsilon(one, other, epsilon, sizes)

    for epsilon in (Fraction(1, 2), Fraction(2)):
        rate = rate_of(epsilon, 2)
        assert bounded(rate, epsilon)
        assert not bounded(rate, epsilon * Fraction(99, 100))
        assert not bounded(2 * rate, epsilon)  # forgets that the sum moves as well


def test_a_floor_keeps_every_point_possible_and_takes_next_to_nothing() -> None:
    far = weights(column(0, 1 << 61), Fraction(10), HUGE)
    assert far[1] > 1 << 27
    assert Fraction(far[1] * HUGE, far[0]) <= Fraction(1, 1 << 31)


@given(st.integers(0, 600), st.sampled_from([Fraction(1, 7), Fraction(1, 1000), Fraction(3)]))
def test_weights_are_the_power_and_the_floor_within_the_stated_error(score: int, rate: Fraction) -> None:
    best, found = weights(column(0, score), rate, 2)
    floor = 1 << (124 - 32 - 1)
    with localcontext() as context:
        context.prec = 80
        exponent = -Decimal(rate.numerator) / Decimal(rate.denominator) * score
        exact = Fraction(exponent.exp()) * (1 << 124)
    assert best == (1 << 124) + floor
    assert abs(found - floor - exact) <= exact / (1 << 45) + 1


@pytest.mark.parametrize("sized", [False, True])
def test_the_uniform_integer_finds_the_interval_of_every_index(sized: bool) -> None:
    rate, m = Fraction(1, 100), 2 * BLOCK + 17
    scores = (np.arange(m, dtype=np.int64) * 7919) % 523
    sizes = [1 + i % 3 for i in range(m)] if sized else None
    each = weights(scores, rate, m if sizes is None else sum(sizes))
    ends = list(itertools.accumulate(w * s for w, s in zip(each, sizes or [1] * m, strict=True)))
    for u in (0.0, 0.1, 0.499, 0.5, 0.7431, 1 - 2**-40):
        found = choose(scores, rate, Fixed(u), sizes)
        at = Fraction(u) * ends[-1]
        assert (ends[found - 1] if found else 0) <= at < ends[found]


def test_the_frequencies_are_the_stated_ones() -> None:
    """5 categories, 20,000 draws: chi-square above 33 with probability below 2·10⁻⁶; twice the rate is far above."""
    scores, rate, draws = column(0, 2, 3, 5, 9), Fraction(1, 4), 20_000
    source = Keystream()
    found = np.bincount([choose(scores, rate, source) for _ in range(draws)], minlength=5)

    def chi_square(c: Fraction) -> float:
        w = np.array(weights(scores, c, 5), np.float64)
        expected = draws * w / w.sum()
        return float(((found - expected) ** 2 / expected).sum())

    assert chi_square(rate) < 33
    assert chi_square(2 * rate) > 33


def test_a_point_of_a_huge_domain_comes_from_its_interval_uniformly() -> None:
    starts, sizes = [0, 10, 1 << 63], [10, (1 << 63) - 10, 1 << 63]
    source = Keystream()
    points = [choose_point(column(900, 0, 900), starts, sizes, Fraction(1), source) for _ in range(400)]
    # outside with probability below 2⁻³¹ each; 63 points below the middle: probability below 10⁻⁹ less than 130 of 400
    assert all(10 <= point < 1 << 63 for point in points)
    assert 130 < sum(point < 1 << 62 for point in points) < 270


def test_an_empty_interval_is_never_chosen() -> None:
    assert all(choose(column(0, 50), Fraction(1), Keystream(), [0, 3]) == 1 for _ in range(50))


def test_one_candidate_and_equal_scores() -> None:
    source = Keystream()
    assert choose(column(5), Fraction(1), source) == 0
    assert {choose(column(5, 5), Fraction(1), source) for _ in range(64)} == {0, 1}  # wrong with probability 2⁻⁶³


def test_what_is_no_choice_is_refused() -> None:
    source = Keystream()
    with pytest.raises(InvalidEpsilon, match="too small"):
        rate_of(SLACK, 1)
    with pytest.raises(InvalidMechanism, match="at least 1"):
        rate_of(Fraction(1), 0)
    with pytest.raises(InvalidMechanism, match="at least one"):
        choose(column(), Fraction(1), source)
    with pytest.raises(InvalidMechanism, match="64-bit integer"):
        choose(np.array([0.5]), Fraction(1), source)
    with pytest.raises(InvalidMechanism, match="greater than zero"):
        choose(column(1), Fraction(0), source)
    with pytest.raises(InvalidMechanism, match="too far apart"):
        choose(column(-(1 << 62), 1 << 62), Fraction(1), source)
    with pytest.raises(InvalidMechanism, match="not negative"):
        choose(column(1, 2), Fraction(1), source, [-1, 3])
    with pytest.raises(InvalidMechanism, match="2⁶⁴"):
        choose(column(1), Fraction(1), source, [HUGE + 1])
    with pytest.raises(InvalidMechanism, match="2⁶⁴"):
        uniform_below(0, source)


def test_rates_never_round_up() -> None:
    rate = rate_of(Fraction(1, 3), 7, draws=5)
    assert 2 * 7 * rate + SLACK <= Fraction(1, 15)
    assert 2 * 7 * rate + 2 * SLACK > Fraction(1, 15)
