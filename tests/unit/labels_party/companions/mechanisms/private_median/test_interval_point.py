"""Interval points and medians: exact odds on tiny data over all neighbours, degenerate and bad input."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from label_dp.errors import InvalidEpsilon, InvalidInput
from label_dp.privacy import exp_bounds
from labels_party.companions.mechanisms.private_median import interval_point as module
from labels_party.companions.mechanisms.private_median.interval_point import (
    FIND,
    IntervalPlan,
    IntervalPoint,
    _Prefix,
    by_ranks,
    common_prefix,
)
from labels_party.companions.mechanisms.private_median.median import MedianPlan, private_median, rising
from labels_party.mechanisms.choice import weights
from labels_party.mechanisms.entropy import Keystream

pytestmark = pytest.mark.extended

F = Fraction
DELTA = F(1, 10**9)


def points(*values: int) -> npt.NDArray[np.uint64]:
    return np.array(values, np.uint64)


def interval_point(data: npt.NDArray[np.uint64], plan: IntervalPlan) -> int | None:
    return IntervalPoint(plan, data.size, Keystream())(data)


def laplace_law(scale: Fraction, reach: int) -> npt.NDArray[np.float64]:
    """float64[2·reach + 1] of a discrete Laplace cut off where nothing is left."""
    t = np.abs(np.arange(-reach, reach + 1))
    p = np.exp(-t / float(scale))
    return np.asarray(p / p.sum(), np.float64)


@lru_cache
def choice_law(losses: tuple[int, ...], rate: Fraction) -> npt.NDArray[np.float64]:
    w = np.array([float(x) for x in weights(np.array(losses), rate, len(losses))])
    return np.asarray(w / w.sum(), np.float64)


def prefix_law(rows: npt.NDArray[np.uint64], plan: IntervalPlan, length: int, monkeypatch: pytest.MonkeyPatch) -> Any:
    """P of every outcome of the product's own step, by all pairs of noise, its choice replaced by its odds."""
    scale, threshold = plan.counting.scale, plan.threshold
    reach = threshold + 14 * math.ceil(scale)
    law, found = laplace_law(scale, reach), {}
    odds: list[npt.NDArray[np.float64]] = []
    source = Keystream()

    def captured(losses: npt.NDArray[np.int64], rate: Fraction, source: object) -> int:
        odds.append(choice_law(tuple(losses.tolist()), rate))
        return 0

    monkeypatch.setattr(module, "choose", captured)
    # noise too small to be shown needs only one representative
    ends = [-reach, *range(threshold - len(rows) - 1, reach + 2)]
    cells = list(itertools.pairwise(ends))
    mass = [law[a + reach : b + reach].sum() for a, b in cells]
    for (i, (a, _)), (j, (b, _)) in itertools.product(enumerate(cells), repeat=2):
        odds.clear()
        step = _Prefix(plan, length, source, lambda _s, _n, a=a, b=b: np.array([a, b], np.int64))
        first = step(rows)
        if first is None:
            found[None] = found.get(None, 0.0) + mass[i] * mass[j]
            continue
        rest = plan.bits - length
        three = [first, first + (1 << rest >> 1), first + (1 << rest) - 1]
        for value, chance in zip(three, odds[0], strict=True):
            found[value] = found.get(value, 0.0) + mass[i] * mass[j] * float(chance)
    return found


