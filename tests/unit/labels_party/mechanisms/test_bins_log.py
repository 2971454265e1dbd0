"""Bins of the log loss: against all partitions, all randomizers, and the same loss as a matrix."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from label_dp.errors import InvalidLoss
from label_dp.losses import LOG, LOG_FLOOR, MatrixLoss
from labels_party.mechanisms import bins as bins_module
from labels_party.mechanisms.bins import Bins, solve_bins
from tests.unit.labels_party.mechanisms.test_bins_oracle import all_randomizers

pytestmark = pytest.mark.extended

ENDS = LOG_FLOOR, 1.0 - LOG_FLOOR


def instances(seed: int, count: int, largest: int = 9) -> list[tuple[np.ndarray, np.ndarray, float]]:
    """Priors, labels in hundredths between 0 and 1, both of them among the labels at times, and ε."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(count):
        k = int(rng.integers(1, largest))
        y = np.sort(rng.choice(101, k, replace=False)) / 100.0
        p = rng.dirichlet(np.full(k, rng.choice([0.2, 1.0, 5.0])))
        if k > 2 and rng.random() < 0.5:
            p[rng.integers(k, size=2)] = 0.0
        if rng.random() < 0.3:
            y[0], y[-1] = 0.0, 1.0 if k > 1 else 0.0
        p = p / p.sum() if p.sum() > 0 else np.full(k, 1 / k)
        found.append((p, y, round(float(10 ** rng.uniform(-1.5, 1.0)), 6)))
    return found


def brute_force(p: np.ndarray, y: np.ndarray, epsilon: float) -> float:
    """Least expected loss over all partitions into intervals; the best output is the weighted mean."""
    gain, best = math.expm1(epsilon), math.inf
    for cuts in itertools.product([False, True], repeat=y.size - 1):
        edges = [0, *(i + 1 for i, cut in enumerate(cuts) if cut), y.size]
        total = 0.0
        for i, j in itertools.pairwise(edges):
            w = p.copy()
            w[i:j] *= 1 + gain
            v = min(max(float(w @ y / w.sum()), ENDS[0]), ENDS[1])
            total += float(w @ LOG.pointwise(np.full(y.size, v), y))
        best = min(best, total / (len(edges) - 1 + gain))
    return best


def by_grid(monkeypatch: pytest.MonkeyPatch, p: np.ndarray, y: np.ndarray, epsilon: float) -> Bins:
    with monkeypatch.context() as patched:
        patched.setattr(bins_module, "STORED_LABELS", 0)
        return solve_bins(p, y, epsilon, "log")


def test_it_equals_brute_force_and_every_label_has_its_nearest_output() -> None:
    for p, y, epsilon in instances(11, 80):
        result = solve_bins(p, y, epsilon, "log")
        assert result.expected_loss == pytest.approx(brute_force(p, y, epsilon), rel=1e-9, abs=1e-12)
        assert np.all((result.values >= ENDS[0]) & (result.values <= ENDS[1]))
        cost = LOG.matrix(result.values, y)
        own = np.repeat(np.arange(result.values.size), np.diff(result.boundaries))
        assert np.all(cost[np.arange(y.size), own] <= cost.min(axis=1) + 1e-12)


def test_no_randomizer_is_better() -> None:
    """Theorem 5: outputs of the optimum rounded at random to a grid keep their mean and lose little."""
    grid = np.unique(np.clip(np.square(np.sin(np.linspace(0.0, math.pi / 2, 161))), *ENDS))
    tight = 0
    for p, y, epsilon in instances(3, 25, largest=7):
        reached = solve_bins(p, y, epsilon, "log").expected_loss
        program = all_randomizers(p, LOG.matrix(grid, y), epsilon)
        assert reached <= program + 1e-7
        assert reached >= program - 2e-3 * program - 1e-4
        tight += program > 0.01
    assert tight >= 15


def test_the_coarse_to_fine_search_finds_the_same_and_proves_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("labels_party.mechanisms.bins_grid.FIRST_CANDIDATES", 51)
    monkeypatch.setattr("labels_party.mechanisms.bins_grid.MOST_CANDIDATES", 201)
    for p, y, epsilon in instances(5, 25):
        exact, searched = solve_bins(p, y, epsilon, "log"), by_grid(monkeypatch, p, y, epsilon)
        assert searched.expected_loss == pytest.approx(exact.expected_loss, rel=1e-8, abs=1e-12)
        assert searched.expected_loss * (1 - searched.gap) <= exact.expected_loss * (1 + 1e-12)


def test_the_bound_of_the_search_is_honest_where_it_stops_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("labels_party.mechanisms.bins_grid.FIRST_CANDIDATES", 9)
    monkeypatch.setattr("labels_party.mechanisms.bins_grid.MOST_CANDIDATES", 9)
    gaps = []
    for p, y, epsilon in instances(7, 40):
        exact, searched = solve_bins(p, y, epsilon, "log"), by_grid(monkeypatch, p, y, epsilon)
        gaps.append(searched.gap)
        assert searched.expected_loss * (1 - searched.gap) <= exact.expected_loss * (1 + 1e-12)
    assert max(gaps) > 0.01  # so few candidates prove little, and it says so


def test_a_large_domain_of_shares_is_solved_with_a_proven_gap() -> None:
    y = np.linspace(0.0, 1.0, 5001)
    p = np.exp(-y / 0.1)
    p /= p.sum()
    result = solve_bins(p, y, 2.0, "log")
    assert 0.0 < result.gap < 1e-7
    fine = np.linspace(*ENDS, 1001)
    listed = solve_bins(p, y, 2.0, MatrixLoss(y, fine, LOG.matrix(fine, y)))
    assert result.expected_loss <= listed.expected_loss
    assert result.expected_loss == pytest.approx(listed.expected_loss, rel=1e-3)


def test_conversions_at_the_edges() -> None:
    y = np.array([0.0, 1.0])
    none = solve_bins([1.0, 0.0], y, 1.0, "log")
    assert (none.values.tolist(), none.boundaries.tolist()) == ([ENDS[0]], [0, 2])
    assert none.expected_loss == pytest.approx(LOG_FLOOR, rel=1e-5)
    all_of_them = solve_bins([0.0, 1.0], y, 1.0, "log")
    assert all_of_them.values.tolist() == [ENDS[1]]
    both = solve_bins([0.9, 0.1], y, 1000.0, "log")
    assert both.values == pytest.approx(ENDS, rel=1e-9)
    assert both.expected_loss < 1e-5
    # labels that all count as one: no grid can be finer
    tiny = np.linspace(0.0, 1e-7, 2001)
    assert solve_bins(np.full(2001, 1 / 2001), tiny, 1.0, "log").values.tolist() == [ENDS[0]]
    with pytest.raises(InvalidLoss, match="within 0 to 1"):
        solve_bins([0.5, 0.5], [0.0, 2.0], 1.0, "log")
