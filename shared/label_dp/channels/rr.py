"""Randomized response on bins of labels."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Self

import numpy as np

from label_dp.channels.base import FloatArray, IntArray, N, UIntArray, WeightedChannel, frozen_floats, smallest_unsigned
from label_dp.channels.reading import Members, integer, positions, reals
from label_dp.domain import Domain
from label_dp.errors import InvalidEpsilon, InvalidMechanism
from label_dp.privacy import Epsilon


def rr_weights(epsilon: Epsilon, d: int) -> tuple[int, int]:
    """Return (A, B): weight of the own bin and of each other one, A + (d − 1)·B = N and A/B ≤ e^ε exactly.

    B = ⌈N/(lower(e^ε) + d − 1)⌉ with a rational lower bound of e^ε; B is at least 1, which caps a huge ε. Raises
    InvalidEpsilon if ε is too small for d bins at 64 bits (A would fall below B).
    """
    if d < 1:
        raise InvalidMechanism("Randomized response needs at least one bin.")
    share = epsilon.exp_lower() + d - 1
    B = -(-N * share.denominator // share.numerator)
    A = N - (d - 1) * B
    if A < B:
        raise InvalidEpsilon("This ε is too small for so many bins: the own bin would be less likely than another.")
    return A, B


@dataclass(frozen=True, eq=False, kw_only=True)
class RRChannel(WeightedChannel):
    """Randomized response on bins (Ghazi et al. 2022, Algorithm 1): weight A on the label's own bin, B on each other.

    `boundaries` int64[d + 1] rises from 0 to k: bin j holds the labels at positions boundaries[j] … boundaries[j+1]−1.
    `outputs` float64[d] strictly increasing, `bin_means` float64[d] = E[y | bin] under the private prior,
    A + (d−1)B = N and 1 ≤ B ≤ A. d = 1 is a constant channel. Raises InvalidMechanism.
    """

    kind = "rr"
    members = ("A", "B", "boundaries", "outputs", "bin_means")
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
        """Bin of each label, unsigned[k] of the smallest type."""
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
        """Compute v′_j = (t_j − qΣt)/(1 − dq), q = B/N, t the bin means: E[v′ | y] = t of y's bin."""
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
        """Compute as for every channel; all labels of a bin have the same row."""
        centre, gap = float(np.mean(values)), (self.A - self.B) / N
        x = values - centre
        mean = self.B / N * float(np.sum(x)) + gap * x if self.d > 1 else x
        # Σ_j P_j (x_j − mean)², with the bin's own term separate
        others = float(np.sum(x * x)) - 2.0 * mean * float(np.sum(x)) + self.d * mean * mean
        variance = self.B / N * others + gap * (x - mean) ** 2 if self.d > 1 else np.zeros(1)
        return (centre + mean)[self.bins], np.maximum(variance, 0.0)[self.bins]

    def written(self) -> dict[str, object]:
        return {
            "A": str(self.A),
            "B": str(self.B),
            "boundaries": [str(b) for b in self.boundaries.tolist()],
            "outputs": [repr(v) for v in self.outputs.tolist()],
            "bin_means": [repr(v) for v in self.bin_means.tolist()],
        }

    @classmethod
    def read(cls, members: Members, domain: Domain) -> Self:
        outputs = reals(members["outputs"])
        d = outputs.size
        return cls(
            domain=domain,
            boundaries=positions(members["boundaries"], d + 1, d + 1, domain.k),
            outputs=outputs,
            A=integer(members["A"]),
            B=integer(members["B"]),
            bin_means=reals(members["bin_means"], d),
        )
