"""Calibration by noisy sums of public cells for the squared loss, by private medians of them for the absolute one: see
`binning.py`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from label_dp.companions.maps.monotone import MonotoneMap
from label_dp.companions.maps.monotone_grid import MonotoneGrid
from label_dp.errors import InvalidEpsilon
from labels_party.companions.mechanisms.isotonic.binning import CellPlan, IntArray
from labels_party.companions.mechanisms.isotonic.grid import UNITS, in_units
from labels_party.companions.mechanisms.isotonic.total_order import AnyInts
from labels_party.mechanisms.choice import choose, rate_of
from labels_party.mechanisms.entropy import MAX_NOISE_SCALE, Keystream, LaplaceNoise, Uint64Source, discrete_laplace
from labels_party.mechanisms.quantiles import rank_losses, scale_grid

Noise = Callable[[LaplaceNoise, int], IntArray]
LISTED = 1 << 10  # up to so many labels are all candidates of a median
SPREAD = 1 << 9  # evenly spaced candidates of larger domains
BETA = 20  # a stated rank error is exceeded in one of so many fits
MEDIAN = Fraction(1, 2)


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


@dataclass(frozen=True)
class BinnedMedians(CellPlan):
    """Medians, for the absolute loss, by the exponential mechanism on ranks (`labels_party.mechanisms.quantiles`)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        rate_of(self.epsilon.fraction, 1)

    @property
    def rate(self) -> Fraction:
        """Rate c of P[v] ∝ e^(−c·rank loss of v)."""
        return rate_of(self.epsilon.fraction, 1)

    @property
    def candidates(self) -> IntArray:
        """Positions that a median may take, public: int64[V].

        Every label of up to 1,024; of more, evenly spaced ones and ones dense on a logarithmic scale around 0, for
        domains declared too wide.
        """
        k = self.domain.k
        if k <= LISTED:
            return np.arange(k)
        even = np.array([at * (k - 1) // (SPREAD - 1) for at in range(SPREAD)], np.int64)
        return np.union1d(even, scale_grid(k, int(self.domain.index(np.zeros(1))[0][0])))

    @property
    def rank_error(self) -> float:
        """Bound, for all cells in 19 fits of 20, the number of labels by which a cell's median misses half of them,
        apart from the labels between two candidates."""
        return math.log(self.candidates.size * self.count * BETA) / float(self.rate)

    def fit(self, x: AnyInts, y_positions: AnyInts, source: Uint64Source | None = None) -> MonotoneMap | MonotoneGrid:
        """Fit as `CellPlan.fit`.

        Guarantee. Of the m examples of a cell, a public number, replacing a label moves how many lie below a candidate,
        or up to it, by 1 at most, hence its rank loss; the choice at rate (ε − SLACK)/2 is ε-DP with its rounding
        (`choice.rate_of`). There is one choice for every cell, empty or not; all else follows from the choices, x and
        public numbers. Cells are disjoint, so they cost ε together (parallel composition).
        """
        below, upto, counts = self.ranks(x, y_positions)
        stream, rate = Keystream() if source is None else source, self.rate / MEDIAN.denominator
        places = [
            choose(rank_losses(low, high, MEDIAN, int(m)), rate, stream)
            for low, high, m in zip(below, upto, counts, strict=True)
        ]
        medians = in_units(self.domain, self.candidates, UNITS)[places]
        return self._map(np.where(counts == 0, 0, medians).astype(np.float64), counts)

    def ranks(self, x: AnyInts, y_positions: AnyInts) -> tuple[IntArray, IntArray, IntArray]:
        """Count the labels of each cell below each candidate, and up to it, which is not private yet: int64[M, V] each;
        and all of them, int64[M].

        Raises InvalidInput.
        """
        at, labels = self._placed(x, y_positions)
        candidates = self.candidates
        wide = candidates.size + 1
        tables = []
        for side in ("right", "left"):
            first = np.searchsorted(candidates, labels, side=side)
            table = np.bincount(at * wide + first, minlength=self.count * wide).reshape(self.count, wide)
            tables.append(np.cumsum(table[:, :-1], axis=1))
        return tables[0], tables[1], np.bincount(at, minlength=self.count)
