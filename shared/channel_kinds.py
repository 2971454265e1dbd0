"""Randomizers of integer weights: randomized response on bins, one bit, dense."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property

import numpy as np
import numpy.typing as npt

from shared.channel_base import (
    FloatArray,
    IntArray,
    N,
    UIntArray,
    WeightedChannel,
    frozen_floats,
    smallest_unsigned,
)
from shared.errors import InvalidMechanism

MAX_DIGITS = 40  # on either side of the point, as the manifest's reader allows
CONDITION_LIMIT = 1e8  # a correction that amplifies rounding more than this is refused


@dataclass(frozen=True, eq=False, kw_only=True)
class RRChannel(WeightedChannel):
    """Randomized response on bins (Ghazi et al. 2022, Algorithm 1): weight A on the label's own bin, B on each other.

    `boundaries` int64[d + 1] rises from 0 to k: bin j holds the labels at positions boundaries[j] … boundaries[j+1]−1.
    `outputs` float64[d] strictly increasing, `bin_means` float64[d] = E[y | bin] under the private prior,
    A + (d−1)B = N and 1 ≤ B ≤ A. d = 1 is a constant channel. Raises InvalidMechanism.
    """

    kind = "rr"
    boundaries: IntArray
    outputs: FloatArray
    A: int
    B: int
    bin_means: FloatArray

    def __post_init__(self) -> None:
        boundaries = np.array(self.boundaries, dtype=np.int64)
        boundaries.setflags(write=False)
        object.__setattr__(self, "boundaries", boundaries)
        object.__setattr__(self, "outputs", frozen_floats(self.outputs, "outputs"))
        object.__setattr__(self, "bin_means", frozen_floats(self.bin_means, "bin means"))
        d = self.m
        if (
            boundaries.shape != (d + 1,)
            or boundaries[0] != 0
            or boundaries[-1] != self.k
            or np.any(np.diff(boundaries) < 1)
        ):
            raise InvalidMechanism(
                "The bin boundaries must rise strictly from 0 to the number of labels, one bin per output."
            )
        if np.any(np.diff(self.outputs) <= 0):
            raise InvalidMechanism("The outputs of the bins must be strictly increasing.")
        first, last = self.labels[boundaries[:-1]], self.labels[boundaries[1:] - 1]
        if self.bin_means.shape != (d,) or np.any(self.bin_means < first) or np.any(self.bin_means > last):
            raise InvalidMechanism("Every bin mean must lie between the first and the last label of its bin.")
        if not 1 <= self.B <= self.A or self.A + (d - 1) * self.B != N:
            raise InvalidMechanism("The weights must satisfy 1 ≤ B ≤ A and A + (d − 1)·B = 2⁶⁴.")

    @property
    def d(self) -> int:
        return self.m

    @cached_property
    def bins(self) -> UIntArray:
        """unsigned[k], the smallest type: the bin of each label."""
        return np.repeat(np.arange(self.d, dtype=smallest_unsigned(self.d)), np.diff(self.boundaries))

    def rows(self, start: int, stop: int) -> FloatArray:
        rows = np.full((stop - start, self.d), self.B / N if self.d > 1 else 1.0)
        rows[np.arange(stop - start), self.bins[start:stop]] = self.A / N
        return rows

    @property
    def worst_case_odds(self) -> Fraction:
        return Fraction(self.A, self.B) if self.d > 1 else Fraction(1)

    def flip_probability(self, prior: FloatArray | None = None) -> float:
        return (N - self.A) / N

    def output_distribution(self, prior: FloatArray | None) -> FloatArray:
        inside = np.add.reduceat(self._prior(prior), self.boundaries[:-1])
        return ((N - self.A) / N / max(self.d - 1, 1)) * (1.0 - inside) + (self.A / N) * inside

    def debiased_outputs(self) -> FloatArray:
        """v′_j = (t_j − qΣt)/(1 − dq), q = B/N, t the bin means: E[v′ | y] = t of y's bin."""
        if self.d == 1:
            return self.bin_means
        if self.A == self.B:
            raise InvalidMechanism("At ε = 0 the output says nothing on the label, so there is no correction.")
        centre = float(np.mean(self.bin_means))
        t, gap = self.bin_means - centre, (self.A - self.B) / N
        return centre + (t - self.B / N * float(np.sum(t))) / gap

    @property
    def unbiased(self) -> bool:
        return (self.d == self.k and self.A > self.B) or self.k == 1

    def moments(self, values: FloatArray) -> tuple[FloatArray, FloatArray]:
        """As for every channel; all labels of a bin have the same row."""
        centre, gap = float(np.mean(values)), (self.A - self.B) / N
        x = values - centre
        mean = self.B / N * float(np.sum(x)) + gap * x if self.d > 1 else x
        # Σ_j P_j (x_j − mean)², with the bin's own term apart
        others = float(np.sum(x * x)) - 2.0 * mean * float(np.sum(x)) + self.d * mean * mean
        variance = self.B / N * others + gap * (x - mean) ** 2 if self.d > 1 else np.zeros(1)
        return (centre + mean)[self.bins], np.maximum(variance, 0.0)[self.bins]

    def as_json(self) -> dict[str, object]:
        return {
            "kind": self.kind,
            "N": str(N),
            "A": str(self.A),
            "B": str(self.B),
            "boundaries": [str(b) for b in self.boundaries.tolist()],
            "outputs": [repr(v) for v in self.outputs.tolist()],
            "bin_means": [repr(v) for v in self.bin_means.tolist()],
        }


