"""Noise on a fine public lattice, added to the label and clipped to a public reach.

The continuous mechanisms, drawn without floats: the lattice is too fine to matter, and the weights of its points are
whole numbers out of 2⁶⁴ (`noise_weights`). With as many cells as the domain has steps they are the discrete mechanisms.
Reach 0 clips to the domain; a wide reach is the mechanism without clipping, its last outputs taking tails of less than
10⁻¹⁰. Clipping is post-processing, so ε is the same.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Self

import numpy as np

from label_dp.channels.base import FloatArray, IntArray, N
from label_dp.channels.lattice import LatticeChannel
from label_dp.channels.noise_weights import (
    MAX_NOISE_EPSILON,
    UInt64Array,
    as_table,
    half_table,
)
from label_dp.channels.reading import Members, epsilon, integer
from label_dp.domain import Domain
from label_dp.errors import InvalidMechanism
from label_dp.privacy import Epsilon

EXACT = 1e-9  # of the outputs' span: a bias below it counts as none


@dataclass(frozen=True, eq=False, kw_only=True)
class NoiseChannel(LatticeChannel):
    """Symmetric noise of at most `noise_epsilon` over the domain, in `cells` steps, outputs up to `reach` steps beyond
    the domain's ends; `peak` (even) is the weight of zero noise. Raises InvalidMechanism."""

    members: ClassVar[tuple[str, ...]] = ("epsilon", "cells", "reach", "peak")
    noise_epsilon: Epsilon
    reach: int
    peak: int

    def __post_init__(self) -> None:
        if not self.noise_epsilon or self.noise_epsilon > MAX_NOISE_EPSILON:
            raise InvalidMechanism(f"Noise on a lattice has an ε above 0 and at most {MAX_NOISE_EPSILON}.")
        if not 2 <= self.peak < N or self.peak % 2:
            raise InvalidMechanism("The largest weight of the noise must be even and below 2⁶⁴.")
        super().__post_init__()
        if np.any(self.weights[:-2] < self.weights[1:-1]):
            raise InvalidMechanism("The weights of the noise must not rise with its distance from zero.")

    @property
    def _reach(self) -> int:
        return self.reach

    @abstractmethod
    def _period(self) -> list[int]:
        """Compute the weights of the first `cells` distances."""

    @cached_property
    def weights(self) -> UInt64Array:
        """Weight of noise −t and of noise t, in lattice steps, uint64[L + 1]; the last is the whole tail."""
        return as_table(*half_table(self.noise_epsilon, self._period(), self.reach))

    @cached_property
    def tails(self) -> UInt64Array:
        """Weight of noise at least t, t = 0 … L, uint64[L + 1]."""
        return np.cumsum(self.weights[::-1])[::-1].copy()

    # --- privacy ---------------------------------------------------------------------------------------------

    @property
    def worst_case_odds(self) -> Fraction:
        """Exact largest P[z | a] / P[z | a′] over all outputs and all lattice points, a bound for every label's row.

        Weights fall with distance, so within a window of lattice points the nearest has the largest, the farthest the
        smallest. Outputs t + cells and beyond the domain compare w[t] with w[t + cells]; those inside it compare at
        most w[0] with w[cells]; the ends compare sums of tails.
        """
        return self._worst

    @cached_property
    def _worst(self) -> Fraction:
        w, cells, reach = self.weights.tolist(), self.cells, self.reach
        pairs = list(zip(w[:reach], w[cells : cells + reach], strict=True))
        pairs += [(w[0], w[cells - 1])] if reach == 0 else []
        pairs.append((int(self.tails[reach]), int(self.tails[reach + cells])))
        most, least = 1, 1
        for a, b in pairs:
            if a * least > most * b:
                most, least = a, b
        return Fraction(most, least)

    # --- rows ------------------------------------------------------------------------------------------------

    @cached_property
    def _shares(self) -> tuple[FloatArray, FloatArray]:
        """P[noise = t] and P[noise ≥ t], float64[L + 1] each."""
        shares = (np.asarray(w.astype(np.float64) / float(N), np.float64) for w in (self.weights, self.tails))
        w, tails = shares
        return w, tails

    def _cells(self, positions: IntArray, outputs: IntArray) -> FloatArray:
        w, tails = self._shares
        distance = np.abs(outputs - self.reach - positions)
        end = (outputs == 0) | (outputs == self.m - 1)
        return np.asarray(np.where(end, tails[distance], w[distance]), np.float64)

    @cached_property
    def _kernel(self) -> FloatArray:
        """P[noise = −(L − 1) … L − 1], float64[2L − 1]."""
        w = self._shares[0][:-1]
        return np.concatenate([w[:0:-1], w])

    @cached_property
    def _to_ends(self) -> tuple[FloatArray, FloatArray]:
        """P[lowest output] and P[highest output] at every lattice point, float64[cells + 1] each."""
        tails = self._shares[1][self.reach :]
        return tails, tails[::-1]

    def _convolved(self, x: FloatArray, first: int, count: int) -> FloatArray:
        size = quick_length(x.size + self._kernel.size - 1)
        whole = np.fft.irfft(np.fft.rfft(x, size) * np.fft.rfft(self._kernel, size), size)
        return np.asarray(whole[first : first + count], np.float64)

    def _means(self, values: FloatArray) -> FloatArray:
        lowest, highest = self._to_ends
        ends = np.asarray(lowest * values[0] + highest * values[-1], np.float64)
        return (
            ends
            if self.m == 2
            else ends + self._convolved(values[1:-1], self.cells + 2 * self.reach - 2, self.cells + 1)
        )

    def _spread(self, mass: FloatArray) -> FloatArray:
        lowest, highest = self._to_ends
        out = np.empty(self.m)
        out[0], out[-1] = mass @ lowest, mass @ highest
        if self.m > 2:
            # the transform leaves errors of either sign next to 0; no output is less likely than the least weight
            inner = self._convolved(mass, self.cells, self.m - 2)
            out[1:-1] = np.maximum(inner, float(self.weights[-2]) / N * float(mass.sum()))
        return out

    @cached_property
    def _drift(self) -> FloatArray:
        """E[z] − point in lattice steps, float64[cells + 1], by sums of tails, so without cancellation."""
        sums = np.concatenate([[0.0], np.cumsum(self._shares[1][1:])])[self.reach :]
        return np.asarray(sums[::-1] - sums, np.float64)

    def _distances(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        tails = self._shares[1]
        sums = np.concatenate([[0.0], np.cumsum(tails[1:])])[self.reach :]
        above, at_least = np.full(self.cells + 1, tails[1]), np.full(self.cells + 1, tails[0])
        if self.reach == 0:
            above[-1], at_least[0] = 0.0, 1.0
        return sums[::-1] + sums, above, at_least

    # --- correction ------------------------------------------------------------------------------------------

    @abstractmethod
    def _outward(self) -> float:
        """Return the distance in lattice steps by which the correction moves the two end outputs outwards."""

    def debiased_outputs(self) -> FloatArray:
        """Return the outputs, with the two ends moved to the mean of the values clipped to them."""
        return self._corrected[0]

    @property
    def residual_bias(self) -> float:
        """Largest |E[corrected | y] − y| on the domain, in label units."""
        return self._corrected[1]

    @cached_property
    def _corrected(self) -> tuple[FloatArray, float]:
        outward = self._outward()
        values = self.outputs.copy()
        values[0] -= outward * self.lattice_step
        values[-1] += outward * self.lattice_step
        values.setflags(write=False)
        lowest, highest = self._to_ends
        bias = self._drift + outward * (highest - lowest)
        return values, float(np.max(np.abs(bias))) * self.lattice_step

    @property
    def unbiased(self) -> bool:
        values, bias = self._corrected
        return bias <= EXACT * float(values[-1] - values[0])

    def written(self) -> dict[str, object]:
        return {
            "epsilon": str(self.noise_epsilon),
            "cells": str(self.cells),
            "reach": str(self.reach),
            "peak": str(self.peak),
        }

    @classmethod
    def read(cls, members: Members, domain: Domain) -> Self:
        sizes = {name: integer(members[name]) for name in cls.members if name != "epsilon"}
        return cls(domain=domain, noise_epsilon=epsilon(members["epsilon"]), **sizes)


def quick_length(least: int) -> int:
    """Return the smallest number from `least` on without a prime factor above 5: a transform of that length is
    quick."""
    best, five = 1 << (least - 1).bit_length(), 1
    while five < best:
        odd = five
        while odd < best:
            best = min(best, odd << (-(-least // odd) - 1).bit_length())
            odd *= 3
        five *= 5
    return best
