"""Estimates from noisy sums of cells, by post-processing alone: they cost no ε.

Several groupings of the same examples say some things twice: the countries of a region add up to it, every grouping has
the same total. `consistent` moves the noisy sums as little as possible, weighted by their noise, until those agree and
every cell holds a sum that its examples can have: least squares under linear equations and bounds, by Dykstra's
projections (Boyle & Dykstra 1986). An interval comes from a cell's own noise and is exact, whatever other cells hold.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
MISSES = 0.05  # share of intervals that do not hold the true sum
LEAST_NOISE = 1e-100  # at an ε beyond all use noise is 0, and weights are still to be positive
MOST_ROUNDS, SETTLED = 2000, 1e-9  # of projections; share of the largest possible sum that the last one may move


@dataclass(frozen=True)
class CellSums:
    """Noisy sums float64[c] of one grouping, with noise of standard deviation `noise`. `columns` name the codes
    int64[c, p] of each cell; `n` int64[c] counts its examples."""

    columns: tuple[str, ...]
    codes: IntArray
    n: IntArray
    sums: FloatArray
    noise: float


def consistent(groupings: Sequence[CellSums], low: float, high: float) -> list[FloatArray]:
    """Return sums float64[c] of each grouping that agree with each other, and lie within n·low … n·high."""
    sums = [grouping.sums.astype(np.float64) for grouping in groupings]
    bounds = [(grouping.n * low, grouping.n * high) for grouping in groupings]
    agreements = [_agreement(groupings, a, b) for a, b in itertools.combinations(range(len(groupings)), 2)]
    beyond = [np.zeros_like(one) for one in sums]  # Dykstra's correction of the bounds; equations need none
    most = max(1e-300, max(float(np.abs(end).max()) for pair in bounds for end in pair))
    for _ in range(MOST_ROUNDS if agreements else 1):
        before = [one.copy() for one in sums]
        for agree in agreements:
            agree(sums)
        for at, (least, largest) in enumerate(bounds):
            free = sums[at] + beyond[at]
            sums[at] = np.clip(free, least, largest)
            beyond[at] = free - sums[at]
        if max(float(np.abs(one - two).max()) for one, two in zip(sums, before, strict=True)) <= SETTLED * most:
            break
    return sums


def _agreement(groupings: Sequence[CellSums], a: int, b: int) -> Callable[[list[FloatArray]], None]:
    """Return the projection of two groupings' sums onto those that agree on every group of their common columns."""
    common = [name for name in groupings[a].columns if name in groupings[b].columns]
    keys = [of.codes[:, [of.columns.index(name) for name in common]] for of in (groupings[a], groupings[b])]
    _, group = np.unique(np.concatenate(keys), axis=0, return_inverse=True)
    group = group.reshape(-1) if common else np.zeros(sum(map(len, keys)), np.int64)
    first, second = group[: len(keys[0])], group[len(keys[0]) :]
    count = int(group.max()) + 1
    weight, other = (max(groupings[i].noise, LEAST_NOISE) ** 2 for i in (a, b))
    spread = weight * np.bincount(first, minlength=count) + other * np.bincount(second, minlength=count)

    def project(sums: list[FloatArray]) -> None:
        gap = np.bincount(first, sums[a], count) - np.bincount(second, sums[b], count)
        sums[a] = sums[a] - weight * (gap / spread)[first]
        sums[b] = sums[b] + other * (gap / spread)[second]

    return project


def half_width(scale: float) -> int:
    """Return the least whole q with P(|noise| > q) ≤ MISSES for P[t] ∝ e^(−|t|/scale)."""
    rest = math.exp(-1.0 / scale)  # P(|t| > q) = 2·rest^(q + 1)/(1 + rest)
    q = math.ceil(-scale * math.log(MISSES * (1.0 + rest) / 2.0)) - 1
    while 2.0 * math.exp(-(q + 1) / scale) / (1.0 + rest) > MISSES:  # where rounding was in the way
        q += 1
    return max(q, 0)


def deviation(scale: float) -> float:
    """Return the standard deviation of noise of P[t] ∝ e^(−|t|/scale)."""
    rest = math.exp(-1.0 / scale)
    return math.sqrt(2.0 * rest) / -math.expm1(-1.0 / scale)
