"""Losses of finitely many output values in whole numbers, so that a sensitivity is exact and no float decides.

Everything here is a public function of the label domain, the loss and the number of output values: floats may be used
to make a table, because both neighbours read the same one, and the sensitivity is then computed from its integers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from label_dp.domain import Domain
from label_dp.errors import InvalidLoss
from label_dp.losses import Absolute, Loss, Poisson, Squared, get_loss

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

UNITS = 1 << 16  # about how many steps divide the range of the labels
TABLE_UNITS = 1 << 32  # the largest entry of a table
MAX_TABLE_CELLS = 1 << 22
MAX_OUTPUTS = 1 << 16
MAX_ROWS = 1 << 28  # with at most so many, sums of losses of at most 2³⁴ each stay below 2⁶²


@dataclass(frozen=True, eq=False)
class LossGrid(ABC):
    """V public output values (`outputs` float64[V], increasing) and the loss of each at each label, in whole numbers.

    `unit` is the value of one whole number in the requested loss (up to terms of the label alone).
    """

    outputs: FloatArray
    unit: float

    @property
    def size(self) -> int:
        return int(self.outputs.size)

    @abstractmethod
    def prepared(self, positions: IntArray) -> IntArray:
        """Prepare the input of `costs`, int64[n], from label positions int64[n] in 0 … k − 1."""

    @abstractmethod
    def costs(self, v: int, labels: IntArray) -> IntArray:
        """Return the loss of output v for each of the prepared labels, less a term of the label alone: int64[n], |·| ≤
        2³⁴."""

    @abstractmethod
    def swings(self) -> IntArray:
        """Return the largest moves of ℓ(v + 1, y) − ℓ(v, y) when one label y is replaced by y′: int64[V − 1]."""

    @cached_property
    def _swung(self) -> IntArray:
        return np.concatenate([[0], np.cumsum(self.swings())])

    def sensitivity(self, first: int, stop: int) -> int:
        """Return the Δ of choices among functions with values `first` … `stop` − 1: half, rounded up, of the largest
        move of the *difference* of two of their losses when one label is replaced, and at least 1.

        Two such functions give the replaced example outputs u and v; the difference of their losses moves by (ℓ(u, y′)
        − ℓ(u, y)) − (ℓ(v, y′) − ℓ(v, y)), at most the sum of the swings between u and v. The same bound holds for
        scores that are least losses over sets of such functions: with h(u) = ℓ(u, y′) − ℓ(u, y), the best function of
        one data set bounds the least loss of the other, so each score moves by between min h and max h. Scores less a
        constant, which does not affect a choice, then move by at most Δ.
        """
        return max(1, -(-int(self._swung[stop - 1] - self._swung[first]) // 2))


@dataclass(frozen=True, eq=False)
class _Scaled(LossGrid):
    """Labels and outputs as whole numbers 0 … UNITS of the domain's range; a label between two goes to the nearest."""

    domain: Domain
    points: IntArray  # int64[V]: the outputs in units

    def prepared(self, positions: IntArray) -> IntArray:
        return in_units(self.domain, positions, int(self.points[-1]))


class SquaredGrid(_Scaled):
    """(v − y)² less y²: v·(v − 2y)."""

    def costs(self, v: int, labels: IntArray) -> IntArray:
        point = int(self.points[v])
        return point * (point - 2 * labels)

    def swings(self) -> IntArray:
        return np.asarray(2 * np.diff(self.points) * int(self.points[-1]), np.int64)


class AbsoluteGrid(_Scaled):
    """|v − y|. The outputs are equally spaced, or they are the labels (`at_labels`)."""

    @cached_property
    def at_labels(self) -> bool:
        positions = np.arange(self.domain.k if self.domain.k <= self.size else 0)
        return np.array_equal(self.points, self.prepared(positions))

    def costs(self, v: int, labels: IntArray) -> IntArray:
        return np.abs(labels - int(self.points[v]))

    def swings(self) -> IntArray:
        return np.asarray(2 * np.diff(self.points), np.int64)


