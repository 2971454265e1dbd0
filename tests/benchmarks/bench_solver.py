"""The bin solver against the paper's Algorithm 2 written as a compiled triple loop."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable

import numba
import numpy as np

from labels_party.mechanisms import bins as bins_module
from labels_party.mechanisms.bins import solve_bins, warm_up
from tests.benchmarks.lines import Line


@numba.njit
def triple_loop(p: np.ndarray, y: np.ndarray, gain: float) -> float:
    """Ghazi et al. (2022), Algorithm 2, squared loss: A[i][j] over every end i and every number j of bins."""
    k = p.size
    p0, p1, p2 = np.zeros(k + 1), np.zeros(k + 1), np.zeros(k + 1)
    for i in range(k):
        p0[i + 1], p1[i + 1], p2[i + 1] = p0[i] + p[i], p1[i] + p[i] * y[i], p2[i] + p[i] * y[i] * y[i]
    cost = np.empty((k + 1, k + 1))
    for i in range(k):
        for j in range(i + 1, k + 1):
            w0 = p0[k] + gain * (p0[j] - p0[i])
            w1 = p1[k] + gain * (p1[j] - p1[i])
            cost[j, i] = p2[k] + gain * (p2[j] - p2[i]) - w1 * w1 / w0
    last = np.full(k + 1, np.inf)
    last[0] = 0.0
    least = np.inf
    for d in range(1, k + 1):
        best = np.full(k + 1, np.inf)
        for j in range(d, k + 1):
            for i in range(d - 1, j):
                reached = last[i] + cost[j, i]
                if reached < best[j]:
                    best[j] = reached
        least = min(least, best[k] / (d + gain))
        last = best
    return least


def milliseconds(run: Callable[[], object], rounds: int) -> float:
    run()
    taken = []
    for _ in range(rounds):
        start = time.perf_counter()
        run()
        taken.append(1e3 * (time.perf_counter() - start))
    return statistics.median(taken)


def skewed(k: int) -> tuple[np.ndarray, np.ndarray]:
    y = np.arange(float(k))
    p = np.exp(-8.0 * y / k) * np.random.default_rng(0).gamma(0.5, size=k)
    return p / p.sum(), y


def lines(large: tuple[int, ...] = (10_000, 1_000_000)) -> list[Line]:
    """About ten seconds, most of it compiling and the `large` domains."""
    p, y = skewed(401)
    kernels, bins_module._kernels = bins_module._kernels, None
    try:
        plain = milliseconds(lambda: solve_bins(p, y, 1.0), 7)
    finally:
        bins_module._kernels = kernels
    warm_up()
    ours = milliseconds(lambda: solve_bins(p, y, 1.0), 21)
    theirs = milliseconds(lambda: triple_loop(p, y, math.expm1(1.0)), 5)
    apart = abs(triple_loop(p, y, math.expm1(1.0)) / solve_bins(p, y, 1.0).expected_loss - 1)
    loop = f"Algorithm 2 as a compiled triple loop ({theirs:.0f} ms)"
    figures = [
        Line("k = 401, squared", ours, "ms", loop, ours / theirs, note=f"results differ by {apart:.0e}"),
        Line("k = 401, squared, without numba", plain, "ms", loop, plain / theirs),
    ]
    for loss in ("absolute", "poisson"):
        took = milliseconds(lambda loss=loss: solve_bins(p, y, 1.0, loss), 11)
        figures.append(Line(f"k = 401, {loss}", took, "ms", loop, took / theirs))
    for k in large:
        p, y = skewed(k)
        for loss in ("squared", "absolute", "poisson"):
            gap = solve_bins(p, y, 2.0, loss).gap
            took = milliseconds(lambda p=p, y=y, loss=loss: solve_bins(p, y, 2.0, loss), 1)
            figures.append(Line(f"k = {k:,}, {loss}", took, "ms", note=f"ε = 2, proven gap {gap:.0e}"))
    return figures
