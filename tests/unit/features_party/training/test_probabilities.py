"""Metrics of probabilities against oracles that go over all pairs, all outputs, or all groups of rows."""

from __future__ import annotations

import itertools
import math

import numpy as np
import numpy.typing as npt
import pytest
from scipy.optimize import minimize
from scipy.stats import mannwhitneyu

from features_party.training.calibration import equal_groups, slope
from features_party.training.holdout import estimate_on_rows, identify
from features_party.training.intervals import rate
from features_party.training.probabilities import NAMES, Probabilities, judge, probability_members
from features_party.training.ranking import auc
from label_dp.channels.base import Channel
from tests.support.messages import one_bit, rr

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


def pairs(f: FloatArray, g: FloatArray, group: IntArray, theta: float = 0.0) -> FloatArray:
    """float64[C, C]: for each pair of different examples the sum of g_i (1 − g_j)(φ_ij − θ)."""
    found = np.zeros((group.max() + 1,) * 2)
    for i, j in itertools.product(range(len(f)), repeat=2):
        if group[i] != group[j]:
            phi = 1.0 if f[i] > f[j] else 0.5 if f[i] == f[j] else 0.0
            found[group[i], group[j]] += g[i] * (1 - g[j]) * (phi - theta)
    return found


def brute(f: FloatArray, g: FloatArray, group: IntArray) -> tuple[float, float]:
    """(AUC, standard error) by the definition."""
    below, zero = pairs(f, g, group, 1.0).sum(), pairs(f, g, group).sum()
    theta, total = zero / (zero - below), zero - below
    h = pairs(f, g, group, theta)
    psi = h.sum(axis=0) + h.sum(axis=1)
    return theta, math.sqrt(psi @ psi * len(psi) / (len(psi) - 1)) / abs(total)


def flipped(rng: np.random.Generator, y: FloatArray, epsilon: float) -> FloatArray:
    """g of randomized response."""
    flip = 1 / (1 + math.exp(epsilon))
    return np.asarray((np.where(rng.random(len(y)) < flip, 1 - y, y) - flip) / (1 - 2 * flip))


def judged(f: FloatArray, g: FloatArray, examples: IntArray | None = None, constant: float = 0.5) -> Probabilities:
    found = judge(f, constant, g, np.arange(len(f)) if examples is None else examples)
    assert isinstance(found, Probabilities)
    return found


@pytest.mark.parametrize("values", [3, 1000])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("noisy", [False, True])
def test_auc_is_that_of_all_pairs(values: int, shared: bool, noisy: bool) -> None:
    for seed in range(5):
        rng = np.random.default_rng(seed)
        n = 60
        group = rng.integers(0, 35, n) if shared else rng.permutation(n)
        group = np.unique(group, return_inverse=True)[1]
        label = (rng.random(n) < 0.5).astype(np.float64)[group]  # rows of one example share it
        f = rng.integers(0, values, n) / values  # and need not share the prediction
        g = flipped(rng, label, 2.0) if noisy else label
        found = auc(f, g, group)
        assert (found.estimate, found.standard_error) == pytest.approx(brute(f, g, group), rel=1e-9)


def test_auc_of_true_labels_is_mann_whitneys_with_delongs_error() -> None:
    rng = np.random.default_rng(0)
    y = (rng.random(400) < 0.3).astype(np.float64)
    f = np.round(rng.normal(y, 1.0), 1)
    found = auc(f, y, np.arange(400))
    ones, zeros = f[y == 1], f[y == 0]
    assert found.estimate == pytest.approx(mannwhitneyu(ones, zeros).statistic / (len(ones) * len(zeros)))
    place = (ones[:, None] > zeros) + 0.5 * (ones[:, None] == zeros)
    delong = place.mean(axis=1).var() / len(ones) + place.mean(axis=0).var() / len(zeros)
    assert found.standard_error == pytest.approx(math.sqrt(delong), rel=2e-3)  # but for n/(n − 1)


def test_every_sum_has_the_expectation_that_true_labels_give() -> None:
    """Over all outputs of the channel, with their probabilities: no draws."""
    channel = rr("0:1", 1.0, cuts=(1,))
    values, matrix = identify(channel).first + 0.5, channel.matrix()
    y, f, group = np.array([1, 0, 0, 1, 1]), np.array([0.7, 0.7, 0.2, 0.1, 0.9]), np.array([0, 1, 2, 3, 3])
    sums, brier, log_loss = np.zeros((4, 4)), 0.0, 0.0
    for outputs in itertools.product((0, 1), repeat=5):
        chance, g = float(np.prod(matrix[y, outputs])), values[list(outputs)]
        sums += chance * pairs(f, g, group, 0.3)
        assert isinstance(judge(np.tile(f, 10), 0.5, np.tile(g, 10), np.arange(50)), Probabilities)
        found = judged(np.tile(f, 10), np.tile(g, 10))
        brier, log_loss = brier + chance * found.brier.estimate, log_loss + chance * found.log_loss.estimate
    assert np.allclose(sums, pairs(f, y.astype(np.float64), group, 0.3), atol=1e-12)
    assert brier == pytest.approx(np.mean((f - y) ** 2))
    assert log_loss == pytest.approx(-np.mean(np.where(y == 1, np.log(f), np.log(1 - f))))


