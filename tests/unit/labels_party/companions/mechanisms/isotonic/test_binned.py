"""Noisy sums of public cells: the means they are without noise, monotone with it, and a plan that keeps its word."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression

from label_dp.companions.maps.monotone_grid import MonotoneGrid
from label_dp.companions.maps.shapes import MAX_CELLS
from label_dp.domain import Domain
from label_dp.errors import InvalidEpsilon, InvalidInput, InvalidMechanism
from label_dp.privacy import Epsilon
from labels_party.companions.mechanisms.isotonic.binned import BinnedMeans
from labels_party.companions.mechanisms.isotonic.binning import default_bins
from labels_party.companions.mechanisms.isotonic.cells import Cells
from labels_party.companions.mechanisms.isotonic.grid import UNITS
from labels_party.companions.mechanisms.isotonic.projection import rising
from labels_party.companions.mechanisms.isotonic.total_order import isotonic
from labels_party.mechanisms.entropy import LaplaceNoise
from tests.support.asked import calibration_wish
from tests.support.isotonic_bounds import binned_excess_bound

pytestmark = pytest.mark.extended

TENS = Domain.parse("0:10")
ONE = Epsilon.parse("1")


def silent(_scale: Fraction, n: int) -> np.ndarray:
    return np.zeros(n, np.int64)


def test_without_noise_it_is_the_isotonic_regression_of_the_means_of_cells() -> None:
    x, y = np.arange(12), np.array([1, 0, 2, 9, 7, 8, 3, 4, 2, 10, 10, 9])
    plan = BinnedMeans(TENS, (Cells.even(12, 4),), 12, ONE)
    means = y.reshape(4, 3).mean(axis=1)
    assert plan.fit(x, y, silent).apply(x[::3]) == pytest.approx(isotonic_regression(means).x, abs=10 / UNITS)


def test_cells_weigh_by_examples_and_an_empty_one_is_one_of_the_middle() -> None:
    x, y = np.array([0, 0, 0, 1, 3, 3]), np.array([8, 8, 8, 0, 10, 10])
    plan = BinnedMeans(TENS, (Cells.even(4, 4),), 6, ONE)
    assert plan.fit(x, y, silent).apply(np.arange(4)) == pytest.approx([29 / 5] * 3 + [10.0], abs=10 / UNITS)
    nothing = np.zeros(0, np.int64)
    assert plan.fit(nothing, nothing, silent).apply(np.arange(4)).tolist() == [5.0] * 4


@given(
    st.lists(st.tuples(st.integers(0, 99), st.integers(0, 10)), min_size=1, max_size=60),
    st.integers(1, 30),
    st.lists(st.integers(-(1 << 50), 1 << 50), min_size=30, max_size=30),
)
def test_whatever_the_noise_the_map_rises_within_the_domain(
    rows: list[tuple[int, int]], cells: int, noise: list[int]
) -> None:
    x, y = np.array(rows).T
    plan = BinnedMeans(TENS, (Cells.even(100, cells),), len(rows), ONE)
    found = plan.fit(x, y, lambda _, n: np.array(noise[:n])).apply(np.arange(100))
    assert np.all(np.diff(found) >= 0)
    assert 0 <= found[0] <= found[-1] <= 10


@pytest.mark.parametrize("domain", ["0:10", "0:1:0.25", "-5:10000000:1"])
def test_a_replaced_label_moves_one_sum_by_the_sensitivity_at_most(domain: str) -> None:
    labels, x = Domain.parse(domain), np.array([0, 3, 3, 7])
    plan = BinnedMeans(labels, (Cells.even(8, 4),), 4, Epsilon.parse("0.37"))
    most = 0
    for old, new in ((0, labels.k - 1), (labels.k - 1, 0), (0, 1), (labels.k // 2, labels.k - 1)):
        for row in range(4):
            one = np.full(4, labels.k // 3)
            two = one.copy()
            one[row], two[row] = old, new
            moved = np.abs(plan.sums(x, one)[0] - plan.sums(x, two)[0])
            assert np.count_nonzero(moved) <= 1
            most = max(most, int(moved.max()))
    assert most == UNITS == plan.noise.sensitivity
    assert plan.noise.scale * plan.epsilon.fraction >= UNITS


def test_the_noise_has_the_plans_scale_and_a_draw_for_every_cell() -> None:
    asked = []

    def told(noise: LaplaceNoise, n: int) -> np.ndarray:
        asked.append((noise, n))
        return silent(noise, n)

    plan = BinnedMeans(TENS, (Cells.even(10, 5),), 3, Epsilon.parse("0.1"))
    plan.fit(np.array([0, 0, 1]), np.array([1, 2, 3]), told)  # three cells are empty
    assert asked == [(LaplaceNoise(UNITS, Fraction(1, 10)), 5)]


def test_the_error_of_the_noise_is_below_its_bound_and_that_of_algorithm_1() -> None:
    """Over 40 fits of 2,000 labels; the bound holds for the mean, which is here about half of it."""
    rng = np.random.default_rng(1)
    domain, x = Domain.parse("0:99"), np.arange(2000)
    y = np.clip(np.rint(x / 25 + rng.normal(0, 20, 2000)), 0, 99).astype(np.int64)
    plan = BinnedMeans(domain, (Cells.even(2000, default_bins(2000, ONE)),), 2000, ONE)
    best = plan.fit(x, y, silent).apply(x)
    lost = [np.sum((plan.fit(x, y).apply(x) - best) ** 2) for _ in range(40)]
    bound = binned_excess_bound(plan, plan.sums(x, y)[1])
    assert 0.2 * bound < np.mean(lost) < bound
    algorithm_1 = isotonic(x, y, domain, 2000, ONE).apply(x)
    assert np.sum((algorithm_1 - y) ** 2) - np.sum((best - y) ** 2) > 2 * max(lost)


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 10)), max_size=40),
    st.tuples(st.integers(1, 5), st.integers(1, 5)),
    st.lists(st.integers(-(1 << 40), 1 << 40), min_size=25, max_size=25),
)
def test_of_two_scores_the_map_falls_in_neither(
    rows: list[tuple[int, int, int]], shape: tuple[int, int], noise: list[int]
) -> None:
    table = np.array(rows, np.int64).reshape(-1, 3)
    plan = BinnedMeans(TENS, (Cells.even(10, shape[0]), Cells.even(10, shape[1])), len(rows) + 1, ONE)
    found = plan.fit(table[:, :2].T, table[:, 2], lambda _, n: np.array(noise[:n]))
    assert isinstance(found, MonotoneGrid)  # which refuses what falls
    assert found.values.shape == shape
    assert 0 <= found.values[0, 0] <= found.values[-1, -1] <= 10


def test_sums_of_two_scores_are_those_of_their_cells() -> None:
    x, y = np.array([[0, 0, 9, 9, 9], [0, 9, 0, 0, 9]]), np.array([1, 2, 3, 4, 10])
    plan = BinnedMeans(TENS, (Cells.even(10, 2), Cells.even(10, 2)), 5, ONE)
    sums, counts = plan.sums(x, y)
    assert counts.tolist() == [[1, 1], [2, 1]]
    assert (sums / UNITS * 10).tolist() == pytest.approx(np.array([[1.0, 2.0], [7.0, 10.0]]), abs=1e-3)
    found = plan.fit(x, y, silent)
    assert isinstance(found, MonotoneGrid)
    assert found.values == pytest.approx(np.array([[1.0, 2.0], [3.5, 10.0]]), abs=1e-3)
    with pytest.raises(InvalidInput):
        plan.fit(x[0], y)
    with pytest.raises(InvalidMechanism):
        BinnedMeans(TENS, (Cells.even(100, 100), Cells.even(100, 100)), 5, ONE)


@given(st.integers(0, 1 << 30))
def test_the_projection_on_rising_tables_is_the_nearest(seed: int) -> None:
    """By what characterises it: the residue is orthogonal to it, and turned away from every rising table."""
    rng = np.random.default_rng(seed)
    values, weights = rng.normal(0, 1, (4, 5)), rng.uniform(0.2, 3, (4, 5))
    found = rising(values, weights)
    residue = weights * (values - found)
    assert abs(float((residue * found).sum())) < 1e-4
    for i in range(4):
        for j in range(5):
            step = np.zeros((4, 5))
            step[i:, j:] = 1
            assert float((residue * step).sum()) < 1e-4
    assert float(residue.sum()) == pytest.approx(0, abs=1e-4)
    assert rising(found, weights) == pytest.approx(found, abs=1e-6)


@pytest.mark.parametrize("length", [1, 2, 7, 500])
def test_the_projection_of_a_line_is_that_of_scipy(length: int) -> None:
    rng = np.random.default_rng(length)
    for values in (rng.normal(0, 1, length), rng.integers(0, 4, length).astype(float), np.arange(length)[::-1] * 1.0):
        weights = rng.uniform(0.2, 3, length)
        assert rising(values, weights) == pytest.approx(isotonic_regression(values, weights=weights).x, abs=1e-12)


def test_one_label_and_one_cell_are_degenerate() -> None:
    one = BinnedMeans(Domain.parse("3:3"), (Cells.even(5, 5),), 2, ONE).fit(np.array([0, 4]), np.array([0, 0]))
    assert one.apply(np.arange(5)).tolist() == [3.0] * 5


def test_what_cannot_be_done_is_refused_before_a_label_is_read() -> None:
    cells = Cells.even(10, 2)
    with pytest.raises(InvalidEpsilon):
        BinnedMeans(TENS, (cells,), 5, Epsilon(0))
    with pytest.raises(InvalidInput):
        BinnedMeans(TENS, (cells,), 1 << 30, ONE)
    BinnedMeans(TENS, (cells,), 5, Epsilon(1))  # a nano-ε: noise beyond use, and within 64 bits


def test_how_many_cells_follows_from_n_and_epsilon() -> None:
    assert [default_bins(n, Epsilon.parse(e)) for n, e in ((1, "0.1"), (10_000, "1"), (10**9, "10"))] == [
        2,
        75,
        MAX_CELLS,
    ]


def test_auto_takes_bins_for_means_and_medians() -> None:
    for loss, two in itertools.product(("squared", "absolute"), (False, True)):
        assert calibration_wish(epsilon="1", loss=loss, two=two).shape == "bins"
