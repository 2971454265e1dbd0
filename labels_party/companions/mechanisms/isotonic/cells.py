"""Losses of examples in public cells of the domain of x, in whole numbers: all that constrained fits read of labels.

The domain 0 … x_size − 1 is cut into M cells whose edges are public (x is). The loss of a function that is constant on
each cell is a sum over cells of one entry of a table, so a table of M × F whole numbers represents the data set, and
replacing one label changes one row of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from label_dp.companions.maps.monotone import MonotoneMap
from label_dp.companions.maps.shapes import MAX_CELLS
from label_dp.domain import Domain
from label_dp.errors import InvalidLoss, InvalidMechanism
from label_dp.losses import Absolute, Loss, Squared, get_loss
from labels_party.companions.mechanisms.isotonic.grid import (
    MAX_TABLE_CELLS,
    TABLE_UNITS,
    UNITS,
    AbsoluteGrid,
    LossGrid,
    TableGrid,
    loss_grid,
)
from labels_party.companions.mechanisms.isotonic.total_order import AnyInts, OrderedExamples

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

MAX_ENTRIES = 1 << 24  # of a table


@dataclass(frozen=True, eq=False)
class Cells:
    """Cells with `edges` int64[M + 1] rising from 0 to x_size; cell j is edges[j] ≤ x < edges[j + 1]."""

    edges: IntArray

    @property
    def count(self) -> int:
        return int(self.edges.size) - 1

    @classmethod
    def even(cls, x_size: int, count: int) -> Cells:
        """Make `count` cells of equal width, to the whole number; as many as there are points if those are fewer."""
        count = _checked(count, x_size)
        return cls(np.array([-(-j * x_size // count) for j in range(count + 1)], np.int64))

    @classmethod
    def by_points(cls, examples: OrderedExamples, count: int) -> Cells:
        """Make at most `count` cells of about equally many examples each; x, which is public, decides alone."""
        return cls.between(examples.xs, examples.ends, examples.x_size, count)

    @classmethod
    def holding(cls, numbers: AnyInts | IntArray, x_size: int, count: int) -> Cells:
        """Make cells as `by_points`, from public numbers int[m] below x_size, m ≥ 1."""
        xs, rows = np.unique(numbers, return_counts=True)
        return cls.between(xs.astype(np.int64), np.append(0, np.cumsum(rows)), x_size, count)

    @classmethod
    def between(cls, xs: IntArray, ends: IntArray, x_size: int, count: int) -> Cells:
        """Make cells as `by_points`, from distinct x int64[m], m ≥ 1, whose examples end at `ends` int64[m + 1].

        Edges lie midway between neighbouring distinct x. No more cells than distinct x, and then one for each.
        """
        count = _checked(count, xs.size)
        before = np.arange(1, count)
        if count < xs.size:
            before = np.unique(np.searchsorted(ends, int(ends[-1]) * before // count, side="left"))
            before = before[(before > 0) & (before < xs.size)]
        inner = (xs[before - 1] + xs[before] + 1) // 2
        return cls(np.concatenate([[0], inner, [x_size]]).astype(np.int64))

    def of(self, x: IntArray) -> IntArray:
        """Return the number of the cell of x int64[n] in 0 … x_size − 1, int64[n]."""
        return np.searchsorted(self.edges[1:-1], x, side="right").astype(np.int64)

    def map_of(self, values: FloatArray) -> MonotoneMap:
        """Build the step function with `values` float64[M], which never fall, on the cells."""
        first = np.flatnonzero(np.append(True, np.diff(values) > 0))
        return MonotoneMap(int(self.edges[-1]), self.edges[first[1:]], values[first])


def even_grid(domain: Domain, loss: str | Loss, size: int) -> LossGrid:
    """Build a grid as `loss_grid` with equally spaced outputs for every loss, as slopes need them (one if k = 1).

    For the Poisson loss they begin half a step above the first label. Raises InvalidLoss, also for a loss with
    candidate outputs of its own.
    """
    ell = get_loss(loss)
    if ell.candidates is not None:
        raise InvalidLoss("A loss with candidate outputs of its own fits the shapes 'monotone' and 'pieces' only.")
    if isinstance(ell, Squared) or domain.k == 1:
        return loss_grid(domain, ell, size)
    ell.check(domain.values)
    low, high = float(domain.values[0]), float(domain.values[-1])
    if isinstance(ell, Absolute):
        points = np.arange(size, dtype=np.int64) * max(1, UNITS // (size - 1))
        outputs: FloatArray = np.linspace(low, high, size)
        return AbsoluteGrid(outputs, (high - low) / int(points[-1]), domain, points)
    if size * domain.k > MAX_TABLE_CELLS:
        raise InvalidLoss("This loss has too many labels times outputs; take a coarser domain, or fewer values.")
    outputs = np.linspace(low + (high - low) / (2 * size - 1), high, size)
    table = ell.matrix(outputs, domain.values).T
    unit = float(table.max()) / TABLE_UNITS
    return TableGrid(outputs, unit, np.rint(table / unit).astype(np.int64))


def cell_losses(examples: OrderedExamples, cells: Cells, grid: LossGrid) -> IntArray:
    """Sum the loss of each of the F outputs on the examples of each of the M cells: int64[M, F].

    O(F·n) operations, independent of the labels. Raises InvalidMechanism (a table too large).
    """
    if cells.count * grid.size > MAX_ENTRIES:
        raise InvalidMechanism("Cells times output values are too many; take fewer of either.")
    labels = grid.prepared(examples.labels)
    ends = np.append(0, examples.ends[np.searchsorted(examples.xs, cells.edges[1:])])
    table = np.empty((cells.count, grid.size), np.int64)
    running = np.zeros(examples.n + 1, np.int64)
    for v in range(grid.size):
        np.cumsum(grid.costs(v, labels), out=running[1:])
        table[:, v] = np.diff(running[ends])
    return table


def _checked(count: int, most: int) -> int:
    if type(count) is not int or not 1 <= count <= MAX_CELLS:
        raise InvalidMechanism(f"A fit has between 1 and {MAX_CELLS} cells.")
    return min(count, most)
