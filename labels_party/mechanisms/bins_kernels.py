"""Compiled forms of the path searches of `bins_paths`: the same operations in the same order. Imports numba."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from labels_party.mechanisms.compiled import compiled

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

BLOCK = 64


@compiled()
def _bregman_log(x: float) -> float:
    if abs(x) < 1e-3:
        return x * x * (1 / 2 - x * (1 / 6 - x * (1 / 12 - x * (1 / 20 - x * (1 / 30 - x / 42)))))
    if x <= -1.0:
        return 1.0
    return (1.0 + x) * math.log1p(x) - x


@compiled()
def _squared_row(
    p0: FloatArray, p1: FloatArray, p2: FloatArray, gain: float, i: int, j: int, stop: int, row: FloatArray
) -> None:
    last = p0.size - 1
    a0, a1, a2, t0, t1, t2 = p0[i], p1[i], p2[i], p0[last], p1[last], p2[last]
    for e in range(j, stop):
        w0 = t0 + gain * (p0[e] - a0)
        x = (t1 + gain * (p1[e] - a1)) / w0
        row[e] = (t2 + gain * (p2[e] - a2)) - w0 * (x * x)


@compiled()
def _poisson_row(
    p0: FloatArray,
    p1: FloatArray,
    p2: FloatArray,
    gain: float,
    floor: float,
    i: int,
    j: int,
    stop: int,
    row: FloatArray,
) -> None:
    last = p0.size - 1
    bound = 1.0 + floor
    for e in range(j, stop):
        w0 = p0[last] + gain * (p0[e] - p0[i])
        x = (p1[last] + gain * (p1[e] - p1[i])) / w0
        cost = (p2[last] + gain * (p2[e] - p2[i])) - w0 * _bregman_log(x)
        if x < floor:
            cost += w0 * bound * _bregman_log((x - floor) / bound)
        row[e] = cost


@compiled()
def interval_edges(
    p0: FloatArray, p1: FloatArray, p2: FloatArray, gain: float, floor: float, poisson: bool
) -> FloatArray:
    """Compute float64[k + 1, k + 1], upper triangle."""
    nodes = p0.size
    edges = np.empty((nodes, nodes))
    for i in range(nodes - 1):
        if poisson:
            _poisson_row(p0, p1, p2, gain, floor, i, i + 1, nodes, edges[i])
        else:
            _squared_row(p0, p1, p2, gain, i, i + 1, nodes, edges[i])
    return edges


@compiled()
def least_path(edges: FloatArray, price: float) -> IntArray:
    """Return the predecessors of the least path of Σ(edge − price)."""
    nodes = edges.shape[0]
    best, came = np.full(nodes, np.inf), np.zeros(nodes, dtype=np.int64)
    best[0] = 0.0
    for i in range(nodes - 1):
        here = best[i] - price
        row = edges[i]
        for j in range(i + 1, nodes):
            reached = row[j] + here
            better = reached < best[j]
            best[j] = reached if better else best[j]
            came[j] = i if better else came[j]
    return came


@compiled()
def interval_path(
    p0: FloatArray, p1: FloatArray, p2: FloatArray, gain: float, floor: float, poisson: bool, price: float
) -> IntArray:
    """Find `least_path` on the interval graph without storing it.

    No edge − price is negative (L ≥ Var y ≥ price) and L grows with its bin, so once a path costs more than price·(e^ε
    − 1), which the incumbent does not, longer bins from there are skipped.
    """
    nodes = p0.size
    best, came, row = np.full(nodes, np.inf), np.zeros(nodes, dtype=np.int64), np.empty(nodes)
    best[0] = 0.0
    limit = price * gain * (1.0 + 1e-6) + 1e-12
    for i in range(nodes - 1):
        here = best[i] - price
        if best[i] > limit:
            continue
        for start in range(i + 1, nodes, BLOCK):
            stop = min(start + BLOCK, nodes)
            if poisson:
                _poisson_row(p0, p1, p2, gain, floor, i, start, stop, row)
            else:
                _squared_row(p0, p1, p2, gain, i, start, stop, row)
            for j in range(start, stop):
                reached = row[j] + here
                better = reached < best[j]
                best[j] = reached if better else best[j]
                came[j] = i if better else came[j]
            if row[stop - 1] + here > limit:
                break
    return came


@compiled()
def absolute_path(
    x: FloatArray, p0: FloatArray, p1: FloatArray, opening: FloatArray, gain: float, price: float
) -> IntArray:
    """Find `least_path` on the candidate graph of the absolute loss, candidates = labels, without storing it."""
    k = x.size
    best, came = np.full(k + 2, np.inf), np.zeros(k + 2, dtype=np.int64)
    best[0] = 0.0
    limit = price * gain * (1.0 + 1e-6) + 1e-12
    for b in range(k):
        best[b + 1] = opening[b] + gain * (x[b] * p0[b + 1] - p1[b + 1]) + (0.0 - price)
    for a in range(k):
        here = best[a + 1] - price
        if best[a + 1] > limit:
            continue
        turn = a + 1
        for b in range(a + 1, k):
            middle = x[a] + 0.5 * (x[b] - x[a])
            while turn < b and x[turn] <= middle:
                turn += 1
            left = (p1[turn] - p1[a + 1]) - x[a] * (p0[turn] - p0[a + 1])
            right = x[b] * (p0[b + 1] - p0[turn]) - (p1[b + 1] - p1[turn])
            service = gain * (left + right)
            if best[a + 1] + service > limit:
                break
            reached = (opening[b] + service) + here
            if reached < best[b + 1]:
                best[b + 1] = reached
                came[b + 1] = a + 1
        reached = gain * ((p1[k] - p1[a + 1]) - x[a] * (p0[k] - p0[a + 1])) + here
        if reached < best[k + 1]:
            best[k + 1] = reached
            came[k + 1] = a + 1
    return came


def warm_up() -> None:
    """Compile every kernel, or load it from the cache."""
    x = np.array([-1.0, 0.0, 1.0])
    p0, p1, p2 = np.array([0.0, 0.25, 0.75, 1.0]), np.array([0.0, -0.25, -0.25, 0.0]), np.array([0.0, 0.25, 0.25, 0.5])
    for poisson in (False, True):
        least_path(interval_edges(p0, p1, p2, 1.0, -0.9, poisson), 0.1)
        interval_path(p0, p1, p2, 1.0, -0.9, poisson, 0.1)
    absolute_path(x, p0, p1, np.ones(3), 1.0, 0.1)
