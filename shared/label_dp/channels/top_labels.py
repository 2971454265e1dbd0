"""Randomized response on the likeliest labels of a prior; every other label becomes any of them with equal
probability."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Self

import numpy as np

from label_dp.channels.base import FloatArray, IntArray, N, UIntArray, WeightedChannel, smallest_unsigned
from label_dp.channels.reading import Members, integer, positions
from label_dp.domain import Domain
from label_dp.errors import InvalidMechanism

MAX_KEPT = 1 << 15


@dataclass(frozen=True, eq=False, kw_only=True)
class TopLabelsChannel(WeightedChannel):
    """RRWithPrior (Ghazi et al. 2021) with integer weights: `kept` int64[d], rising label positions, are the outputs.

    A kept label has weight A on itself and B on each other output, A + (d − 1)·B = N, 1 ≤ B ≤ A, d ≥ 2. Another label
    has N div d on every output, and one more on each of the first N mod d. Raises InvalidMechanism.
    """

    kind = "rr-with-prior"
    members = ("A", "B", "kept")
    kept: IntArray
    A: int
    B: int

    def __post_init__(self) -> None:
        labels = np.array(self.kept, dtype=np.int64)
        labels.setflags(write=False)
        if labels.ndim != 1 or not 2 <= labels.size <= MAX_KEPT or labels[0] < 0 or labels[-1] >= self.k:
            raise InvalidMechanism(f"Between 2 and {MAX_KEPT} labels of the domain are kept.")
        if np.any(np.diff(labels) < 1):
            raise InvalidMechanism("The kept labels must be listed in rising order, each once.")
        if not 1 <= self.B <= self.A or self.A + (labels.size - 1) * self.B != N:
            raise InvalidMechanism("The weights must satisfy 1 ≤ B ≤ A and A + (d − 1)·B = 2⁶⁴.")
        object.__setattr__(self, "kept", labels)
        object.__setattr__(self, "outputs", self.labels[labels])

    @property
    def d(self) -> int:
        return self.m

    @property
    def uniform_weights(self) -> tuple[int, int]:
        """Weights (U, r): a label outside `kept` has weight U + 1 on outputs 0 … r − 1 and U on the others."""
        return divmod(N, self.d)

    @cached_property
    def own(self) -> UIntArray:
        """Output of a kept label, d for every other label; unsigned[k]."""
        table = np.full(self.k, self.d, dtype=smallest_unsigned(self.d + 1))
        table[self.kept] = np.arange(self.d)
        return table

    @cached_property
    def _uniform(self) -> FloatArray:
        whole, rest = self.uniform_weights
        return np.asarray(np.where(np.arange(self.d) < rest, (whole + 1) / N, whole / N), np.float64)

    def rows(self, start: int, stop: int) -> FloatArray:
        own = self.own[start:stop]
        inside = own < self.d
        rows = np.where(inside[:, None], self.B / N, self._uniform[None, :])
        rows[inside, own[inside]] = self.A / N
        return rows

    @property
    def worst_case_odds(self) -> Fraction:
        """Exact ratio A/B: since A + (d − 1)·B = N with B ≤ A, the weights N div d and one more lie between them."""
        return Fraction(self.A, self.B)

    def moments(self, values: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Compute as for every channel, in O(k): all labels outside `kept` have one row."""
        centre, gap = float(np.mean(values)), (self.A - self.B) / N
        x = values - centre
        total, squares = float(np.sum(x)), float(np.sum(x * x))
        mean = np.append(self.B / N * total + gap * x, float(self._uniform @ x))
        second = np.append(self.B / N * squares + gap * x * x, float(self._uniform @ (x * x)))
        return (centre + mean)[self.own], np.maximum(second - mean * mean, 0.0)[self.own]

    def output_distribution(self, prior: FloatArray | None) -> FloatArray:
        inside = self._prior(prior)[self.kept]
        mass = float(np.sum(inside))
        return self.B / N * mass + (self.A - self.B) / N * inside + (1.0 - mass) * self._uniform

    def flip_probability(self, prior: FloatArray | None = None) -> float:
        mass = float(np.sum(self._prior(prior)[self.kept]))
        return max(0.0, 1.0 - mass * self.A / N - (1.0 - mass) * float(self._uniform.max()))

    def debiased_outputs(self) -> FloatArray:
        """Compute values v of E[v | y] = y for every kept label; any other label has the mean of the kept ones."""
        if self.A == self.B:
            raise InvalidMechanism("At ε = 0 the output says nothing on the label, so there is no correction.")
        centre = float(np.mean(self.outputs))
        t = self.outputs - centre
        return np.asarray(centre + (t - self.B / N * float(np.sum(t))) / ((self.A - self.B) / N), np.float64)

    @property
    def unbiased(self) -> bool:
        return self.d == self.k and self.A > self.B

    def written(self) -> dict[str, object]:
        return {
            "A": str(self.A),
            "B": str(self.B),
            "kept": [str(i) for i in self.kept.tolist()],
        }

    @classmethod
    def read(cls, members: Members, domain: Domain) -> Self:
        labels = positions(members["kept"], 2, MAX_KEPT, domain.k - 1)
        return cls(domain=domain, kept=labels, A=integer(members["A"]), B=integer(members["B"]))
