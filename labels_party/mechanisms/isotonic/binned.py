"""Calibration by noisy sums of public cells, isotonic afterwards: what Algorithm 1 is for, with far less noise where
the loss is squared.

The mean of a cell of m labels needs one noisy sum. It errs by range/(ε·m) or so, whatever the other cells are, because
an example lies in one cell; isotonic regression of the noisy means is free (post-processing) and averages the noise out
where they are flat. Algorithm 1 chooses cuts by the exponential mechanism instead, level by level, each with a share of
ε: its guarantee holds for any Lipschitz loss and for cuts anywhere, and costs log factors and worse constants
(Ghazi, Kamath, Kumar & Manurangsi 2022; binning: Zadrozny & Elkan 2001; `make around ARGS=calibration` has both).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from labels_party.mechanisms.entropy import MAX_NOISE_SCALE, discrete_laplace
from labels_party.mechanisms.isotonic.cells import MAX_CELLS, Cells
from labels_party.mechanisms.isotonic.grid import MAX_ROWS, UNITS, in_units
from labels_party.mechanisms.isotonic.total_order import AnyInts, Examples
from shared.domain import Domain
from shared.errors import InvalidEpsilon, InvalidInput, InvalidLoss
from shared.losses import Loss, Squared, get_loss
from shared.monotone import MonotoneMap
from shared.privacy import Epsilon

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Noise = Callable[[Fraction, int], IntArray]

CELLS_PER_ROOT = 0.75


def default_bins(n: int, epsilon: Epsilon) -> int:
    """¾·√(εn) cells, at least 2: then what noise costs, 2(cells/(εn))² of the squared range, is about what cells hide
    of a map that rises evenly, 1/(12·cells²), with a few more for maps that jump."""
    return max(2, min(MAX_CELLS, round(CELLS_PER_ROOT * math.sqrt(float(epsilon) * n))))


@dataclass(frozen=True)
class BinnedPlan:
    """What a fit is before it sees a label: all of it public. Raises InvalidEpsilon, InvalidLoss, InvalidInput."""

    domain: Domain
    cells: Cells
    n: int
    epsilon: Epsilon
    loss: str | Loss = "squared"

    def __post_init__(self) -> None:
        if not self.epsilon:
            raise InvalidEpsilon("A calibration needs an ε greater than zero.")
        if self.scale > MAX_NOISE_SCALE / 2:
            raise InvalidEpsilon("ε is too small for a calibration: its noise would not fit into 64 bits.")
        if not isinstance(get_loss(self.loss), Squared):
            raise InvalidLoss("The shape 'bins' is of means, the squared loss; other losses have the shape 'monotone'.")
        if self.n > MAX_ROWS:
            raise InvalidInput(f"A calibration takes at most {MAX_ROWS} examples.")

    @property
    def scale(self) -> Fraction:
        """Of the discrete Laplace noise of a cell's sum, in 1/UNITS of the range: its sensitivity over ε."""
        return UNITS / self.epsilon.fraction

    @property
    def excess_bound(self) -> float:
        """The most by which the expected squared error, summed over all examples, exceeds that of the best monotone
        map that is constant on cells of n/cells examples each: the noise's variance over the examples of a cell,
        because projecting on monotone maps brings two sets of means no further apart, in squared label units."""
        wide = float(self.domain.value(self.domain.k - 1) - self.domain.value(0))
        return 2 * (self.cells.count * wide / float(self.epsilon)) ** 2 / self.n

    def fit(self, x: AnyInts, y_positions: AnyInts, noise: Noise = discrete_laplace) -> MonotoneMap:
        """A monotone map x → mean label, ε-DP in the labels (replace-one; n, x and the cells are public).

        `x` int[m] below the last edge of the cells, `y_positions` int[m] positions in the domain.

        Guarantee. Labels are whole numbers 0 … UNITS of the domain's range; replacing one moves one cell's sum by UNITS
        at most. Each sum gets discrete Laplace noise of scale UNITS/ε (or above), drawn exactly, one draw a cell
        whatever is in it; all else follows from the noisy sums, x and public numbers. Cells are disjoint, so they
        cost ε together (parallel composition). What is done does not depend on a label.

        Raises InvalidInput, RandomnessUnavailable.
        """
        sums, counts = self.sums(x, y_positions)
        return self.cells.map_of(self._values(sums + noise(self.scale, counts.size), counts))

    def sums(self, x: AnyInts, y_positions: AnyInts) -> tuple[IntArray, IntArray]:
        """int64[M] twice: the sum of the labels of each cell, in 1/UNITS of the range, not private yet; how many."""
        size, starts = int(self.cells.edges[-1]), self.cells.edges[:-1]
        data = Examples.checked(x, y_positions, self.domain, size, starts)
        ends = np.append(0, data.ends[np.searchsorted(data.xs, self.cells.edges[1:])])
        running = np.append(0, np.cumsum(in_units(self.domain, data.labels, UNITS)))
        return np.diff(running[ends]), np.diff(ends)

    def _values(self, sums: IntArray, counts: IntArray) -> FloatArray:
        """float64[M]: rising label values, by least squares, in whole 1/UNITS of the range: a quotient would show how
        many examples a cell has. One without any, which the map is not to show, counts as one of the domain's middle.
        """
        from scipy.optimize import isotonic_regression

        empty, weights = counts == 0, np.maximum(counts, 1).astype(np.float64)
        fitted = isotonic_regression((sums + empty * (UNITS // 2)) / weights, weights=weights).x
        low, high = float(self.domain.value(0)), float(self.domain.value(self.domain.k - 1))
        return np.asarray(np.clip(low + (high - low) * np.rint(fitted) / UNITS, low, high), np.float64)
