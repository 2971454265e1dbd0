"""Bins for any loss given as a k × m matrix: one bin per candidate output, in O(k·m) a round."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from label_dp.errors import InvalidLoss
from labels_party.mechanisms.bins_paths import MAX_ROUNDS

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

MAX_CELLS = 1 << 25


def _assignment(cost: FloatArray, opening: FloatArray) -> IntArray:
    """Assign to each label its candidate, non-decreasing, of least Σ cost[y, a] + Σ_(used a) opening[a]: int64[k]."""
    k, m = cost.shape
    moved = np.zeros((k, m), dtype=np.bool_)
    source = np.zeros((k, m), dtype=np.int32)
    here = np.arange(m, dtype=np.int32)
    total = opening + cost[0]
    for y in range(1, k):
        least = np.minimum.accumulate(total)
        first = np.ones(m, dtype=np.bool_)
        first[1:] = total[1:] < least[:-1]
        origin = np.maximum.accumulate(np.where(first, here, 0))
        entering = np.full(m, np.inf)
        entering[1:] = least[:-1] + opening[1:]
        moved[y] = entering < total
        source[y, 1:] = origin[:-1]
        total = np.where(moved[y], entering, total) + cost[y]
    assignment = np.empty(k, dtype=np.int64)
    assignment[-1] = int(np.argmin(total))
    for y in range(k - 1, 0, -1):
        a = assignment[y]
        assignment[y - 1] = source[y, a] if moved[y, a] else a
    return assignment


def _settle_massless(assignment: IntArray, prior: FloatArray, loss: FloatArray) -> IntArray:
    """Split labels without mass around a change of bin at the least plain sum of losses."""
    assignment = assignment.copy()
    for change in np.flatnonzero(np.diff(assignment)).tolist():
        left, right = int(assignment[change]), int(assignment[change + 1])
        start, stop = change + 1, change + 1
        while start > 0 and prior[start - 1] == 0 and assignment[start - 1] == left:
            start -= 1
        while stop < prior.size and prior[stop] == 0 and assignment[stop] == right:
            stop += 1
        if start == 0 or assignment[start - 1] != left or stop == prior.size or assignment[stop] != right:
            continue  # the whole bin has no mass
        gain = np.concatenate([[0.0], np.cumsum(loss[start:stop, left] - loss[start:stop, right])])
        turn = start + int(np.argmin(gain))
        assignment[start:turn], assignment[turn:stop] = left, right
    return assignment


def solve_matrix(prior: FloatArray, loss: FloatArray, gain: float) -> tuple[IntArray, IntArray, float]:
    """Find (boundaries int64[d + 1], candidates int64[d] increasing, expected loss) of the best monotone bins.

    `loss` is float64[k, m] and `gain` = e^ε − 1. The best of its family, by Dinkelbach's method. Raises InvalidLoss
    above 2²⁵ cells.
    """
    if loss.size > MAX_CELLS:
        raise InvalidLoss("This loss matrix is too large for placing bins; list fewer candidate outputs.")
    everywhere = prior @ loss
    own = gain * prior[:, None] * loss

    def ratio(chosen: IntArray) -> float:
        used = np.unique(chosen)
        served = float(np.sum(own[np.arange(chosen.size), chosen]))
        return (float(np.sum(everywhere[used])) + served) / (used.size + gain)

    best = np.full(prior.size, int(np.argmin(everywhere)), dtype=np.int64)
    price = ratio(best)
    for _ in range(MAX_ROUNDS):
        chosen = _assignment(own, everywhere - price)
        reached = ratio(chosen)
        if reached >= price:
            break
        best, price = chosen, reached
    best = _settle_massless(best, prior, loss)
    boundaries = np.concatenate([[0], np.flatnonzero(np.diff(best)) + 1, [prior.size]]).astype(np.int64)
    return boundaries, best[boundaries[:-1]], ratio(best)
