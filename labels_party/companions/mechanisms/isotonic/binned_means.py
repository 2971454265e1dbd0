"""Calibration by noisy sums of public cells, for the squared loss: see `binning.py`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from label_dp.companions.maps.monotone import MonotoneMap
from label_dp.companions.maps.monotone_grid import MonotoneGrid
from label_dp.errors import InvalidEpsilon
from labels_party.companions.mechanisms.isotonic.binning import CellPlan, IntArray
from labels_party.companions.mechanisms.isotonic.grid import UNITS, in_units
from labels_party.companions.mechanisms.isotonic.total_order import AnyInts
from labels_party.mechanisms.entropy import MAX_NOISE_SCALE, LaplaceNoise, discrete_laplace

Noise = Callable[[LaplaceNoise, int], IntArray]


@dataclass(frozen=True)
class BinnedMeans(CellPlan):
    """Means, for the squared loss, by noisy sums."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if UNITS / self.epsilon.fraction > MAX_NOISE_SCALE / 2:
            raise InvalidEpsilon("ε is too small for a calibration: its noise would not fit into 64 bits.")

    @property
    def noise(self) -> LaplaceNoise:
        """Noise of the cells' sums, in 1/UNITS of the range: a label moves one of them by UNITS at most."""
        return LaplaceNoise(UNITS, self.epsilon.fraction)

    def excess_bound(self, counts: IntArray) -> float:
        """Bound the excess of the expected squared error, summed over all examples, over that of the best monotone map
        that is constant on the cells.

        In squared label units; cells have `counts` int64[M] matched examples each. A cell of s uploaded scores, of
        which few belong to the batch, errs more, so no document states the bound: the sender of the scores may compute
        it under the assumption that all of them matched.

        The map g nearest to noisy means ȳ + z, and f* nearest to ȳ, have, weighted by the counts, ‖g − ȳ‖² − ‖f* − ȳ‖²
        ≤ 2⟨g − f*, z⟩ − ‖g − f*‖² ≤ ‖z‖², and E‖z‖² ≤ 2(R/ε)²·Σ 1/count for a range R. A cell without an example counts
        as one of the middle, from which f* may be R/2 away. Labels, and g's values, are rounded by R/(2·UNITS) each; on
        a block with constant g both roundings move its mean, so that √E‖z‖² grows by √n·R/UNITS at most.
        """
        weights = np.maximum(counts, 1)
        wide = float(self.domain.value(self.domain.k - 1) - self.domain.value(0))
        noise = 2 * (wide / float(self.epsilon)) ** 2 * float(np.sum(1 / weights))
        rounding = wide * math.sqrt(float(weights.sum())) / UNITS
        return (math.sqrt(noise) + rounding) ** 2 + wide**2 / 4 * int(np.sum(counts == 0))

    def fit(self, x: AnyInts, y_positions: AnyInts, noise: Noise = discrete_laplace) -> MonotoneMap | MonotoneGrid:
        """Fit as `CellPlan.fit`.

        Guarantee. Labels are whole numbers 0 … UNITS of the domain's range; replacing one moves one cell's sum by UNITS
        at most. Each sum gets discrete Laplace noise of scale UNITS/ε (or above), drawn exactly, one draw for every
        cell, empty or not; all else follows from the noisy sums, x and public numbers. Cells are disjoint, so they cost
        ε together (parallel composition). The operations do not depend on a label.
        """
        sums, counts = self.sums(x, y_positions)
        noisy = sums + noise(self.noise, self.count).reshape(self.shape)
        return self._map(noisy / np.maximum(counts, 1), counts)

    def sums(self, x: AnyInts, y_positions: AnyInts) -> tuple[IntArray, IntArray]:
        """Sum the labels of each cell, in 1/UNITS of the range, which is not private yet, and count them: int64[M] or
        int64[a, b] each.

        Raises InvalidInput.
        """
        at, labels = self._placed(x, y_positions)
        # whole numbers far below 2⁵³, so that floats hold their sums
        sums = np.bincount(at, weights=in_units(self.domain, labels, UNITS), minlength=self.count)
        counts = np.bincount(at, minlength=self.count)
        return sums.astype(np.int64).reshape(self.shape), counts.reshape(self.shape)
