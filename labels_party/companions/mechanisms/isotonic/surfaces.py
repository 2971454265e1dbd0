"""Private isotonic regression on two numbers: Algorithm 3 on a public grid of cells along both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from label_dp.companions.maps.monotone_grid import FloatArray, MonotoneGrid
from label_dp.domain import Domain
from label_dp.privacy import Epsilon
from labels_party.companions.mechanisms.isotonic.antichains import isotonic_poset, poset_grid
from labels_party.companions.mechanisms.isotonic.cells import Cells
from labels_party.companions.mechanisms.isotonic.constrained import default_values
from labels_party.companions.mechanisms.isotonic.posets import Poset
from labels_party.companions.mechanisms.isotonic.total_order import AnyInts
from labels_party.mechanisms.entropy import Uint64Source

IntArray = npt.NDArray[np.int64]
TwoCells = tuple[Cells, Cells]


def axis_cells(numbers: IntArray, size: int, most: int) -> Cells:
    """Make at most `most` cells of 0 … size − 1, from public numbers int64[m], m ≥ 1, alone.

    One cell for each possible number, if those are no more than `most`; else about equally many of `numbers` in each,
    and no more cells than there are different ones among them.
    """
    if size <= most:
        return Cells.even(size, size)
    return Cells.holding(numbers, size, most)


@dataclass(frozen=True)
class SurfacePlan:
    """Public plan of a fit. Its construction raises what `poset_grid` raises."""

    domain: Domain
    cells: TwoCells
    n: int
    epsilon: Epsilon
    loss: str
    asked: int | None = None  # output values

    def __post_init__(self) -> None:
        poset_grid(self.domain, self.poset, self.n, self.epsilon, self.loss, self.values)

    @property
    def shape(self) -> tuple[int, int]:
        return self.cells[0].count, self.cells[1].count

    @property
    def poset(self) -> Poset:
        return Poset.grid(*self.shape)

    @property
    def values(self) -> int:
        if self.asked is not None:
            return self.asked
        return default_values(self.n, self.epsilon, self.poset.size, self.poset.down_set_count)

    def fit(self, x: IntArray, y_positions: AnyInts, source: Uint64Source | None = None) -> MonotoneGrid:
        """Fit a map of two numbers, monotone in both, of small empirical loss.

        ε-DP in the labels (replace-one; n, both numbers and the cells are public), as `isotonic_poset`, whose output it
        represents. `x` int64[2, m] below the ends of the cells, `y_positions` int64[m], m ≥ 0. Raises InvalidInput,
        RandomnessUnavailable.
        """
        a, b = self.shape
        elements: Any = self.cells[0].of(x[0]) * b + self.cells[1].of(x[1])
        poset = self.poset
        values = isotonic_poset(
            elements,
            y_positions,
            self.domain,
            poset,
            self.epsilon,
            self.loss,
            values=self.values,
            places=np.arange(poset.size),
            source=source,
        )
        return self.map_of(values.reshape(a, b))

    def map_of(self, values: FloatArray) -> MonotoneGrid:
        """Build the step function with `values` float64[a, b] on the cells."""
        first, second = self.cells
        sizes = int(first.edges[-1]), int(second.edges[-1])
        return MonotoneGrid(sizes, (first.edges[1:-1], second.edges[1:-1]), values)