def test_copies_of_rows_say_nothing_new() -> None:
    rng = np.random.default_rng(1)
    y = (rng.random(300) < 0.4).astype(np.float64)
    f = 0.3 * y + rng.random(300) * 0.7
    once, twice = judged(f, y), judged(np.tile(f, 2), np.tile(y, 2), np.tile(np.arange(300), 2))
    for name in ("brier", "log_loss", "auc"):
        a, b = getattr(once, name), getattr(twice, name)
        assert (b.estimate, b.standard_error) == pytest.approx((a.estimate, a.standard_error)), name
    assert once.calibration.slope is not None
    assert twice.calibration.slope is not None
    assert twice.calibration.slope.standard_error == pytest.approx(once.calibration.slope.standard_error, rel=1e-6)


def test_predictions_of_0_and_1_cost_no_more_than_the_cut() -> None:
    y = np.tile([1.0, 0.0], 50)
    wrong = judged(1 - y, y)
    assert wrong.log_loss.estimate == pytest.approx(-math.log(1e-6))
    assert wrong.brier.estimate == 1.0
    assert judged(y, y).log_loss.estimate == pytest.approx(1e-6, rel=1e-3)
    assert judged(y * 3 - 1, y).brier.estimate == 0.0  # predictions beyond the labels are cut
    assert wrong.constant_log_loss.estimate == pytest.approx(math.log(2))


def test_perfect_order_is_not_certain() -> None:
    y = np.repeat([0.0, 1.0], [60, 20])
    found = judged(np.linspace(0, 1, 80), y).auc
    assert found is not None
    # one side of 95 %: twenty disjoint pairs in order
    assert (found.estimate, found.high) == (1.0, 1.0)
    assert found.low == pytest.approx(0.025 ** (1 / 20))
    backwards = judged(np.linspace(1, 0, 80), y).auc
    assert backwards is not None
    assert (backwards.low, backwards.high) == (0.0, pytest.approx(1 - found.low))


@pytest.mark.parametrize(("value", "rare"), [(0.0, "ones"), (1.0, "zeros")])
def test_one_class_orders_nothing(value: float, rare: str) -> None:
    found = judged(np.linspace(0.1, 0.9, 50), np.full(50, value))
    assert found.auc is None
    assert f"number of {rare}" in found.auc_why
    assert found.calibration.slope is None
    assert found.calibration.slope_why == found.auc_why
    # 50 equal labels leave a rate of a tenth possible
    assert abs(found.positive_rate.estimate - value) == 0.0
    assert found.positive_rate.high - found.positive_rate.low == pytest.approx(0.087, abs=0.001)


def test_ones_that_the_noise_hides_order_nothing() -> None:
    rng = np.random.default_rng(4)
    y = (rng.random(2000) < 0.05).astype(np.float64)
    f = rng.random(2000)
    assert judged(f, y).auc is not None
    found = judged(f, flipped(rng, y, 0.5))
    assert found.auc is None
    assert "ones" in found.auc_why
    assert found.brier.low < np.mean((f - y) ** 2) < found.brier.high


def test_equal_predictions_have_no_slope_and_an_auc_of_a_half() -> None:
    found = judged(np.full(100, 0.3), np.tile([1.0, 0.0], 50), constant=0.3)
    assert found.auc is not None
    assert (found.auc.low, found.auc.estimate, found.auc.high) == (0.5, 0.5, 0.5)
    assert found.calibration.slope is None
    assert "do not differ" in found.calibration.slope_why
    (group,) = found.calibration.groups
    assert (group.rows, group.predicted) == (100, pytest.approx(0.3))
    assert found.calibration.in_the_large.estimate == pytest.approx(0.2)
    assert found.log_loss.estimate == found.constant_log_loss.estimate


def test_other_labels_are_moved_to_0_and_1() -> None:
    rng = np.random.default_rng(5)
    y, f = (rng.random(200) < 0.4).astype(np.float64), rng.random(200)
    moved = judge(f * 8 - 3, 1.0, y * 8 - 3, np.arange(200), (-3.0, 5.0))
    assert isinstance(moved, Probabilities)
    plain = judged(f, y)
    for name in ("auc", "brier", "log_loss", "constant_log_loss", "positive_rate"):
        a, b = getattr(moved, name), getattr(plain, name)
        assert (a.estimate, a.low, a.high) == pytest.approx((b.estimate, b.low, b.high)), name


