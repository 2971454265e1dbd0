"""Channels whose outputs form a fine public lattice, and the rounding of labels between its points.

The domain is cut into `cells` equal steps. A label on a lattice point has that point's row; one between two points is
first rounded to either of them at random, keeping its mean, so that its row is a mixture of theirs and no ratio between
rows grows. Nothing here needs labels × outputs cells.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
import numpy.typing as npt

from label_dp.channels.base import FloatArray, IntArray, N, WeightedChannel
from label_dp.channels.noise_weights import MAX_LATTICE_OUTPUTS
from label_dp.errors import InvalidMechanism
from label_dp.losses import LOG_FLOOR, POISSON_FLOOR, Loss, get_loss

MAX_PAIRS = 1 << 26  # labels × outputs that a loss without a closed form is summed over


@dataclass(frozen=True, eq=False, kw_only=True)
class LatticeChannel(WeightedChannel):
    """Channel on a lattice: `cells` ≥ 1 steps span the domain (k ≥ 2); outputs go `_reach` steps beyond its ends.

    Lattice point a = 0 … cells stands for low + a·(high − low)/cells; output j is the point j − reach.
    """

    cells: int

    def __post_init__(self) -> None:
        if self.k < 2:
            raise InvalidMechanism("A lattice needs a domain of at least two values.")
        if self.cells < 1 or self._reach < 0 or self.cells + 2 * self._reach >= MAX_LATTICE_OUTPUTS:
            raise InvalidMechanism(f"A lattice has between 2 and {MAX_LATTICE_OUTPUTS} outputs.")
        object.__setattr__(self, "outputs", self._lattice_values())

    @property
    def _reach(self) -> int:
        return 0

    @abstractmethod
    def _cells(self, positions: IntArray, outputs: IntArray) -> FloatArray:
        """Return P[output | lattice point], element by element (broadcast)."""

    @abstractmethod
    def _means(self, values: FloatArray) -> FloatArray:
        """Return E[values[Z]] at every lattice point, float64[cells + 1]; `values` is float64[m]."""

    @abstractmethod
    def _spread(self, mass: FloatArray) -> FloatArray:
        """Return P[z] if lattice points have `mass` float64[cells + 1], float64[m]."""

    @abstractmethod
    def _distances(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return E|z − point|, P[z > point], P[z ≥ point] per lattice point, float64[cells + 1] each."""

    # --- the lattice -----------------------------------------------------------------------------------------

    @cached_property
    def _ends(self) -> tuple[int, int, int]:
        """Ends (D, first·D, last·D) as whole numbers."""
        scale, ints = self.domain.lattice
        if isinstance(ints, list):
            return scale, ints[0], ints[-1]
        return scale, ints[0], ints[0] + ints[1] * (self.k - 1)

    @property
    def lattice_step(self) -> float:
        """Distance of two outputs, in label units."""
        scale, first, last = self._ends
        return float(Fraction(last - first, scale * self.cells))

    def _lattice_values(self) -> FloatArray:
        scale, first, last = self._ends
        base, width, bottom = first * self.cells, last - first, scale * self.cells
        steps = range(-self._reach, self.cells + self._reach + 1)
        if max(abs(base), abs(last * self.cells)) + width * len(steps) < 1 << 53 and bottom < 1 << 53:
            # both operands are exact doubles, so one division rounds correctly
            values = (base + width * np.arange(steps.start, steps.stop)).astype(np.float64) / float(bottom)
        else:
            values = np.array([(base + width * j) / bottom for j in steps], np.float64)
        if not np.all(np.diff(values) > 0):
            raise InvalidMechanism(
                "Neighbouring outputs of this noise are not distinguishable as 64-bit floats; "
                "subtract a public offset from the labels or take a coarser domain."
            )
        values.setflags(write=False)
        return values

    @cached_property
    def positions(self) -> tuple[IntArray, npt.NDArray[np.uint64]]:
        """Lattice positions (int64[k], uint64[k]): a label becomes the lattice point after its position with that
        weight out of 2⁶⁴, else the point at its position."""
        _, ints = self.domain.lattice
        if isinstance(ints, list):
            width = ints[-1] - ints[0]
            exact = [divmod((i - ints[0]) * self.cells, width) for i in ints]
            base = np.array([whole for whole, _ in exact], np.int64)
            return base, np.array([(rest << 64) // width for _, rest in exact], np.uint64)
        steps = np.uint64(self.k - 1)
        scaled = np.arange(self.k, dtype=np.uint64) * np.uint64(self.cells)  # below 2²⁴ · 2¹⁷
        whole, rest = np.divmod(scaled, steps)
        upper, rest = np.divmod(rest << np.uint64(32), steps)
        lower = (rest << np.uint64(32)) // steps
        return whole.astype(np.int64), (upper << np.uint64(32)) | lower

    @cached_property
    def on_lattice(self) -> bool:
        """Whether every label is a lattice point, so that none is rounded."""
        return not self.positions[1].any()

    @cached_property
    def _mixing(self) -> tuple[IntArray, IntArray, FloatArray]:
        """Lower and upper lattice point of every label, and the share of the upper one."""
        base, weight = self.positions
        return base, np.minimum(base + 1, self.cells), weight.astype(np.float64) / N

    def _mixed(self, at_points: FloatArray) -> FloatArray:
        low, high, share = self._mixing
        return at_points[low] if self.on_lattice else (1.0 - share) * at_points[low] + share * at_points[high]

    # --- shared by every channel ------------------------------------------------------------------------------

    def rows(self, start: int, stop: int) -> FloatArray:
        low, high, share = self._mixing
        low, high, upper = low[start:stop, None], high[start:stop, None], share[start:stop, None]
        columns = np.arange(self.m)[None, :]
        rows = self._cells(low, columns)
        return rows if self.on_lattice else (1.0 - upper) * rows + upper * self._cells(high, columns)

    def output_distribution(self, prior: FloatArray | None) -> FloatArray:
        p = self._prior(prior)
        low, high, share = self._mixing
        mass = np.zeros(self.cells + 1)
        np.add.at(mass, low, p * (1.0 - share))
        np.add.at(mass, high, p * share)
        return self._spread(mass)

    def moments(self, values: FloatArray) -> tuple[FloatArray, FloatArray]:
        centre = float(values[0] + values[-1]) / 2
        x = values - centre
        mean, square = self._mixed(self._means(x)), self._mixed(self._means(x * x))
        return centre + mean, np.maximum(square - mean * mean, 0.0)

    def flip_probability(self, prior: FloatArray | None = None) -> float:
        low, high, share = self._mixing
        likeliest = np.zeros(self.k)
        # the likeliest output of a label is a lattice point next to it or an end
        for column in (low + self._reach, high + self._reach, np.zeros_like(low), np.full_like(low, self.m - 1)):
            mixed = (1.0 - share) * self._cells(low, column) + share * self._cells(high, column)
            likeliest = np.maximum(likeliest, mixed)
        return max(0.0, 1.0 - float(self._prior(prior) @ likeliest))

    def expected_loss(self, prior: FloatArray | None, loss: str | Loss) -> float:
        """Compute as for every channel. Raises InvalidMechanism for a loss matrix over more than 2²⁶ labels ×
        outputs."""
        p, ell = self._prior(prior), get_loss(loss)
        if ell.name == "squared":
            mean, variance = self.moments(self.outputs)
            return float(p @ (variance + (mean - self.labels) ** 2))
        if ell.name == "absolute":
            return float(p @ self._expected_distances()) * self.lattice_step
        if ell.name == "poisson":
            ell.check(self.labels)
            v, y = np.maximum(self.outputs, POISSON_FLOOR), self.labels
            own = np.where(y > 0, y * np.log(np.where(y > 0, y, 1.0)), 0.0) - y
            return float(p @ (self._mixed(self._means(v)) + own - y * self._mixed(self._means(np.log(v)))))
        if ell.name == "log":
            ell.check(self.labels)
            v, y = np.clip(self.outputs, LOG_FLOOR, 1.0 - LOG_FLOOR), self.labels
            both = np.stack([y, 1.0 - y])
            own = (both * np.log(np.where(both > 0, both, 1.0))).sum(axis=0)
            likely, unlikely = (self._mixed(self._means(logs)) for logs in (np.log(v), np.log1p(-v)))
            return float(p @ (own - y * likely - (1.0 - y) * unlikely))
        if self.k * self.m > MAX_PAIRS:
            raise InvalidMechanism(
                "The domain has too many values for this loss on so fine a lattice; use the squared or absolute loss."
            )
        return super().expected_loss(p, ell)

    def _expected_distances(self) -> FloatArray:
        """Compute E|z − y| in lattice steps, float64[k]; a label δ above the point below it is 1 − δ below the next."""
        low, high, share = self._mixing
        distance, above, at_least = self._distances()
        down = distance[low] + share * (1.0 - 2.0 * above[low])
        up = distance[high] + (1.0 - share) * (2.0 * at_least[high] - 1.0)
        return np.asarray((1.0 - share) * down + share * np.where(share > 0, up, 0.0), np.float64)
