"""Prefix isotonic regression with values in a range: the least loss of every prefix (suffix) of the examples at once.

Exact integers, and work that depends on public facts only. For any loss a recursion over the output values, O(n) array
operations for each; for many values, squared and absolute loss near-linearly by `prefix_kernels`: pooled violators, and
a pile of slopes (Stout 2008; Section 3.1 of Ghazi et al. 2022, where the best function in a range is the best one,
clipped: here each block's value is).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from labels_party.companions.mechanisms.isotonic.grid import AbsoluteGrid, LossGrid, SquaredGrid

IntArray = npt.NDArray[np.int64]

COMPILED_CELLS = 1 << 23  # rows times values: fewer, about a tenth of a second, do not justify importing a compiler
MANY_SQUARED, MANY_ABSOLUTE = 8, 64  # numbers of values from which the compiled form is faster


def worth_compiling(n: int, size: int) -> bool:
    """Check whether n examples and so many output values are many."""
    return n * size >= COMPILED_CELLS


def least_prefixes(grid: LossGrid, labels: IntArray, ends: IntArray, values: range, fast: bool) -> IntArray:
    """Compute the least loss of the first j of m groups, over functions that go from group to group through the output
    values `values`, in that order (a range of step 1, or −1 for functions that fall): int64[m + 1].

    `labels` int64[n] as prepared by the grid; group j ends before row `ends`[j], and may be empty. `fast`: compiled if
    that helps.
    """
    full = np.concatenate((ends[:1] > 0, ends[1:] > ends[:-1]))
    if not full.all():  # an empty group changes nothing
        least = least_prefixes(grid, labels, ends[full], values, fast)
        return np.asarray(least[np.append(0, np.cumsum(full))], np.int64)
    if not fast or ends.size == 0:
        return recursive(grid, labels, ends, values)
    if isinstance(grid, SquaredGrid) and len(values) >= MANY_SQUARED:
        return _squared(grid, labels, ends, values)
    if isinstance(grid, AbsoluteGrid) and len(values) >= MANY_ABSOLUTE:
        return _absolute(grid, labels, ends, values)
    return recursive(grid, labels, ends, values)


def recursive(grid: LossGrid, labels: IntArray, ends: IntArray, values: range) -> IntArray:
    """Compute `least_prefixes` for any loss: the first j with values up to v are the first s with values before v, and
    v from there to j, for the best s ≤ j. O(n·len(values))."""
    least = np.zeros(0, np.int64)
    for v in values:
        here = np.zeros(ends.size + 1, np.int64)
        running = np.cumsum(grid.costs(v, labels))
        here[1:] = running if ends.size == labels.size else running[ends - 1]
        if least.size:
            least -= here
            np.minimum.accumulate(least, out=least)
            least += here
        else:
            least = here
    return least


def _squared(grid: SquaredGrid, labels: IntArray, ends: IntArray, values: range) -> IntArray:
    from labels_party.companions.mechanisms.isotonic.prefix_kernels import squared_prefixes

    sums = np.diff(np.cumsum(labels)[ends - 1], prepend=0)
    start, step = (int(grid.points[values[0]]), int(grid.points[1] - grid.points[0]))
    counts = np.diff(ends, prepend=0)
    least = squared_prefixes(counts, values.step * sums, values.step * start, step, len(values))
    return np.asarray(least, np.int64)


def _absolute(grid: AbsoluteGrid, labels: IntArray, ends: IntArray, values: range) -> IntArray:
    from labels_party.companions.mechanisms.isotonic.prefix_kernels import absolute_prefixes

    points = values.step * grid.points[list(values)]
    within = np.minimum(np.maximum(values.step * labels, points[0]), points[-1])
    place = np.zeros(int(points[-1] - points[0]) + 1, np.int64)  # a table: a search would take longer for some labels
    place[points[1:] - points[0]] = 1
    at = np.cumsum(place)[within - points[0]]
    rest = within - points[at]
    unit = 1 if grid.at_labels else int(points[1] - points[0])
    levels = (len(values) - 1).bit_length()
    gained = absolute_prefixes(at, rest, ends, points, unit, levels)
    constant = np.cumsum(grid.costs(values[0], labels))[ends - 1]
    return np.concatenate([[0], constant - gained])
