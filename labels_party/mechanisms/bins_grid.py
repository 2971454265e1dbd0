"""Bins for very large domains: candidate outputs on a grid, refined where an optimum is still possible."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import numpy.typing as npt

from label_dp.losses import LOG_FLOOR, POISSON_FLOOR
from labels_party.mechanisms.bins_paths import Instance, dinkelbach, least_path, path_cost

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

FIRST_CANDIDATES = 401
MOST_CANDIDATES = 1601
SUBDIVISION = 8
TARGET_GAP = 1e-9


def _between(instance: Instance, low: float, high: float, count: int) -> FloatArray:
    """List candidates between `low` and `high`, both included: labels (absolute), even in v (squared), in √v (Poisson)
    or in arcsin √v (log)."""
    if instance.loss.name == "absolute":
        first, last = np.searchsorted(instance.labels, [low, high])
        return np.asarray(instance.labels[np.unique(np.linspace(first, last, count).astype(np.int64))], np.float64)
    if instance.loss.name == "squared":
        points = np.linspace(low, high, count)
    elif instance.loss.name == "log":
        points = np.square(np.sin(np.linspace(math.asin(math.sqrt(low)), math.asin(math.sqrt(high)), count)))
    else:
        points = np.square(np.linspace(math.sqrt(low), math.sqrt(high), count))
    points[0], points[-1] = low, high
    return np.unique(points)


def _rounding(
    instance: Instance, candidates: FloatArray, alive: npt.NDArray[np.bool_], incumbent: float, least: float
) -> float:
    """Bound the growth of an optimum's loss, in units, when each of its outputs is rounded at random to an end of its
    cell so that its mean stays.

    Its outputs lie in `alive` cells. `least` is the smallest C(v).
    """
    low, high = candidates[:-1][alive], candidates[1:][alive]
    width = high - low
    if low.size == 0:
        return 0.0
    if instance.loss.name == "squared":
        growth = float(np.max(width * width)) / 4.0
    elif instance.loss.name == "absolute":
        # only labels inside the cell lose, half its width at most, and no optimum has more outputs than `most`
        inner = np.searchsorted(instance.labels, high) - 1, np.searchsorted(instance.labels, low, side="right") - 1
        losses = np.sort((instance.p0[inner[0] + 1] - instance.p0[inner[1] + 1]) * width / 2.0)[::-1]
        most = incumbent * instance.gain / (least - incumbent) if incumbent < least else math.inf
        growth = float(np.sum(losses[: math.ceil(min(most, losses.size))]))
    elif instance.loss.name == "log":
        # linear in the label, whose mean an output is: as for a label within the cell
        straight = width * width / 8.0 * (high / (low * low) + (1.0 - low) / np.square(1.0 - high))
        logs = high * np.log(high / low) + (1.0 - low) * np.log((1.0 - low) / (1.0 - high))
        growth = float(np.max(np.minimum(straight, logs)))
    else:
        growth = float(np.max(high * np.minimum(width * width / (8.0 * low * low), np.log(high / low))))
    return growth / instance.unit


def _through(edges: FloatArray, price: float) -> FloatArray:
    """Return the least Σ(edge − price) over the paths that use each candidate, float64[m]; the last edge is free."""
    nodes = edges.shape[0]
    ahead, behind = np.full(nodes, np.inf), np.full(nodes, np.inf)
    ahead[0], behind[-1] = 0.0, 0.0
    for i in range(nodes - 1):
        ahead[i + 1 :] = np.minimum(ahead[i + 1 :], edges[i, i + 1 :] + (ahead[i] - price))
    for i in range(nodes - 2, -1, -1):
        behind[i] = float(np.min(edges[i, i + 1 :] + behind[i + 1 :])) - price
    return np.asarray((ahead + behind)[1:-1] + price, np.float64)


def solve_grid(instance: Instance) -> tuple[FloatArray, float]:
    """Return (outputs, proven lower bound of the expected loss in units).

    The optimum loses at most the rounding of one cell when its outputs move to the grid, so (grid optimum − rounding)
    is a lower bound. A candidate whose best path at the price (incumbent + rounding) is still positive is not used by a
    rounded optimum: only cells next to the other candidates are divided further.
    """
    low, high = float(instance.labels[0]), float(instance.labels[-1])
    if instance.loss.name == "poisson":
        low, high = max(low, POISSON_FLOOR), max(high, POISSON_FLOOR)
    elif instance.loss.name == "log":
        low, high = (min(max(end, LOG_FLOOR), 1.0 - LOG_FLOOR) for end in (low, high))
    candidates = _between(instance, low, high, FIRST_CANDIDATES)
    alive = np.ones(candidates.size - 1, dtype=np.bool_)
    values, bound, incumbent = candidates[:1], 0.0, math.inf
    least = float(instance.overall(instance.best_values(np.array([0, instance.k])))[0])
    while True:
        edges = instance.candidate_edges(candidates)
        opening = instance.overall(candidates)
        start = [0, int(np.argmin(opening)) + 1, candidates.size + 1]
        search = partial(least_path, edges)
        path, ratio = dinkelbach(search, path_cost(edges), start, instance.gain, 1)
        if ratio < incumbent:
            values, incumbent = candidates[np.array(path[1:-1]) - 1], ratio
        rounding = _rounding(instance, candidates, alive, incumbent, least)
        bound = max(bound, min(ratio, least) - rounding)
        price = incumbent + rounding
        if rounding <= TARGET_GAP * incumbent or price >= least:
            if rounding <= TARGET_GAP * incumbent or candidates.size >= MOST_CANDIDATES:
                break
            hopeful = np.ones(candidates.size, dtype=np.bool_)
        else:
            hopeful = _through(edges, price) <= price * instance.gain + 1e-12
        alive &= hopeful[:-1] | hopeful[1:]
        parts = SUBDIVISION
        while parts > 1 and candidates.size + int(np.sum(alive)) * (parts - 1) > MOST_CANDIDATES:
            parts //= 2
        if parts == 1:
            break
        finer, alive = _divide(instance, candidates, alive, parts)
        if finer.size == candidates.size:  # cells are as narrow as floats can be
            break
        candidates = finer
    return values, bound


def _divide(
    instance: Instance, candidates: FloatArray, alive: npt.NDArray[np.bool_], parts: int
) -> tuple[FloatArray, npt.NDArray[np.bool_]]:
    points, living = [candidates[:1]], []
    for cell, divided in enumerate(alive.tolist()):
        ends = candidates[cell : cell + 2]
        inner = _between(instance, float(ends[0]), float(ends[1]), parts + 1) if divided else ends
        points.append(inner[1:])
        living.append(np.full(inner.size - 1, divided, dtype=np.bool_))
    return np.concatenate(points), np.concatenate(living)
