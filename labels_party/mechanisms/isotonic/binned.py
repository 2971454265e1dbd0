"""Calibration by noisy sums of public cells, isotonic afterwards: what Algorithms 1 and 3 are for, with far less noise
where the loss is squared.

The mean of a cell of m labels needs one noisy sum. It errs by range/(ε·m) or so, whatever the other cells are, because
an example lies in one cell; isotonic regression of the noisy means is free (post-processing) and averages the noise out
where they are flat. The algorithms choose cuts by the exponential mechanism instead, level by level, each with a share
of ε: their guarantees hold for any Lipschitz loss and for cuts anywhere, and cost log factors and worse constants
(Ghazi, Kamath, Kumar & Manurangsi 2022; binning: Zadrozny & Elkan 2001; `make around ARGS=isotonic` has both).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from labels_party.mechanisms.entropy import MAX_NOISE_SCALE, LaplaceNoise, discrete_laplace
from labels_party.mechanisms.isotonic.cells import Cells
from labels_party.mechanisms.isotonic.grid import MAX_ROWS, UNITS, in_units
from labels_party.mechanisms.isotonic.total_order import AnyInts, check_columns
from shared.domain import Domain
from shared.errors import InvalidEpsilon, InvalidInput, InvalidLoss, InvalidMechanism
from shared.losses import Loss, Squared, get_loss
from shared.maps.monotone import MonotoneMap
from shared.maps.monotone_grid import MonotoneGrid
from shared.maps.shapes import MAX_CELLS
from shared.privacy import Epsilon

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Noise = Callable[[LaplaceNoise, int], IntArray]

CELLS_PER_ROOT, CELLS_PER_CUBIC_ROOT = 0.75, 0.8


def default_bins(n: int, epsilon: Epsilon, axes: int = 1) -> int:
    """How many cells along each axis, at least 2: ¾·√(εn) along one, 0.8·∛(εn) along either of two.

    What noise costs, 2(cells/(εn))² of the squared range, is then about what cells hide of a map that rises evenly, an
    axis 1/(12·(cells along it)²), with a few more for maps that jump.
    """
    scale = float(epsilon) * n
    along = CELLS_PER_ROOT * math.sqrt(scale) if axes == 1 else CELLS_PER_CUBIC_ROOT * math.cbrt(scale)
    return max(2, min(math.isqrt(MAX_CELLS) if axes == 2 else MAX_CELLS, round(along)))


@dataclass(frozen=True)
class BinnedPlan:
    """What a fit is before it sees a label: all of it public. `cells` along each of one or two axes.

    Raises InvalidEpsilon, InvalidLoss, InvalidInput, InvalidMechanism (too many cells).
    """

    domain: Domain
    cells: tuple[Cells, ...]
    n: int
    epsilon: Epsilon
    loss: str | Loss = "squared"

    def __post_init__(self) -> None:
        if not self.epsilon:
            raise InvalidEpsilon("A calibration needs an ε greater than zero.")
        if UNITS / self.epsilon.fraction > MAX_NOISE_SCALE / 2:
            raise InvalidEpsilon("ε is too small for a calibration: its noise would not fit into 64 bits.")
        if not isinstance(get_loss(self.loss), Squared):
            raise InvalidLoss("The shape 'bins' is of means, the squared loss; other losses have the shape 'monotone'.")
        if self.n > MAX_ROWS:
            raise InvalidInput(f"A calibration takes at most {MAX_ROWS} examples.")
        if self.count > MAX_CELLS:
            raise InvalidMechanism(f"A calibration has at most {MAX_CELLS} cells in all.")

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(cells.count for cells in self.cells)

    @property
    def count(self) -> int:
        return math.prod(self.shape)

    @property
    def noise(self) -> LaplaceNoise:
        """Of the cells' sums, in 1/UNITS of the range: a label moves one of them by UNITS at most."""
        return LaplaceNoise(UNITS, self.epsilon.fraction)

    @property
    def excess_bound(self) -> float:
        """The most by which the expected squared error, summed over all examples, exceeds that of the best monotone
        map that is constant on cells of n/cells examples each, in squared label units (but for rounding).

        It is Σ of the cells' examples times the variance of the noise in their means: the map f nearest to noisy means
        ȳ + z, and f* nearest to ȳ, have ‖f − ȳ‖² − ‖f* − ȳ‖² ≤ 2⟨f − f*, z⟩ − ‖f − f*‖² ≤ ‖z‖².
        """
        wide = float(self.domain.value(self.domain.k - 1) - self.domain.value(0))
        return 2 * (self.count * wide / float(self.epsilon)) ** 2 / self.n

    def fit(self, x: AnyInts, y_positions: AnyInts, noise: Noise = discrete_laplace) -> MonotoneMap | MonotoneGrid:
        """A monotone map x → mean label, ε-DP in the labels (replace-one; n, x and the cells are public).

        `x` int[m], of two axes int[2, m], below the last edge of the cells; `y_positions` int[m] positions in the
        domain.

        Guarantee. Labels are whole numbers 0 … UNITS of the domain's range; replacing one moves one cell's sum by UNITS
        at most. Each sum gets discrete Laplace noise of scale UNITS/ε (or above), drawn exactly, one draw a cell
        whatever is in it; all else follows from the noisy sums, x and public numbers. Cells are disjoint, so they
        cost ε together (parallel composition). What is done does not depend on a label.

        Raises InvalidInput, RandomnessUnavailable.
        """
        sums, counts = self.sums(x, y_positions)
        values = self._values(sums + noise(self.noise, self.count).reshape(self.shape), counts)
        if len(self.cells) == 1:
            return self.cells[0].map_of(values)
        first, second = (cells.edges for cells in self.cells)
        return MonotoneGrid((int(first[-1]), int(second[-1])), (first[1:-1], second[1:-1]), values)

    def sums(self, x: AnyInts, y_positions: AnyInts) -> tuple[IntArray, IntArray]:
        """int64[M] or int64[a, b], twice: the sum of the labels of each cell, in 1/UNITS of the range, which is not
        private yet; and how many there are. Raises InvalidInput."""
        columns, labels = np.atleast_2d(np.asarray(x)), np.asarray(y_positions)
        at = np.zeros(labels.shape, np.int64)
        if len(columns) != len(self.cells):
            raise InvalidInput("A calibration takes one x for each axis of its cells.")
        for cells, column in zip(self.cells, columns, strict=True):
            check_columns(column, labels, self.domain, int(cells.edges[-1]))
            at = at * cells.count + cells.of(column.astype(np.int64))
        # of whole numbers far below 2⁵³, so that floats hold their sums
        sums = np.bincount(at, weights=in_units(self.domain, labels.astype(np.int64), UNITS), minlength=self.count)
        counts = np.bincount(at, minlength=self.count)
        return sums.astype(np.int64).reshape(self.shape), counts.reshape(self.shape)

    def _values(self, sums: IntArray, counts: IntArray) -> FloatArray:
        """Label values that fall nowhere, by least squares, in whole 1/UNITS of the range: a quotient would show how
        many examples a cell has. One without any, which the map is not to show, counts as one of the domain's middle.
        """
        from labels_party.mechanisms.isotonic.projection import rising  # scipy takes a while to load

        empty, weights = counts == 0, np.maximum(counts, 1).astype(np.float64)
        fitted = rising((sums + empty * (UNITS // 2)) / weights, weights)
        low, high = float(self.domain.value(0)), float(self.domain.value(self.domain.k - 1))
        return np.asarray(np.clip(low + (high - low) * np.rint(fitted) / UNITS, low, high), np.float64)
