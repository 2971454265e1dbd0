"""Compiled prefix isotonic regression in a fixed number of steps, the same operations in every one. Imports numba.

A step selects between two operations by multiplying with 0 or 1: no branch, no number of rounds and no amount of work
depends on a label, only which of a few neighbouring numbers are read.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from labels_party.mechanisms.compiled import compiled

IntArray = npt.NDArray[np.int64]


@compiled()
def squared_prefixes(counts: IntArray, sums: IntArray, start: int, step: int, width: int) -> IntArray:
    """Compute the least Σ p·(p − 2y) of the first j of m ≥ 1 groups of labels (`counts`, `sums` int64[m]) over
    functions that never fall, with values p = start + step·v, v = 0 … width − 1: int64[m + 1].

    Adjacent violators are pooled (Ayer et al. 1955) as groups come in, with the nearest value of its mean for each
    block. A step either pools the last two blocks or adds a group; m groups need at most 2m steps, and 2m are done:
    past the last group the same padding is added and pooled.
    """
    m = counts.size
    out = np.zeros(m + 2, np.int64)
    held, total = np.zeros(m + 3, np.int64), np.zeros(m + 3, np.int64)
    value, cost = np.full(m + 3, -1, np.int64), np.zeros(m + 3, np.int64)
    c, s, top, used = counts[0], sums[0], 1, 1
    for _ in range(2 * m):
        number, unit = 2 * (s - start * c) + step * c, 2 * step * c
        v = int(np.floor(number / unit))
        rest = number - v * unit  # a quotient of floats is one off at most
        v = max(0, min(width - 1, v + int(rest >= unit) - int(rest < 0)))
        p = start + step * v
        held[top], total[top], value[top] = c, s, v
        cost[top] = cost[top - 1] + p * (p * c - 2 * s)
        out[min(used, m + 1)] = cost[top]
        pool = int(value[top - 1] >= v)
        take, following = 1 - pool, min(used, m - 1)
        c = pool * (c + held[top - 1]) + take * counts[following]
        s = pool * (s + total[top - 1]) + take * sums[following]
        top += take - pool
        used += take
    return out[: m + 1]


@compiled()
def absolute_prefixes(
    at: IntArray, rest: IntArray, ends: IntArray, points: IntArray, unit: int, levels: int
) -> IntArray:
    """Compute by how much the least Σ |p − y| of the first j of m groups, over functions that never fall with values in
    `points` int64[w], is below that of the constant points[0]: int64[m].

    Label i is `rest`[i] beyond points[at[i]] (both int64[n]; `unit` is the spacing of the points, or 1 if every rest is
    0), group j ends before row `ends`[j]. The slopes of the least loss as a function of its last value form a pile of
    weights: a label adds 2·unit at its place, split between two points, and every label removes `unit` from the top.
    The pile is a tree of 2^levels ≥ w leaves, descended along one path for each addition and each removal.
    """
    leaves = 1 << levels
    mass, moment, gone = np.zeros(2 * leaves, np.int64), np.zeros(2 * leaves, np.int64), np.zeros(2 * leaves, np.int64)
    out = np.zeros(ends.size, np.int64)
    row = 0
    for j in range(ends.size):
        count = ends[j] - row
        for i in range(row, ends[j]):
            for side in range(2):
                place = min(at[i] + side, points.size - 1)
                amount = 2 * (unit - rest[i]) * (1 - side) + 2 * rest[i] * side
                lever = amount * (points[place] - points[0])
                node = 1
                for level in range(levels):
                    _pass_on(mass, moment, gone, node)
                    mass[node] += amount
                    moment[node] += lever
                    node = 2 * node + ((place >> (levels - 1 - level)) & 1)
                mass[node] += amount
                moment[node] += lever
        row = ends[j]
        left, node = unit * count, 1
        for _ in range(levels):
            _pass_on(mass, moment, gone, node)
            right = 2 * node + 1
            whole = int(mass[right] <= left)
            left -= whole * mass[right]
            mass[right] *= 1 - whole
            moment[right] *= 1 - whole
            gone[right] |= whole
            node = right - whole
        mass[node] -= left
        moment[node] -= left * (points[min(node - leaves, points.size - 1)] - points[0])
        for _ in range(levels):
            node //= 2
            mass[node] = mass[2 * node] + mass[2 * node + 1]
            moment[node] = moment[2 * node] + moment[2 * node + 1]
        out[j] = moment[1] // unit
    return out


@compiled()
def _pass_on(mass: IntArray, moment: IntArray, gone: IntArray, node: int) -> None:
    """Pass removals from a whole node on to its halves."""
    stays = 1 - gone[node]
    for child in (2 * node, 2 * node + 1):
        mass[child] *= stays
        moment[child] *= stays
        gone[child] |= gone[node]
    gone[node] = 0