def test_few_examples_are_a_sentence() -> None:
    found = judge(np.full(40, 0.5), 0.5, np.ones(40), np.arange(40) % 29)
    assert isinstance(found, str)
    members = probability_members(found)
    assert all(members[name] is None for name in NAMES)
    assert "29 examples are too few" in str(members["auc_why"])


def test_a_slope_is_that_of_logistic_regression_on_the_logit() -> None:
    rng = np.random.default_rng(6)
    f = rng.uniform(0.05, 0.95, 500)
    logit = np.log(f / (1 - f))
    y = (rng.random(500) < 1 / (1 + np.exp(-0.5 * logit + 0.3))).astype(np.float64)
    found = slope(f, y, np.arange(500))
    assert found is not None
    design = np.column_stack([np.ones(500), logit])
    best = minimize(lambda b: np.mean(np.logaddexp(0, design @ b) - y * (design @ b)), [0.0, 1.0], tol=1e-12).x
    assert found.estimate == pytest.approx(best[1], abs=1e-5)
    p = 1 / (1 + np.exp(-design @ best))
    bread = np.linalg.inv(design.T @ (design * (p * (1 - p))[:, None]))
    sandwich = bread @ (design.T @ (design * ((y - p) ** 2)[:, None])) @ bread
    assert found.standard_error == pytest.approx(math.sqrt(sandwich[1, 1] * 500 / 499), rel=1e-4)


@pytest.mark.parametrize("least", [1e-6, 1e-3])
def test_a_slope_is_reached_if_almost_all_predictions_are_at_the_cut(least: float) -> None:
    """There Newton's first step is far too long."""
    y = np.tile([1.0, 0.0, 0.0, 0.0], 100)
    found = slope(np.where(np.arange(400) < 40, 2 * least, least), y, np.arange(400))
    assert found is not None
    assert found.estimate == pytest.approx(0.0, abs=1e-6)


def test_labels_in_perfect_order_have_no_finite_slope() -> None:
    y = np.repeat([0.0, 1.0], 50)
    assert slope(0.2 + 0.5 * y, y, np.arange(100)) is None
    found = judged(0.2 + 0.5 * y, y).calibration
    assert found.slope is None
    assert "finite slope" in found.slope_why


def test_groups_are_equal_and_keep_ties_together() -> None:
    rng = np.random.default_rng(7)
    f = rng.permutation(1000) / 1000
    number = equal_groups(f, 10)
    assert np.bincount(number).tolist() == [100] * 10
    assert np.array_equal(number, np.floor(f * 10).astype(np.int64))
    tied = np.repeat([0.0, 0.5, 1.0], [700, 200, 100])
    assert np.bincount(equal_groups(tied, 10)).tolist() == [700, 200, 100]
    y = (rng.random(1000) < f).astype(np.float64)
    for at, group in enumerate(judged(f, y).calibration.groups):
        here = number == at
        assert (group.rows, group.predicted) == (100, pytest.approx(f[here].mean()))
        assert group.observed == rate(y[here], np.arange(100))
        assert 0.0 <= group.observed.low <= group.observed.estimate <= group.observed.high <= 1.0


def test_a_group_of_one_example_has_an_interval_too() -> None:
    found = rate(np.ones(3), np.zeros(3, np.int64))
    assert found.estimate == 1.0
    assert math.isfinite(found.standard_error)
    assert found.low < 0.5


def test_only_labels_of_the_same_two_values_in_all_messages_have_them() -> None:
    rng, n = np.random.default_rng(8), 400
    f, rows = rng.random(n), np.arange(n)
    bits, message = rng.integers(0, 2, n), rng.integers(0, 2, n)

    def members(*channels: Channel) -> dict[str, object]:
        return estimate_on_rows(f, 0.5, channels, message % len(channels), bits, rows).as_json()

    binary, one = rr("0:1", 2.0, cuts=(1,)), one_bit("0:1", 1.0)
    assert set(NAMES) <= set(members(binary))
    assert set(NAMES) <= set(members(binary, one))
    assert not set(NAMES) & set(members(one_bit("0:10")))
    assert not set(NAMES) & set(members(binary, one_bit("0:10")))
    scaled = estimate_on_rows(f * 3 + 2, 3.5, [one_bit("2:5:3", 1.0)], message * 0, bits, rows).probabilities
    plain = estimate_on_rows(f, 0.5, [one], message * 0, bits, rows).probabilities
    assert isinstance(scaled, Probabilities)
    assert isinstance(plain, Probabilities)
    assert scaled.brier.estimate == pytest.approx(plain.brier.estimate)
    assert scaled.log_loss.high == pytest.approx(plain.log_loss.high)