@pytest.mark.parametrize("length", [0, 1, 3])
def test_the_prefix_step_keeps_epsilon_and_delta_over_all_neighbours(
    length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = IntervalPlan(3 if length == 3 else 4, F(3), F(1, 10), base=8)
    values = [0, 3, 9] if plan.bits == 4 else [0, 3, 5]
    laws = {data: prefix_law(points(*data), plan, length, monkeypatch) for data in itertools.product(values, repeat=2)}
    worst = 0.0
    for one, other in itertools.permutations(laws, 2):
        if sum(a != b for a, b in zip(one, other, strict=True)) == 1:
            p, q = laws[one], laws[other]
            worst = max(worst, sum(max(0.0, p[v] - math.exp(3) * q.get(v, 0.0)) for v in p))
    assert worst <= float(plan.delta) + 1e-9
    # the test can fail: most of δ is really used where a prefix is new
    assert length == 0 or worst > 0.005


def test_control_a_threshold_one_scale_too_low_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = IntervalPlan(4, F(3), F(1, 10), base=8)
    scale, threshold = plan.counting.scale, plan.threshold
    low = threshold - 2 * math.ceil(scale)
    monkeypatch.setattr(IntervalPlan, "threshold", property(lambda _: low))
    one, other = (prefix_law(points(*data), plan, 1, monkeypatch) for data in ((0, 9), (0, 0)))
    assert sum(max(0.0, one[v] - math.exp(3) * other.get(v, 0.0)) for v in one) > float(plan.delta)


def test_ranks_are_chosen_with_exact_epsilon_over_all_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = IntervalPlan(3, F(1))
    law: dict[tuple[int, ...], list[Fraction]] = {}
    for data in itertools.product(range(8), repeat=3):
        each = [0] * 8

        def captured(losses: Any, starts: list[int], sizes: list[int], rate: Fraction, source: object) -> int:
            w = weights(losses, rate, sum(sizes))
            assert sum(sizes) == 8
            for start, size, weight in zip(starts, sizes, w, strict=True):
                for v in range(start, start + size):
                    each[v] += weight  # noqa: B023 - called before the next round
            return 0

        monkeypatch.setattr(module, "choose_point", captured)
        by_ranks(points(*data), plan, Keystream())
        assert min(each) > 0
        # every point has the weight of its own loss
        best = [min(sum(d <= v for d in data), sum(d >= v for d in data)) for v in range(8)]
        assert all((each[a] > each[b]) == (best[a] > best[b]) for a in range(8) for b in range(8))
        law[data] = [F(w, sum(each)) for w in each]
    most = exp_bounds(F(1))[0]
    allowed = {data: [most * chance for chance in p] for data, p in law.items()}
    for data, p in law.items():
        for value in range(8):
            other = allowed[(value, *data[1:])]
            assert all(a <= b for a, b in zip(p, other, strict=True))


@settings(max_examples=100)
@given(st.lists(st.tuples(st.integers(0, 255), st.integers(0, 255)), min_size=1, max_size=20))
def test_common_prefix_is_that_of_the_bits(pairs: list[tuple[int, int]]) -> None:
    a, b = (points(*column) for column in zip(*pairs, strict=True))
    for (x, y), length in zip(pairs, common_prefix(a, b, 8).tolist(), strict=True):
        assert format(x, "08b")[:length] == format(y, "08b")[:length]
        assert length == 8 or format(x, "08b")[length] != format(y, "08b")[length]


def test_the_domain_is_mapped_to_the_logarithm_of_its_size() -> None:
    deep = IntervalPlan(64, F(1), DELTA, base=8)
    assert [deep.depth, deep.lengths.bits, deep.lengths.lengths.bits, deep.lengths.lengths.recursive] == [
        2,
        7,
        3,
        False,
    ]
    assert IntervalPlan(64, F(1), DELTA).depth == 1
    assert IntervalPlan(7, F(1)).depth == 0
    # the recursion costs what one step costs
    for plan in (deep, IntervalPlan(64, F(1), DELTA)):
        assert (plan.cost(5000).epsilon, plan.cost(5000).delta) == (1, DELTA)


def test_without_delta_a_large_domain_is_refused_and_a_small_one_is_not() -> None:
    with pytest.raises(InvalidEpsilon, match="exponential mechanism"):
        IntervalPlan(8, F(1))
    assert IntervalPlan(7, F(1)).cost(5).delta == 0
    with pytest.raises(InvalidEpsilon, match="exponential mechanism"):
        MedianPlan(1000, 129, F(1))
    assert MedianPlan(1000, 128, F(1)).cost.delta == 0


@pytest.mark.parametrize("value", [0, 1, 12345, (1 << 64) - 1])
def test_equal_points_are_their_own_interval(value: int) -> None:
    same = np.full(1200, value, np.uint64)
    assert interval_point(same, IntervalPlan(64, F(1), DELTA)) == value
    assert private_median(np.repeat(same, 3), MedianPlan(3600, 1 << 64, F(1), DELTA)) == value


def test_one_point_or_none_gives_an_answer_or_a_clear_refusal() -> None:
    assert private_median(points(3), MedianPlan(1, 8, F(1))) in range(8)
    with pytest.raises(InvalidInput, match="too few"):
        MedianPlan(1, 1 << 20, F(1), DELTA)
    with pytest.raises(InvalidInput, match="no labels"):
        MedianPlan(0, 8, F(1))
    assert interval_point(points(*range(8)), IntervalPlan(20, F(1), DELTA)) is None
    assert MedianPlan(5, 1, F(1)).cost.epsilon == 1
    assert private_median(points(0, 0, 0, 0, 0), MedianPlan(5, 1, F(1))) == 0


def test_two_levels_of_the_recursion_find_a_point() -> None:
    data = np.random.default_rng(3).integers(10**6, 10**9, 6000).astype(np.uint64)
    found = interval_point(data, IntervalPlan(40, F(2), F(1, 10**6), base=8))
    assert found is not None
    assert data.min() <= found <= data.max()


@pytest.mark.parametrize(
    ("bits", "epsilon", "delta"), [(65, 1, 0), (-1, 1, 0), (4, 0, 0), (4, -1, 0), (4, 65, 0), (4, 1, 1), (4, 1, -1)]
)
def test_plans_that_make_no_sense_are_refused(bits: int, epsilon: int, delta: int) -> None:
    with pytest.raises((InvalidInput, InvalidEpsilon)):
        IntervalPlan(bits, F(epsilon), F(delta))


def test_points_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InvalidInput, match="another number"):
        IntervalPoint(IntervalPlan(3, F(1)), 3, Keystream())(points(1, 2))
    with pytest.raises(InvalidInput):
        private_median(points(1, 2), MedianPlan(3, 8, F(1)))
    with pytest.raises(InvalidInput, match="outside"):
        private_median(points(1, 6, 2), MedianPlan(3, 6, F(1)))


def test_the_noise_of_the_prefix_is_as_large_as_proved() -> None:
    plan = IntervalPlan(64, F(1), DELTA)
    scale, threshold = plan.counting.scale, plan.threshold
    assert scale >= 2 / (plan.epsilon * FIND)
    tail = math.exp(-(threshold - 1) / float(scale)) / (1 + math.exp(-1 / float(scale)))
    assert 2 * tail <= float(DELTA)
    assert 2 * tail > float(DELTA) / 4


def test_signed_keys_rise_with_unsigned_points() -> None:
    values = points(0, 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
    assert np.all(np.diff(rising(values).astype(object)) > 0)
