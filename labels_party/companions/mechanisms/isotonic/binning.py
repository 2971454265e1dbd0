"""Calibration by public cells, then isotonic regression: the purpose of Algorithms 1 and 3 with far less noise.

The squared loss uses noisy sums, the absolute one medians (`binned.py`).

The mean of a cell of m labels needs one noisy sum. It errs by about range/(ε·m), independently of the other cells,
because an example lies in one cell; isotonic regression of the noisy means is free (post-processing) and averages the
noise out in flat parts. A median errs by some 3/ε ranks, of m. The algorithms choose cuts by the exponential mechanism
instead, level by level, each with a share of ε: their guarantees hold for any Lipschitz loss and for cuts anywhere, and
cost log factors and worse constants (Ghazi, Kamath, Kumar & Manurangsi 2022; binning: Zadrozny & Elkan 2001; medians by
ranks: McSherry & Talwar 2007; `make around ARGS="isotonic medians"` compares them).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from label_dp.companions.maps.monotone import MonotoneMap
from label_dp.companions.maps.monotone_grid import MonotoneGrid
from label_dp.companions.maps.shapes import MAX_CELLS
from label_dp.domain import Domain
from label_dp.errors import InvalidEpsilon, InvalidInput, InvalidMechanism
from label_dp.privacy import Epsilon
from labels_party.companions.mechanisms.isotonic.cells import Cells
from labels_party.companions.mechanisms.isotonic.grid import MAX_ROWS, UNITS
from labels_party.companions.mechanisms.isotonic.total_order import AnyInts, check_columns

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

CELLS_PER_ROOT, CELLS_PER_CUBIC_ROOT = 0.75, 0.8
MEDIANS_PER_ROOT, MEDIANS_PER_CUBIC_ROOT = 0.5, 0.6


def default_bins(n: int, epsilon: Epsilon, axes: int = 1, loss: str = "squared") -> int:
    """Choose the number of cells along each axis, at least 2: of means ¾·√(εn) along one, 0.8·∛(εn) along either of
    two; of medians ½ and 0.6.

    The cost of noise, 2(cells/(εn))² of the squared range, is then about the rounding error of a map that rises evenly,
    per axis 1/(12·(cells along it)²), with a few more for maps that jump. Medians have fewer, so that a cell has enough
    labels for the logarithm of the number of values it may take.
    """
    scale, means = float(epsilon) * n, loss == "squared"
    root, cubic = (CELLS_PER_ROOT, CELLS_PER_CUBIC_ROOT) if means else (MEDIANS_PER_ROOT, MEDIANS_PER_CUBIC_ROOT)
    along = root * math.sqrt(scale) if axes == 1 else cubic * math.cbrt(scale)
    return max(2, min(math.isqrt(MAX_CELLS) if axes == 2 else MAX_CELLS, round(along)))


@dataclass(frozen=True)
class CellPlan(ABC):
    """Public plan of a fit. `cells` along each of one or two axes.

    Raises InvalidEpsilon, InvalidInput, InvalidMechanism (too many cells).
    """

    domain: Domain
    cells: tuple[Cells, ...]
    n: int
    epsilon: Epsilon

    def __post_init__(self) -> None:
        if not self.epsilon:
            raise InvalidEpsilon("A calibration needs an ε greater than zero.")
        if self.n > MAX_ROWS:
            raise InvalidInput(f"A calibration takes at most {MAX_ROWS} examples.")
        if self.count > MAX_CELLS:
            raise InvalidMechanism(f"A calibration has at most {MAX_CELLS} cells in all.")

    @abstractmethod
    def fit(self, x: AnyInts, y_positions: AnyInts) -> MonotoneMap | MonotoneGrid:
        """Fit a monotone map x → label, ε-DP in the labels (replace-one; n, x and the cells are public).

        `x` int[m], of two axes int[2, m], below the last edge of the cells; `y_positions` int[m] positions in the
        domain. Raises InvalidInput, RandomnessUnavailable.
        """

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(cells.count for cells in self.cells)

    @property
    def count(self) -> int:
        return math.prod(self.shape)

    def _placed(self, x: AnyInts, y_positions: AnyInts) -> tuple[IntArray, IntArray]:
        """Return the cell of every example, of all axes, and its label: int64[m] each. Raises InvalidInput."""
        columns, labels = np.atleast_2d(np.asarray(x)), np.asarray(y_positions)
        at = np.zeros(labels.shape, np.int64)
        if len(columns) != len(self.cells):
            raise InvalidInput("A calibration takes one x for each axis of its cells.")
        for cells, column in zip(self.cells, columns, strict=True):
            check_columns(column, labels, self.domain, int(cells.edges[-1]))
            at = at * cells.count + cells.of(column.astype(np.int64))
        return at, labels.astype(np.int64)

    def _map(self, values_of_cells: FloatArray, counts: IntArray) -> MonotoneMap | MonotoneGrid:
        """Build the map from the value of each cell, in 1/UNITS of the domain's range, and its number of examples.

        Values that fall nowhere, by least squares, in whole 1/UNITS: a quotient would show how many examples a cell
        has. An empty cell, which the map must not reveal, counts as one example of the domain's middle.
        """
        from labels_party.companions.mechanisms.isotonic.projection import rising  # numba takes a while to load

        weights = np.maximum(counts, 1).astype(np.float64).reshape(self.shape)
        projected = rising(
            np.where(counts == 0, values_of_cells + UNITS // 2, values_of_cells).reshape(self.shape), weights
        )
        low, high = float(self.domain.value(0)), float(self.domain.value(self.domain.k - 1))
        values = np.asarray(np.clip(low + (high - low) * np.rint(projected) / UNITS, low, high), np.float64)
        if len(self.cells) == 1:
            return self.cells[0].map_of(values)
        first, second = (cells.edges for cells in self.cells)
        return MonotoneGrid((int(first[-1]), int(second[-1])), (first[1:-1], second[1:-1]), values)
