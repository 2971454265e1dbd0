"""A channel with its weights written out: a row for every label."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Self

import numpy as np
import numpy.typing as npt

from label_dp.channels.base import FloatArray, N, WeightedChannel, frozen_floats
from label_dp.channels.reading import Members, reals, weight_rows
from label_dp.domain import Domain
from label_dp.errors import InvalidMechanism

CONDITION_LIMIT = 1e8  # a correction that amplifies rounding more than this is refused
MAX_DENSE_CELLS = 1 << 20


@dataclass(frozen=True, eq=False, kw_only=True)
class DenseChannel(WeightedChannel):
    """Channel of any weights: `weights` uint64[k, m], each at least 1, every row summing to N; m ≥ 2 outputs, strictly
    increasing. Raises InvalidMechanism."""

    kind = "dense"
    members = ("outputs", "weights")
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
        """Return the outputs if E[z | y] = y already, else the least-squares solution of M v′ = y.

        Raises InvalidMechanism if M is too ill-conditioned (or has more outputs than labels).
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

    def written(self) -> dict[str, object]:
        return {
            "outputs": [repr(v) for v in self.outputs.tolist()],
            "weights": [[str(w) for w in row] for row in self.weights.tolist()],
        }

    @classmethod
    def read(cls, members: Members, domain: Domain) -> Self:
        outputs = reals(members["outputs"])
        weights = weight_rows(members["weights"], domain.k, outputs.size, MAX_DENSE_CELLS)
        return cls(domain=domain, outputs=outputs, weights=weights)
