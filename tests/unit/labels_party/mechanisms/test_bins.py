"""The bin solver against brute force, and its promises at the edges."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from label_dp.errors import InvalidEpsilon, InvalidLoss, InvalidPrior
from label_dp.losses import POISSON_FLOOR, MatrixLoss, get_loss
from labels_party.mechanisms import bins as bins_module
from labels_party.mechanisms.bins import Bins, polish, solve_bins, warm_up
from labels_party.mechanisms.bins_grid import solve_grid
from labels_party.mechanisms.bins_paths import Instance, prefix_sums

LOSSES = ("squared", "absolute", "poisson")


@pytest.fixture(params=["numpy", "numba"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both implementations; the module's state is put back."""
    monkeypatch.setattr(bins_module, "_kernels", None)
    if request.param == "numba":
        warm_up()
    return str(request.param)


def evaluate(p: np.ndarray, y: np.ndarray, epsilon: float, loss: str, result: Bins) -> float:
    """Expected loss straight from the channel matrix."""
    d, e = result.values.size, math.exp(epsilon)
    M = np.full((y.size, d), 1 / (e + d - 1))
    M[np.arange(y.size), np.repeat(np.arange(d), np.diff(result.boundaries))] = e / (e + d - 1)
    return float(p @ (M * get_loss(loss).matrix(result.values, y)).sum(axis=1))


def brute_force(p: np.ndarray, y: np.ndarray, epsilon: float, loss: str) -> float:
    """Least expected loss over all partitions into intervals, best output each."""
    gain, best, ell = math.expm1(epsilon), math.inf, get_loss(loss)
    for cuts in itertools.product([False, True], repeat=y.size - 1):
        edges = [0, *(i + 1 for i, cut in enumerate(cuts) if cut), y.size]
        total = 0.0
        for i, j in itertools.pairwise(edges):
            w = p.copy()
            w[i:j] *= 1 + gain
            if loss == "absolute":
                total += float((w @ np.abs(y[:, None] - y[None, :])).min())
            else:
                v = max(float(w @ y / w.sum()), POISSON_FLOOR) if loss == "poisson" else float(w @ y / w.sum())
                total += float(w @ ell.pointwise(np.full(y.size, v), y))
        best = min(best, total / (len(edges) - 1 + gain))
    return best


def random_instance(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, float]:
    k = int(rng.integers(1, 9))
    y = np.sort(rng.choice(40, k, replace=False)).astype(float)
    p = rng.dirichlet(np.full(k, rng.choice([0.2, 1.0, 5.0])))
    if k > 2 and rng.random() < 0.5:
        p[rng.integers(k, size=2)] = 0.0
    p = p / p.sum() if p.sum() > 0 else np.full(k, 1 / k)
    return p, y, round(float(10 ** rng.uniform(-1.5, 1.0)), 6)


