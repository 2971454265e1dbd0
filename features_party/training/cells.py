"""The distribution of a label given a row, on cells of neighbouring labels, learned through the channels.

It uses the messages alone. A label's share is estimated from the outputs (`ClassLikelihood.shares`). Cells have about
equal shares, and a cell's channel is the mean of its labels' channel rows weighted by these shares. With u the place of
a cell among the shares, p(cell | row) ∝ share·e^(f₁·t₁(u) + f₂·t₂(u)), where t₁ and t₂ are polynomials of degree 1 and
2, orthonormal under the shares. So f₁ shifts the distribution and f₂ narrows or widens it. Two scores need two trees a
round, whatever the number of cells. A channel with two outputs identifies one direction only, so nothing beyond the
mean can be learned: `CellLikelihood.through` returns None.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from features_party.training import reading
from features_party.training.class_likelihood import EVEN, ClassLikelihood
from features_party.training.example_groups import ExampleGroups
from features_party.training.links import HESSIAN_FLOOR
from features_party.training.softmax import softmax
from label_dp.channels.base import CHUNK_CELLS, Channel
from label_dp.schemas.json_types import JsonObject

FloatArray = npt.NDArray[np.float64]
Matrix = npt.NDArray[np.floating]
IntArray = npt.NDArray[np.int64]

CELLS, FINE = 16, 256
SCORES = 2
SECOND = 0.05  # of the information in the best identified direction; below it the second counts as unidentified
AT_ONCE = 4096  # rows whose quantiles are computed in one block


@dataclass(frozen=True)
class LabelCells:
    """Cells of v rising labels (or means of neighbouring ones): `values`, `shares` float64[v], `cell` int64[v] from 0
    on."""

    values: FloatArray
    shares: FloatArray
    cell: IntArray

    @cached_property
    def mass(self) -> FloatArray:
        """Shares of the cells, float64[K]."""
        return np.asarray(np.bincount(self.cell, self.shares), np.float64)

    @cached_property
    def means(self) -> FloatArray:
        """Means of the labels in each cell, float64[K]."""
        return np.asarray(np.bincount(self.cell, self.shares * self.values) / self.mass, np.float64)

    @cached_property
    def basis(self) -> FloatArray:
        """Polynomials t₁ and t₂ at the cells, float64[K, 2]."""
        place = np.cumsum(self.mass) - self.mass / 2.0
        root = np.sqrt(self.mass)[:, None]
        orthonormal, upper = np.linalg.qr(root * np.vander(place, SCORES + 1, increasing=True))
        return np.asarray((orthonormal * np.sign(np.diag(upper)) / root)[:, 1:], np.float64)

    def probabilities(self, score: Matrix) -> Matrix:
        """Return probabilities [n, K] at scores [n, 2], in their type; each row sums to 1."""
        kind = score.dtype
        shares: Matrix = softmax(np.log(self.mass).astype(kind) + score @ self.basis.T.astype(kind))
        return shares

    def quantiles(self, score: Matrix, shares: FloatArray) -> FloatArray:
        """Return float64[n, q]: the smallest value whose cumulative probability reaches each of `shares` float64[q]."""
        parts = [self._quantiles(score[at : at + AT_ONCE], shares) for at in range(0, len(score), AT_ONCE)]
        return np.concatenate(parts) if parts else np.empty((0, len(shares)))

    def _quantiles(self, score: Matrix, shares: FloatArray) -> FloatArray:
        within = self.shares / self.mass[self.cell]
        below = np.cumsum(self.probabilities(score.astype(np.float64))[:, self.cell] * within, axis=1)
        below /= below[:, -1:]
        places = [(below < share - EVEN * 1e-9).sum(axis=1) for share in shares]
        return np.asarray(self.values[np.minimum(np.stack(places, axis=1), len(self.values) - 1)], np.float64)

    def as_json(self) -> JsonObject:
        return {"values": self.values.tolist(), "shares": self.shares.tolist(), "cell": self.cell.tolist()}

    @classmethod
    def from_json(cls, data: Any) -> LabelCells:
        """Parse the output of `as_json`. Raises KeyError, TypeError or ValueError."""
        values = reading.numbers(data["values"])
        shares = reading.numbers(data["shares"], len(values))
        cell = reading.wholes(data["cell"], 0, CELLS - 1, len(values))
        if not SCORES < len(values) <= FINE or np.any(np.diff(values) <= 0.0):
            raise ValueError("the labels of the cells do not rise, or are too many")
        if np.any(shares <= 0.0) or abs(float(shares.sum()) - 1.0) > 1e-9:
            raise ValueError("the shares of the labels are no distribution")
        if cell[0] != 0 or not set(np.diff(cell).tolist()) <= {0, 1} or cell[-1] < SCORES:
            raise ValueError("the cells are not in order, or too few")
        return cls(values, shares, cell)


@dataclass(frozen=True)
class CellLikelihood:
    """Likelihood of the outputs of n rows; `told` has the cells as its classes.

    Gradients and Hessians are in units of a true label's information on a score.
    """

    cells: LabelCells
    told: ClassLikelihood

    @classmethod
    def through(
        cls,
        channels: Sequence[Channel],
        message: npt.NDArray[np.integer],
        outputs: npt.NDArray[np.integer],
        prior: FloatArray | None = None,
    ) -> CellLikelihood | None:
        """Build the likelihood of the outputs of messages with the prior `prior` float64[k].

        Returns None if their outputs say nothing beyond the mean or the channels have different domains.
        """
        first = channels[0]
        if any(channel.domain != first.domain for channel in channels):
            return None
        even = np.full(first.k, 1.0 / first.k)
        mixed = even if prior is None else (1.0 - EVEN) * prior + EVEN * even
        fine = _grouped((mixed + even) / 2.0, FINE)
        mass = np.asarray(np.bincount(fine, mixed), np.float64)
        given = tuple(_collapsed(channel, mixed, fine) / mass[:, None] for channel in channels)
        shares = ClassLikelihood(given, message, outputs, mass).shares
        if len(shares) <= SCORES:
            return None
        alone = len(mass) == first.k  # then values equal the labels to the last bit
        values = np.array(first.labels) if alone else np.bincount(fine, mixed * first.labels) / mass
        cells = LabelCells(values, shares, _grouped(shares, CELLS))
        if len(cells.mass) <= SCORES:
            return None
        onto = (cells.cell == np.arange(len(cells.mass))[:, None]) * shares / cells.mass[:, None]
        class_likelihood = ClassLikelihood(tuple(onto @ one for one in given), message, outputs, cells.mass)
        cell_likelihood = cls(cells, class_likelihood)
        return cell_likelihood if cell_likelihood.directions[1] >= SECOND * cell_likelihood.directions[0] else None

    def take(self, rows: slice | IntArray) -> CellLikelihood:
        return CellLikelihood(self.cells, self.told.take(rows))

    def together(self, rows: ExampleGroups) -> CellLikelihood | None:
        """Merge to one row for each example; None if the product of its channels would be too large."""
        class_likelihood = self.told.together(rows)
        return None if class_likelihood is None else CellLikelihood(self.cells, class_likelihood)

    @cached_property
    def directions(self) -> FloatArray:
        """Information of an average output as a share of a true label's, in each direction in which the distribution
        can move.

        float64[K − 1], falling: the squared canonical correlations of cells and outputs.
        """
        mass, whole = self.cells.mass, np.zeros((len(self.cells.mass),) * 2)
        rows = np.bincount(self.told.message, minlength=len(self.told.given))
        for channel, count in zip(self.told.given, rows, strict=True):
            scaled = np.sqrt(mass)[:, None] * channel / np.sqrt(np.maximum(mass @ channel, 1e-300))
            whole += count / max(len(self.told.message), 1) * (scaled @ scaled.T)
        return np.asarray(np.linalg.eigvalsh(whole)[::-1][1:], np.float64)

    def __call__(self, score: Matrix) -> tuple[Matrix, Matrix]:
        """Return (gradient, Hessian) [n, 2] of minus the log likelihood at scores [n, 2], in their type."""
        p, basis = self.cells.probabilities(score), self.cells.basis.astype(score.dtype)
        floor = score.dtype.type(HESSIAN_FLOOR * max(float(self.directions[0]), 1e-9))
        return self.told.seen(p)[0] @ basis, np.maximum(self.told.information_along(p, basis), floor)

    def looked(self, score: FloatArray) -> tuple[FloatArray, float]:
        """Return (gradients float64[n, 2], minus the log likelihood)."""
        gradient, likely = self.told.seen(self.cells.probabilities(score))
        return gradient @ self.cells.basis, -float(np.log(likely).sum())


def _grouped(shares: FloatArray, most: int) -> IntArray:
    """Group neighbours into at most `most` groups of about equal shares: int64[k], rising from 0 without a gap."""
    if len(shares) <= most:
        return np.arange(len(shares))
    middle = (np.cumsum(shares) - shares / 2.0) / float(shares.sum())
    return np.unique(np.minimum((middle * most).astype(np.int64), most - 1), return_inverse=True)[1].astype(np.int64)


def _collapsed(channel: Channel, weights: FloatArray, group: IntArray) -> FloatArray:
    """Sum the channel's rows, weighted, within each group: float64[groups, m]."""
    sums, step = np.zeros((int(group[-1]) + 1, channel.m)), max(1, CHUNK_CELLS // channel.m)
    for start in range(0, channel.k, step):
        here = slice(start, min(start + step, channel.k))
        np.add.at(sums, group[here], weights[here, None] * channel.rows(here.start, here.stop))
    return sums