@dataclass(frozen=True, eq=False, kw_only=True)
class OneBitChannel(WeightedChannel):
    """Two outputs c ± H on the label clipped to [low, high] (Duchi, Jordan & Wainwright 2018, one dimension).

    The upper output has integer weight W_y = B + nearest integer of (A − B)(clip(y) − low)/(high − low), A + B = N,
    1 ≤ B < A; H = ((high − low)/2)·(A + B)/(A − B), so that E[z | y] = clip(y, low, high) up to rounding. The ends
    are exact decimals. Output 0 is c − H, output 1 is c + H. Raises InvalidMechanism.
    """

    kind = "one-bit"
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
        """(L, low·L, high·L): a common denominator that makes labels and ends whole numbers."""
        low, high = Fraction(self.low), Fraction(self.high)
        scale = math.lcm(self.domain.lattice[0], low.denominator, high.denominator)
        return scale, int(low * scale), int(high * scale)

    def _weight(self, label: int) -> int:
        """W of a label given as a whole number of 1/L, exact."""
        _, low, high = self._scaled
        inside, width = min(max(label, low), high) - low, high - low
        return self.B + (2 * (self.A - self.B) * inside + width) // (2 * width)

    @cached_property
    def weights(self) -> npt.NDArray[np.uint64]:
        """uint64[k]: W_y, the weight of the upper output out of 2⁶⁴; exact for every k."""
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
        """float64[k]: probability of the upper output."""
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
        """The outputs themselves: E[z | y] = clip(y, low, high)."""
        return self.outputs

    @property
    def unbiased(self) -> bool:
        ends = (
            (self.domain.listed[0], self.domain.listed[-1])
            if self.domain.listed
            else (self.domain.low, self.domain.high)
        )
        return ends[0] is not None and ends[1] is not None and self.low <= ends[0] and self.high >= ends[1]

    def as_json(self) -> dict[str, object]:
        return {
            "kind": self.kind,
            "N": str(N),
            "A": str(self.A),
            "B": str(self.B),
            "low": format(self.low, "f"),
            "high": format(self.high, "f"),
        }


@dataclass(frozen=True, eq=False, kw_only=True)
class DenseChannel(WeightedChannel):
    """Any channel: `weights` uint64[k, m], every weight at least 1, every row summing to N; m ≥ 2 outputs, strictly
    increasing. Raises InvalidMechanism."""

    kind = "dense"
    outputs: FloatArray
    weights: npt.NDArray[np.uint64]

    def __post_init__(self) -> None:
        object.__setattr__(self, "outputs", frozen_floats(self.outputs, "outputs"))
        if np.any(np.diff(self.outputs) <= 0):
            raise InvalidMechanism("The outputs of a channel must be strictly increasing.")
        weights = np.array(self.weights)
        if weights.dtype != np.uint64 or weights.shape != (self.k, self.m) or self.m < 2:
            raise InvalidMechanism(
                "A dense channel needs 64-bit weights, one row per label, one column per output, two or more."
            )
        if np.any(weights == 0):
            raise InvalidMechanism("Every output must be possible under every label: weights are at least 1.")
        upper, lower = weights >> np.uint64(32), weights & np.uint64(0xFFFFFFFF)
        sums = zip(upper.sum(axis=1).tolist(), lower.sum(axis=1).tolist(), strict=True)
        if any((int(u) << 32) + int(w) != N for u, w in sums):
            raise InvalidMechanism("Every row of weights must sum to 2⁶⁴.")
        weights.setflags(write=False)
        object.__setattr__(self, "weights", weights)

    def rows(self, start: int, stop: int) -> FloatArray:
        return np.asarray(self.weights[start:stop].astype(np.float64) / float(N), np.float64)

    @cached_property
    def _worst(self) -> Fraction:
        largest, smallest = self.weights.max(axis=0).tolist(), self.weights.min(axis=0).tolist()
        return max(Fraction(int(a), int(b)) for a, b in zip(largest, smallest, strict=True))

    @property
    def worst_case_odds(self) -> Fraction:
        return self._worst

    @cached_property
    def _bias(self) -> float:
        residual = self.rows(0, self.k) @ (self.outputs - self.labels[0]) - (self.labels - self.labels[0])
        return float(np.max(np.abs(residual)))

    @cached_property
    def _span(self) -> float:
        return float(max(self.outputs[-1], self.labels[-1]) - min(self.outputs[0], self.labels[0]))

    def debiased_outputs(self) -> FloatArray:
        """The outputs where E[z | y] = y already, else the least-squares solution of M v′ = y.

        Raises InvalidMechanism where M is too ill-conditioned (or has more outputs than labels).
        """
        return self._debiased

    @cached_property
    def _debiased(self) -> FloatArray:
        if self._bias <= 1e-9 * self._span:
            return self.outputs
        centre = float(self.labels[self.k // 2])
        values, _, rank, singular = np.linalg.lstsq(
            self.rows(0, self.k), self.labels - centre, rcond=1 / CONDITION_LIMIT
        )
        if rank < self.m or singular[0] > CONDITION_LIMIT * singular[-1]:
            raise InvalidMechanism(
                "This channel is too ill-conditioned to be corrected; train on its outputs as they are."
            )
        return frozen_floats(values + centre, "corrected outputs")

    @property
    def unbiased(self) -> bool:
        try:
            values = self.debiased_outputs()
        except InvalidMechanism:
            return False
        residual = self.rows(0, self.k) @ (values - self.labels[0]) - (self.labels - self.labels[0])
        return bool(np.max(np.abs(residual)) <= 1e-9 * max(self._span, float(values.max() - values.min())))

    def as_json(self) -> dict[str, object]:
        return {
            "kind": self.kind,
            "N": str(N),
            "outputs": [repr(v) for v in self.outputs.tolist()],
            "weights": [[str(w) for w in row] for row in self.weights.tolist()],
        }