@dataclass(frozen=True, eq=False)
class TableGrid(LossGrid):
    """Any loss as a table of whole numbers: `table` int64[V, k]."""

    table: IntArray

    def prepared(self, positions: IntArray) -> IntArray:
        return positions

    def costs(self, v: int, labels: IntArray) -> IntArray:
        return np.asarray(self.table[v][labels], np.int64)

    def swings(self) -> IntArray:
        return np.asarray(np.ptp(np.diff(self.table, axis=0), axis=1), np.int64)


def loss_grid(domain: Domain, loss: str | Loss, size: int) -> LossGrid:
    """Build a grid of `size` ≥ 1 outputs, equally spaced from the first to the last label, both included; for the
    Poisson loss equally spaced in their square roots and above the first label, as it is unbounded near v = 0.

    For the absolute loss with no more labels than `size`, the labels themselves: its best outputs are labels. For a
    loss with candidate outputs, those of them in the range of the labels. Raises InvalidLoss (a loss that does not suit
    the domain or the size).
    """
    ell = get_loss(loss)
    labels = domain.values
    ell.check(labels)
    if not 1 <= size <= MAX_OUTPUTS:
        raise InvalidLoss(f"An isotonic regression has between 1 and {MAX_OUTPUTS} output values.")
    if isinstance(ell, Squared | Absolute):
        return _scaled_grid(domain, ell, size)
    low, high = float(labels[0]), float(labels[-1])
    outputs: FloatArray = np.linspace(low, high, size)
    if ell.candidates is not None:
        outputs = ell.candidates[(ell.candidates >= low) & (ell.candidates <= high)]
    elif isinstance(ell, Poisson):
        outputs = low + (high - low) * np.square((np.arange(size) + 0.5) / (size - 0.5))
    outputs = np.unique(outputs)
    if outputs.size == 0:
        raise InvalidLoss("No candidate output of this loss lies in the range of the labels.")
    if outputs.size * domain.k > MAX_TABLE_CELLS:
        raise InvalidLoss(
            "This loss has too many labels times outputs for an isotonic regression; take a coarser domain."
        )
    table = ell.matrix(outputs, labels).T
    table = table - table.min(axis=0)  # a term of the label alone
    unit = float(table.max()) / TABLE_UNITS or 1.0
    return TableGrid(outputs, unit, np.rint(table / unit).astype(np.int64))


def _scaled_grid(domain: Domain, ell: Loss, size: int) -> LossGrid:
    low, high = float(domain.values[0]), float(domain.values[-1])
    width, squared = high - low, isinstance(ell, Squared)
    kind = SquaredGrid if squared else AbsoluteGrid
    if domain.k == 1 or size == 1:
        outputs = np.array([low] if domain.k == 1 else [low + width / 2])
        return kind(outputs, 1.0, domain, np.zeros(1, np.int64))
    if not squared and domain.k <= size:
        points = in_units(domain, np.arange(domain.k), UNITS)
        if np.all(np.diff(points) > 0):
            return kind(domain.values, width / UNITS, domain, points)
    step = max(1, UNITS // (size - 1))
    points = np.arange(size, dtype=np.int64) * step
    outputs = low + width * (np.arange(size) / (size - 1))
    outputs[-1] = high
    steps = step * (size - 1)
    return kind(outputs, (width / steps) ** (2 if squared else 1), domain, points)


def in_units(domain: Domain, positions: IntArray, units: int) -> IntArray:
    """Round the labels at `positions` to whole 1/`units` of the domain's range, to the nearest, halves up: int64[n]."""
    if domain.k == 1 or units == 0:
        return np.zeros(positions.shape, np.int64)
    if not domain.listed:
        return (2 * units * positions + (domain.k - 1)) // (2 * (domain.k - 1))
    exact = domain.integers()
    width = exact[-1] - exact[0]
    rounded = [(2 * units * (value - exact[0]) + width) // (2 * width) for value in exact]
    return np.array(rounded, np.int64)[positions]
