"""One bit on a clipped label."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Self

import numpy as np
import numpy.typing as npt

from label_dp.channels.base import FloatArray, N, WeightedChannel, frozen_floats
from label_dp.channels.reading import Members, decimal, integer
from label_dp.domain import Domain
from label_dp.errors import InvalidMechanism

MAX_DIGITS = 40  # on either side of the point, the limit of the manifest's reader


@dataclass(frozen=True, eq=False, kw_only=True)
class OneBitChannel(WeightedChannel):
    """Channel of two outputs c ± H on the label clipped to [low, high] (Duchi, Jordan & Wainwright 2018, one
    dimension).

    The upper output has integer weight W_y = B + nearest integer of (A − B)(clip(y) − low)/(high − low), A + B = N, 1 ≤
    B < A; H = ((high − low)/2)·(A + B)/(A − B), so that E[z | y] = clip(y, low, high) up to rounding. The ends are
    exact decimals. Output 0 is c − H, output 1 is c + H. Raises InvalidMechanism.
    """

    kind = "one-bit"
    members = ("A", "B", "low", "high")
    low: Decimal
    high: Decimal
    A: int
    B: int

    def __post_init__(self) -> None:
        ends = (self.low, self.high)
        if not (self.low.is_finite() and self.high.is_finite() and self.low < self.high):
            raise InvalidMechanism("The lower end of the clipping must be below its upper end.")
        if any(abs(end.adjusted()) >= MAX_DIGITS or -int(end.as_tuple().exponent) > MAX_DIGITS for end in ends):
            raise InvalidMechanism(f"An end of the clipping has more than {MAX_DIGITS} digits; round it.")
        if not 1 <= self.B < self.A or self.A + self.B != N:
            raise InvalidMechanism("The weights must satisfy 1 ≤ B < A and A + B = 2⁶⁴.")
        centre = (Fraction(self.low) + Fraction(self.high)) / 2
        half = (Fraction(self.high) - Fraction(self.low)) / 2 * Fraction(N, self.A - self.B)
        outputs = frozen_floats([float(centre - half), float(centre + half)], "outputs")
        if not outputs[0] < outputs[1]:
            raise InvalidMechanism("The two outputs must be distinguishable as 64-bit floats; clip less narrowly.")
        object.__setattr__(self, "outputs", outputs)

    @cached_property
    def _scaled(self) -> tuple[int, int, int]:
        """Integers (L, low·L, high·L): a common denominator that makes labels and ends whole numbers."""
        low, high = Fraction(self.low), Fraction(self.high)
        scale = math.lcm(self.domain.lattice[0], low.denominator, high.denominator)
        return scale, int(low * scale), int(high * scale)

    def _weight(self, label: int) -> int:
        """Compute W of a label given as a whole number of 1/L, exact."""
        _, low, high = self._scaled
        inside, width = min(max(label, low), high) - low, high - low
        return self.B + (2 * (self.A - self.B) * inside + width) // (2 * width)

    @cached_property
    def weights(self) -> npt.NDArray[np.uint64]:
        """Weight W_y of the upper output out of 2⁶⁴, uint64[k]; exact for every k."""
        scale, low, high = self._scaled
        unit, ints = self.domain.lattice
        factor = scale // unit
        if isinstance(ints, list):
            return np.array([self._weight(i * factor) for i in ints], dtype=np.uint64)
        first, step = ints[0] * factor, ints[1] * factor
        start = min(max(-(-(low - first) // step), 0), self.k)
        stop = min(max((high - first) // step + 1, start), self.k)
        weights = np.empty(self.k, dtype=np.uint64)
        weights[:start], weights[stop:] = self.B, self.A
        denominator = 2 * (high - low)
        slope, slope_rest = divmod(2 * (self.A - self.B) * step, denominator)
        base, base_rest = divmod(2 * (self.A - self.B) * (first + start * step - low) + high - low, denominator)
        if (stop - start + 1) * denominator < 1 << 63 and slope < N:
            i = np.arange(stop - start, dtype=np.uint64)
            rest = (np.uint64(base_rest) + np.uint64(slope_rest) * i) // np.uint64(denominator)
            # sums are taken modulo 2⁶⁴, and the result is below 2⁶⁴
            weights[start:stop] = np.uint64((self.B + base) % N) + np.uint64(slope) * i + rest
        else:
            inside = (self._weight(first + i * step) for i in range(start, stop))
            weights[start:stop] = np.fromiter(inside, dtype=np.uint64, count=stop - start)
        return weights

    @cached_property
    def _extremes(self) -> tuple[int, int]:
        scale, _, _ = self._scaled
        unit, ints = self.domain.lattice
        factor = scale // unit
        first, last = (ints[0], ints[-1]) if isinstance(ints, list) else (ints[0], ints[0] + ints[1] * (self.k - 1))
        return self._weight(first * factor), self._weight(last * factor)

    @property
    def upper_probability(self) -> FloatArray:
        """Probability of the upper output, float64[k]."""
        return self.weights.astype(np.float64) / float(N)

    def rows(self, start: int, stop: int) -> FloatArray:
        weights = self.weights[start:stop]
        lower = (np.uint64(N - 1) - weights).astype(np.float64) + 1.0
        return np.stack([lower / N, weights.astype(np.float64) / N], axis=1)

    @property
    def worst_case_odds(self) -> Fraction:
        least, most = self._extremes  # W rises with the label
        return max(Fraction(most, least), Fraction(N - least, N - most))

    def debiased_outputs(self) -> FloatArray:
        """Return the outputs themselves: E[z | y] = clip(y, low, high)."""
        return self.outputs

    @property
    def unbiased(self) -> bool:
        ends = (
            (self.domain.listed[0], self.domain.listed[-1])
            if self.domain.listed
            else (self.domain.low, self.domain.high)
        )
        return ends[0] is not None and ends[1] is not None and self.low <= ends[0] and self.high >= ends[1]

    def written(self) -> dict[str, object]:
        return {
            "A": str(self.A),
            "B": str(self.B),
            "low": format(self.low, "f"),
            "high": format(self.high, "f"),
        }

    @classmethod
    def read(cls, members: Members, domain: Domain) -> Self:
        low, high = decimal(members["low"]), decimal(members["high"])
        return cls(domain=domain, low=low, high=high, A=integer(members["A"]), B=integer(members["B"]))
