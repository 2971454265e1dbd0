"""Subset selection: a label becomes one of a public list of subsets of the labels, each with A if the label is in it.

The subsets are the k cyclic shifts of t base blocks. So every label is in equally many of them, one row of weights
serves all labels, and neither a prior nor a table of weights has to be published. Number s·t + b is the subset
{(s + x) mod k: x in block b} of positions. Its value is the label at s, which is in it, since blocks begin at 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Self

import numpy as np

from label_dp.channels.base import FloatArray, IntArray, N, WeightedChannel, frozen_floats
from label_dp.channels.dense import CONDITION_LIMIT, MAX_DENSE_CELLS
from label_dp.channels.reading import Members, integer, items, positions
from label_dp.domain import Domain
from label_dp.errors import InvalidMechanism


@dataclass(frozen=True, eq=False, kw_only=True)
class SubsetChannel(WeightedChannel):
    """k-subset mechanism (Wang et al. 2016; Ye & Barg 2018) on m = t·k subsets, k·m ≤ 2²⁰.

    `blocks` are t lists of 1 to k − 1 positions, rising from 0, of r positions in all. A label has weight A on the r
    subsets that it is in and B on the others, and one more on the first N − r·A − (m − r)·B of these. Raises
    InvalidMechanism.
    """

    kind = "subset-selection"
    members = ("A", "B", "blocks")
    blocks: tuple[IntArray, ...]
    A: int
    B: int

    def __post_init__(self) -> None:
        if not self.blocks or self.k * self.k * len(self.blocks) > MAX_DENSE_CELLS:
            raise InvalidMechanism("Subset selection has one base block or more, and at most 2²⁰ weights.")
        for block in self.blocks:
            inside = 1 <= block.size < self.k and block[0] == 0 and block[-1] < self.k
            if not inside or np.any(np.diff(block) < 1):
                raise InvalidMechanism("A base block lists some positions of the domain, not all, rising from 0.")
        object.__setattr__(self, "outputs", frozen_floats(np.repeat(self.labels, len(self.blocks)), "outputs"))
        if not 1 <= self.B <= self.A or not 0 <= self.rest < self.m - self.r or self.B + (self.rest > 0) > self.A:
            raise InvalidMechanism(
                "The weights must satisfy 1 ≤ B ≤ A, and r·A + (m − r)·B must be 2⁶⁴ less at most one a subset."
            )

    @cached_property
    def r(self) -> int:
        """Number of subsets that a label is in."""
        return sum(block.size for block in self.blocks)

    @property
    def d(self) -> int:
        """Labels in the largest subset."""
        return max(block.size for block in self.blocks)

    @property
    def rest(self) -> int:
        """Number of subsets of weight B + 1."""
        return N - self.r * self.A - (self.m - self.r) * self.B

    @cached_property
    def steps(self) -> IntArray:
        """Subsets of a label y, as int64[m] to be added to y·t modulo m: the r that it is in, then the others.

        Either part is sorted by block, then by the label's place x in it: a step is b − x·t.
        """
        t = len(self.blocks)
        places = np.arange(self.k)
        own = [b - t * block for b, block in enumerate(self.blocks)]
        others = [b - t * np.setdiff1d(places, block) for b, block in enumerate(self.blocks)]
        return np.concatenate([*own, *others])

    def rows(self, start: int, stop: int) -> FloatArray:
        weights = np.full(self.m, self.B / N)
        weights[: self.r] = self.A / N
        weights[self.r : self.r + self.rest] = (self.B + 1) / N
        rows = np.empty((stop - start, self.m))
        places = (np.arange(start, stop)[:, None] * len(self.blocks) + self.steps) % self.m
        np.put_along_axis(rows, places, np.broadcast_to(weights, rows.shape), axis=1)
        return rows

    @property
    def worst_case_odds(self) -> Fraction:
        """Exact ratio A/B: all shifts of a block have the same weights, and some block has a weight B."""
        return Fraction(self.A, self.B)

    def flip_probability(self, prior: FloatArray | None = None) -> float:
        """Return the share of examples whose subset does not contain their label."""
        return max(0.0, 1.0 - self.r * self.A / N)

    @cached_property
    def _debiased(self) -> FloatArray:
        centre = float(self.labels[self.k // 2])
        values, _, rank, singular = np.linalg.lstsq(self.matrix(), self.labels - centre, rcond=1 / CONDITION_LIMIT)
        if rank < self.k or singular[0] > CONDITION_LIMIT * singular[-1]:
            raise InvalidMechanism("These subsets do not tell all labels apart, so that there is no correction.")
        return frozen_floats(values + centre, "corrected outputs")

    def debiased_outputs(self) -> FloatArray:
        """Return the smallest values v of E[v | y] = y. Raises InvalidMechanism if there are none."""
        return self._debiased

    @property
    def unbiased(self) -> bool:
        try:
            return bool(self._debiased.size)
        except InvalidMechanism:
            return False

    def written(self) -> dict[str, object]:
        return {
            "A": str(self.A),
            "B": str(self.B),
            "blocks": [[str(x) for x in block.tolist()] for block in self.blocks],
        }

    @classmethod
    def read(cls, members: Members, domain: Domain) -> Self:
        most = MAX_DENSE_CELLS // domain.k**2
        blocks = [positions(block, 1, domain.k, domain.k - 1) for block in items(members["blocks"], 1, most)]
        return cls(domain=domain, blocks=tuple(blocks), A=integer(members["A"]), B=integer(members["B"]))
