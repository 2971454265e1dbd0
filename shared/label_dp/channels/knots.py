"""A randomizer given by the rows of a few labels, its knots: every other label is first rounded to an adjacent knot.

A label between two knots goes to the upper one with the probability that keeps its mean (a whole number out of 2⁶⁴), to
the lower one otherwise, and then has that knot's row of integer weights. Its own row is therefore a mixture of two
rows, so no ratio between rows grows by it: ε is that of the knots, exactly, and E[z | y] is linear between knots.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Self

import numpy as np
import numpy.typing as npt

from label_dp.channels.base import FloatArray, IntArray, N, WeightedChannel, frozen_floats
from label_dp.channels.reading import Members, malformed, positions, real, reals, weight_rows
from label_dp.domain import Domain
from label_dp.errors import InvalidMechanism

EXACT = Fraction(1, 10**9)  # of the domain's range: a bias below it counts as none
MAX_KNOT_CELLS = 1 << 15  # knots × outputs: their weights fill two thirds of a manifest

UInt64Array = npt.NDArray[np.uint64]


@dataclass(frozen=True, eq=False, kw_only=True)
class KnotsChannel(WeightedChannel):
    """Rows of integer weights at knots.

    `knots` int64[g] are label positions rising from 0 to k − 1 (g ≥ 2), `weights` uint64[g, m] at least 1, every row
    summing to N, `outputs` float64[m] strictly increasing, m ≥ 2; g·m ≤ 2¹⁵. Outputs are corrected values already.
    Raises InvalidMechanism.
    """

    kind = "knots"
    members = ("knots", "outputs", "weights", "residual_bias")
    knots: IntArray
    outputs: FloatArray
    weights: UInt64Array

    def __post_init__(self) -> None:
        knots = np.array(self.knots, dtype=np.int64)
        knots.setflags(write=False)
        object.__setattr__(self, "knots", knots)
        if knots.ndim != 1 or knots.size < 2 or knots[0] != 0 or knots[-1] != self.k - 1 or np.any(np.diff(knots) < 1):
            raise InvalidMechanism("The knots must rise strictly from the first to the last label, two at least.")
        object.__setattr__(self, "outputs", frozen_floats(self.outputs, "outputs"))
        if self.m < 2 or np.any(np.diff(self.outputs) <= 0):
            raise InvalidMechanism("The outputs of a channel must be strictly increasing, two at least.")
        if knots.size * self.m > MAX_KNOT_CELLS:
            raise InvalidMechanism("The channel has too many weights; take fewer knots or outputs.")
        weights = np.array(self.weights)
        if weights.dtype != np.uint64 or weights.shape != (knots.size, self.m):
            raise InvalidMechanism("A channel of knots needs 64-bit weights, one row per knot, one column per output.")
        if np.any(weights == 0):
            raise InvalidMechanism("Every output must be possible under every label: weights are at least 1.")
        if any(sum(row) != N for row in weights.tolist()):
            raise InvalidMechanism("Every row of weights must sum to 2⁶⁴.")
        weights.setflags(write=False)
        object.__setattr__(self, "weights", weights)

    # --- rounding of labels to knots --------------------------------------------------------------------------

    @cached_property
    def lower(self) -> npt.NDArray[np.int32]:
        """Last knot that is not above the label, int32[k]."""
        return np.repeat(np.arange(self.knots.size, dtype=np.int32), np.diff(self.knots, append=self.k))

    @cached_property
    def upper(self) -> npt.NDArray[np.int32]:
        """Next knot, to which a label between two knots may be rounded, int32[k]."""
        return np.asarray(np.minimum(self.lower + 1, self.knots.size - 1), np.int32)

    @cached_property
    def upper_chance(self) -> UInt64Array:
        """Weight out of 2⁶⁴, rounded down, of rounding up to the next knot, uint64[k]; 0 for knots."""
        _, ints = self.domain.lattice
        chance = np.zeros(self.k, dtype=np.uint64)
        for start, stop in zip(self.knots[:-1].tolist(), self.knots[1:].tolist(), strict=True):
            if isinstance(ints, list):
                width = ints[stop] - ints[start]
                chance[start:stop] = [N * (i - ints[start]) // width for i in ints[start:stop]]
            else:
                whole, rest = divmod(N, stop - start)
                i = np.arange(stop - start, dtype=np.uint64)  # below 2²⁴, so that no product passes 2⁶⁴
                chance[start:stop] = i * np.uint64(whole % N) + i * np.uint64(rest) // np.uint64(stop - start)
        return chance

    @cached_property
    def _knot_rows(self) -> FloatArray:
        return np.asarray(self.weights.astype(np.float64) / float(N), np.float64)

    def _mixed(self, start: int, stop: int, per_knot: FloatArray) -> FloatArray:
        """Interpolate a quantity linear in a label's row from its values at the knots (float64[g] or [g, …])."""
        lower, upper = self.lower[start:stop], self.upper[start:stop]
        share = self.upper_chance[start:stop].astype(np.float64) / float(N)
        share = share.reshape(-1, *[1] * (per_knot.ndim - 1))
        return np.asarray((1.0 - share) * per_knot[lower] + share * per_knot[upper], np.float64)

    def rows(self, start: int, stop: int) -> FloatArray:
        return self._mixed(start, stop, self._knot_rows)

    # --- privacy ---------------------------------------------------------------------------------------------

    @cached_property
    def _worst(self) -> Fraction:
        largest, smallest = self.weights.max(axis=0).tolist(), self.weights.min(axis=0).tolist()
        return max(Fraction(int(a), int(b)) for a, b in zip(largest, smallest, strict=True))

    @property
    def worst_case_odds(self) -> Fraction:
        """Largest ratio within a column of the knots' weights: mixtures of rows do not exceed it."""
        return self._worst

    # --- expected figures ------------------------------------------------------------------------------------

    def moments(self, values: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Compute as for every channel, in O(k + g·m): both moments are linear between knots."""
        centre = float(np.mean(values))
        first = self._knot_rows @ (values - centre)
        inner = np.einsum("ij,ij->i", self._knot_rows, (values[None, :] - centre - first[:, None]) ** 2)
        mean = self._mixed(0, self.k, first)
        share = self.upper_chance.astype(np.float64) / float(N)
        between = share * (1.0 - share) * (first[self.upper] - first[self.lower]) ** 2
        return centre + mean, self._mixed(0, self.k, inner) + between

    def output_distribution(self, prior: FloatArray | None) -> FloatArray:
        p, share = self._prior(prior), self.upper_chance.astype(np.float64) / float(N)
        mass = np.bincount(self.lower, p * (1.0 - share), self.knots.size)
        mass += np.bincount(self.upper, p * share, self.knots.size)
        return np.asarray(mass @ self._knot_rows, np.float64)

    # --- bias ------------------------------------------------------------------------------------------------

    @cached_property
    def _exact_bias(self) -> Fraction:
        """Bound |E[z | y] − y| over all labels, nearly tight.

        It is largest at a knot, except for 2⁻⁶⁴ of the span of the outputs, since the chance of rounding up is rounded
        down.
        """
        denominator, ints = self.domain.lattice
        values = [Fraction(v) for v in self.outputs.tolist()]
        scale = math.lcm(*(v.denominator for v in values))
        whole = [int(v * scale) for v in values]
        worst = Fraction(0)
        for position, row in zip(self.knots.tolist(), self.weights.tolist(), strict=True):
            label = ints[position] if isinstance(ints, list) else ints[0] + ints[1] * position
            mean = Fraction(sum(w * v for w, v in zip(row, whole, strict=True)), N * scale)
            worst = max(worst, abs(mean - Fraction(label, denominator)))
        return worst + (values[-1] - values[0]) / N

    @property
    def residual_bias(self) -> float:
        """Upper bound, in label units, of |E[z | y] − y| over all labels."""
        return math.nextafter(float(self._exact_bias), math.inf)

    @cached_property
    def _unbiased(self) -> bool:
        denominator, ints = self.domain.lattice
        width = ints[-1] - ints[0] if isinstance(ints, list) else ints[1] * (self.k - 1)
        return self._exact_bias <= EXACT * Fraction(width, denominator)

    @property
    def unbiased(self) -> bool:
        return self._unbiased

    def debiased_outputs(self) -> FloatArray:
        """Return the outputs themselves: unbiased, or with the bias that the design accepted for less noise."""
        return self.outputs

    def written(self) -> dict[str, object]:
        return {
            "knots": [str(i) for i in self.knots.tolist()],
            "outputs": [repr(v) for v in self.outputs.tolist()],
            "weights": [[str(w) for w in row] for row in self.weights.tolist()],
            "residual_bias": repr(self.residual_bias),
        }

    @classmethod
    def read(cls, members: Members, domain: Domain) -> Self:
        knots, outputs = positions(members["knots"], 2, MAX_KNOT_CELLS, domain.k - 1), reals(members["outputs"])
        weights = weight_rows(members["weights"], knots.size, outputs.size, MAX_KNOT_CELLS)
        channel = cls(domain=domain, knots=knots, outputs=outputs, weights=weights)
        if real(members["residual_bias"]) != channel.residual_bias:
            raise malformed("its residual bias is not that of its weights")
        return channel
