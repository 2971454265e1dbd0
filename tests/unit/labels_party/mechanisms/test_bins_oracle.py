"""RR-on-Bins against a linear program over *all* ε-DP randomizers on a fine output grid (Ghazi et al. 2022, Theorem 5).

Rounding the optimum's outputs to the grid at random, keeping their mean, costs at most `resolution`, so
LP − resolution ≤ optimum ≤ LP holds for the true optimum over all real outputs; the solver must lie in between.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.sparse import coo_matrix

from label_dp.losses import POISSON_FLOOR, get_loss
from labels_party.mechanisms.bins import solve_bins

CASES = 25


def all_randomizers(p: np.ndarray, cost: np.ndarray, epsilon: float) -> float:
    """Least Σ p_y M[y, v] cost[y, v] over row-stochastic M with M[y, v] ≤ e^ε·M[y′, v], by HiGHS."""
    k, m = cost.shape
    cells, least = np.arange(k * m).reshape(k, m), k * m + np.arange(m)
    count = k * m
    rows = np.concatenate([np.arange(count)] * 2 + [count + np.arange(count)] * 2)
    columns = np.concatenate([cells.ravel(), np.tile(least, k), np.tile(least, k), cells.ravel()])
    values = np.concatenate([np.ones(count), np.full(count, -math.exp(epsilon)), np.ones(count), -np.ones(count)])
    bounds = coo_matrix((values, (rows, columns)), shape=(2 * count, count + m)).tocsr()
    sums = coo_matrix((np.ones(count), (np.repeat(np.arange(k), m), cells.ravel())), shape=(k, count + m)).tocsr()
    objective = np.concatenate([(p[:, None] * cost).ravel(), np.zeros(m)])
    solved = linprog(objective, A_ub=bounds, b_ub=np.zeros(2 * count), A_eq=sums, b_eq=np.ones(k), method="highs")
    assert solved.status == 0
    return float(solved.fun)


def grid_and_resolution(loss: str, y: np.ndarray) -> tuple[np.ndarray, float]:
    low, high = float(y[0]), float(y[-1])
    if loss == "squared":
        grid = np.linspace(low, high, 81)
        return grid, float(np.max(np.diff(grid))) ** 2 / 4
    if loss == "absolute":
        return y, 0.0  # some optimum uses labels only: the loss is piecewise linear in each output
    low = max(low, POISSON_FLOOR)
    grid = np.geomspace(low, high, 81) if low > 0.1 else np.concatenate([[low], np.linspace(0.02 * high, high, 80)])
    inside, ahead = grid[:-1], grid[1:]
    chord = np.minimum((ahead - inside) ** 2 / (8 * inside**2), np.log(ahead / inside))
    return grid, float(np.max(ahead * chord))


@pytest.mark.parametrize("loss", ["squared", "absolute", "poisson"])
def test_no_randomizer_is_better(loss: str) -> None:
    rng = np.random.default_rng({"squared": 1, "absolute": 2, "poisson": 3}[loss])
    tight = 0
    for _ in range(CASES):
        k = int(rng.integers(2, 7))
        y = np.sort(rng.choice(np.arange(1, 30), k, replace=False)).astype(float)
        p = rng.dirichlet(np.full(k, rng.choice([0.3, 1.0, 4.0])))
        epsilon = round(float(10 ** rng.uniform(-1.0, 0.8)), 6)
        grid, resolution = grid_and_resolution(loss, y)
        reached = solve_bins(p, y, epsilon, loss).expected_loss
        program = all_randomizers(p, get_loss(loss).matrix(grid, y), epsilon)
        assert reached <= program + 1e-7 * max(1.0, program)
        assert reached >= program - resolution - 1e-7 * max(1.0, program)
        tight += resolution <= 0.05 * program
    assert tight >= CASES // 2  # the bracket is narrow where it matters


def test_the_oracle_notices_bins_that_are_not_optimal() -> None:
    rng = np.random.default_rng(7)
    y, epsilon, worse = np.arange(6.0), 2.0, 0
    for _ in range(10):
        p = rng.dirichlet(np.ones(6))
        careless = sum(float(p @ (y - v) ** 2) for v in y) / (math.exp(epsilon) + 5)  # one bin per label
        program = all_randomizers(p, get_loss("squared").matrix(np.linspace(0, 5, 81), y), epsilon)
        worse += careless > program + 1e-3
    assert worse >= 8