@pytest.mark.parametrize("loss", LOSSES)
def test_equals_brute_force(path: str, loss: str) -> None:
    rng = np.random.default_rng(11)
    for _ in range(60):
        p, y, epsilon = random_instance(rng)
        result = solve_bins(p, y, epsilon, loss)
        want = brute_force(p, y, epsilon, loss)
        assert result.expected_loss == pytest.approx(want, rel=1e-9, abs=1e-12)
        assert evaluate(p, y, epsilon, loss, result) == pytest.approx(result.expected_loss, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
def test_numpy_and_numba_agree(loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    for k, epsilon in ((2, 0.5), (60, 1.0), (257, 3.0), (401, 6.0)):
        y, p = np.arange(float(k)), rng.dirichlet(np.full(k, 0.3))
        monkeypatch.setattr(bins_module, "_kernels", None)
        plain = solve_bins(p, y, epsilon, loss)
        warm_up()
        compiled = solve_bins(p, y, epsilon, loss)
        assert compiled.boundaries.tolist() == plain.boundaries.tolist()
        assert compiled.values == pytest.approx(plain.values, rel=1e-12)
        assert compiled.expected_loss == pytest.approx(plain.expected_loss, rel=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
def test_searching_without_stored_costs_agrees(loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(6)
    warm_up()
    for epsilon in (0.1, 1.0, 4.0, 8.0):
        y, p = np.arange(700.0), rng.dirichlet(np.full(700, 0.2))
        monkeypatch.setattr(bins_module, "STORED_LABELS", 2000)
        stored = solve_bins(p, y, epsilon, loss)
        monkeypatch.setattr(bins_module, "STORED_LABELS", 100)
        monkeypatch.setattr(bins_module, "NUMPY_LABELS", 100)
        pruned = solve_bins(p, y, epsilon, loss)
        assert pruned.expected_loss == pytest.approx(stored.expected_loss, rel=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
def test_an_offset_of_a_hundred_million_changes_nothing_it_should_not(path: str, loss: str) -> None:
    rng = np.random.default_rng(2)
    for _ in range(5):
        y, p = np.arange(50.0), rng.dirichlet(np.full(50, 0.5))
        near, far = solve_bins(p, y, 1.5, loss), solve_bins(p, y + 1e8, 1.5, loss)
        if loss == "poisson":  # at this offset the loss is (v − y)²/(2y) to a relative 10⁻⁶
            near = solve_bins(p, y, 1.5, "squared")
            assert far.expected_loss == pytest.approx(near.expected_loss / 2e8, rel=1e-5)
        else:
            assert far.boundaries.tolist() == near.boundaries.tolist()
            assert far.values - 1e8 == pytest.approx(near.values, abs=1e-6)
            assert far.expected_loss == pytest.approx(near.expected_loss, rel=1e-7)
        assert far.gap == 0.0


@pytest.mark.parametrize("loss", LOSSES)
def test_every_label_belongs_to_its_nearest_output(path: str, loss: str) -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        y, p = np.arange(60.0), rng.dirichlet(np.full(60, 0.1))
        p[10:30] = 0.0
        p /= p.sum()
        result = solve_bins(p, y, 2.0, loss)
        cost = get_loss(loss).matrix(result.values, y)
        own = np.repeat(np.arange(result.values.size), np.diff(result.boundaries))
        assert np.all(cost[np.arange(60), own] <= cost.min(axis=1) + 1e-9)
        assert np.all(np.diff(result.values) > 0)
        assert np.all(np.diff(result.boundaries) > 0)


@pytest.mark.parametrize("loss", LOSSES)
def test_degenerate_instances(path: str, loss: str) -> None:
    one = solve_bins([1.0], [7.0], 1.0, loss)
    assert (one.boundaries.tolist(), one.values.tolist(), one.expected_loss) == ([0, 1], [7.0], 0.0)
    mass = solve_bins([0.0, 1.0, 0.0], [1.0, 2.0, 3.0], 1.0, loss)
    assert (mass.values.tolist(), mass.expected_loss) == ([2.0], 0.0)
    for epsilon in ("0", "0.000000001"):
        flat = solve_bins(np.full(4, 0.25), np.arange(4.0), epsilon, loss)
        assert flat.expected_loss == pytest.approx(
            brute_force(np.full(4, 0.25), np.arange(4.0), float(epsilon), loss), rel=1e-12
        )
    huge = solve_bins(np.full(4, 0.25), np.arange(1.0, 5.0), 1000.0, loss)
    assert huge.boundaries.tolist() == [0, 1, 2, 3, 4]
    assert huge.expected_loss == pytest.approx(0.0, abs=1e-15)


@pytest.mark.parametrize("loss", LOSSES)
def test_ties_are_settled_the_same_way_every_time(path: str, loss: str) -> None:
    p, y = np.full(8, 0.125), np.arange(1.0, 9.0)
    first = solve_bins(p, y, 1.0, loss)
    for _ in range(3):
        again = solve_bins(p, y, 1.0, loss)
        assert again.boundaries.tolist() == first.boundaries.tolist()
        assert again.values.tolist() == first.values.tolist()


@pytest.mark.parametrize("loss", LOSSES)
def test_coarse_to_fine_search_bounds_the_optimum(loss: str) -> None:
    warm_up()
    rng = np.random.default_rng(9)
    for k, epsilon in ((900, 0.3), (900, 1.0), (1400, 3.0), (1400, 5.0)):
        y = np.arange(float(k))
        p = np.exp(-y / (k / 8)) * rng.gamma(0.5, size=k)
        p /= p.sum()
        exact = solve_bins(p, y, epsilon, loss)
        instance = Instance.of(p, y, epsilon, get_loss(loss))
        values, bound = solve_grid(instance)
        _, _, reached = polish(instance, values)
        assert bound * instance.unit <= exact.expected_loss * (1 + 1e-12)
        assert reached == pytest.approx(exact.expected_loss, rel=1e-4)
        assert reached >= exact.expected_loss * (1 - 1e-12)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_domain_beyond_the_exact_path_reports_an_honest_gap(loss: str) -> None:
    k = bins_module.EXACT_LABELS + 2000
    y = np.arange(float(k))
    p = np.exp(-y / 2000.0)
    p /= p.sum()
    result = solve_bins(p, y, 1.0, loss)
    assert 0.0 <= result.gap < 1e-5
    assert result.values.size >= 2


def matrix_brute_force(p: np.ndarray, table: np.ndarray, epsilon: float) -> float:
    gain, best = math.expm1(epsilon), math.inf
    k, m = table.shape
    for chosen in itertools.combinations_with_replacement(range(m), k):
        used = sorted(set(chosen))
        own = float(sum(p[y] * table[y, a] for y, a in enumerate(chosen)))
        best = min(best, (float((p @ table[:, used]).sum()) + gain * own) / (len(used) + gain))
    return best


def test_matrix_loss_equals_brute_force() -> None:
    rng = np.random.default_rng(4)
    for _ in range(40):
        k, m = int(rng.integers(1, 6)), int(rng.integers(1, 6))
        y, v, table = np.arange(float(k)), np.arange(float(m)) * 0.7, rng.random((k, m))
        p, epsilon = rng.dirichlet(np.ones(k)), round(float(rng.uniform(0.1, 5)), 6)
        result = solve_bins(p, y, epsilon, MatrixLoss(y, v, table))
        assert result.expected_loss == pytest.approx(matrix_brute_force(p, table, epsilon), rel=1e-12)
        assert set(result.values.tolist()) <= set(v.tolist())
        assert np.all(np.diff(result.values) > 0)


def test_matrix_form_of_a_named_loss_agrees_with_it() -> None:
    rng = np.random.default_rng(8)
    y, p = np.arange(30.0), rng.dirichlet(np.full(30, 0.4))
    p[5:15] = 0.0
    p /= p.sum()
    table = np.abs(y[None, :] - y[:, None])
    named, listed = solve_bins(p, y, 2.0, "absolute"), solve_bins(p, y, 2.0, MatrixLoss(y, y, table))
    assert listed.expected_loss == pytest.approx(named.expected_loss, rel=1e-12)
    own = np.repeat(np.arange(listed.values.size), np.diff(listed.boundaries))
    cost = np.abs(listed.values[None, :] - y[:, None])
    assert np.all(cost[np.arange(30), own] <= cost.min(axis=1) + 1e-12)


def test_prefix_sums_do_not_lose_small_terms() -> None:
    terms = np.concatenate([[1e16], np.ones(1000), [-1e16]])
    assert prefix_sums(terms)[-1] == 1000.0


def test_bad_input_is_refused() -> None:
    with pytest.raises(InvalidPrior):
        solve_bins([0.5, 0.6], [0.0, 1.0], 1.0)
    with pytest.raises(InvalidPrior):
        solve_bins([np.nan, 1.0], [0.0, 1.0], 1.0)
    with pytest.raises(InvalidLoss):
        solve_bins([0.5, 0.5], [1.0, 0.0], 1.0)
    with pytest.raises(InvalidLoss):
        solve_bins([0.5, 0.5], [-1.0, 0.0], 1.0, "poisson")
    with pytest.raises(InvalidEpsilon):
        solve_bins([0.5, 0.5], [0.0, 1.0], -1.0)
