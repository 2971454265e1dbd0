"""The exponential mechanism with score −|v − y|: Laplace noise confined to the domain, each row normalised."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Self

import numpy as np

from label_dp.channels.base import FloatArray, IntArray, N
from label_dp.channels.lattice import LatticeChannel
from label_dp.channels.noise_weights import START, UInt64Array, powers
from label_dp.channels.reading import Members, epsilon, integer
from label_dp.domain import Domain
from label_dp.errors import InvalidMechanism
from label_dp.privacy import NANO, Epsilon

MAX_CELLS = 1 << 11  # rows differ, so there are as many weights as pairs of lattice points
MAX_DECAY = Epsilon(24 * NANO)  # beyond it, weights out of 2⁶⁴ are too coarse for the bound
ROWS_AT_ONCE = 1 << 8
NOISIER_THAN_ONE_BIT = 10.0


@dataclass(frozen=True, eq=False, kw_only=True)
class ExponentialChannel(LatticeChannel):
    """Channel P[j | a] ∝ e^(−decay·|j − a|/cells) on lattice points j = 0 … cells (McSherry & Talwar 2007).

    `decay` is the fall over the whole domain: ε/2 for the paper's scale 2Δ/ε, (nearly) ε for Δ/ε. In integers, with x_t
    of `noise_weights.powers` for that decay and m = cells + 1 outputs:

        X_t = min(⌊x_t/2⁸⁰⌋, 2⁶⁴ − 1),  Z_a = Σ_j X_|j − a|,  q_a = ⌊2⁶⁴·(2⁶⁴ − m)/Z_a⌋
        W[a][j] = ⌊X_|j − a|·q_a/2⁶⁴⌋ + 1, and the remainder of 2⁶⁴ on top at j = a

    Its ε is proved from these weights, over all pairs of lattice points. Raises InvalidMechanism.
    """

    kind = "exponential"
    members = ("decay", "cells")
    decay: Epsilon

    def __post_init__(self) -> None:
        if not self.decay or self.decay > MAX_DECAY:
            raise InvalidMechanism(f"The exponential mechanism has a decay above 0 and at most {MAX_DECAY}.")
        if self.cells > MAX_CELLS:
            raise InvalidMechanism(f"The exponential mechanism has at most {MAX_CELLS} lattice steps.")
        super().__post_init__()

    @cached_property
    def weights(self) -> UInt64Array:
        """Weights uint64[m, m], read-only: row a sums to 2⁶⁴."""
        m = self.m
        fall = [min(x >> (START - 64), N - 1) for x in powers(self.decay, self.cells, m)]
        sums = np.cumsum(np.array(fall, dtype=object))
        norms = [int(sums[a] + sums[m - 1 - a] - sums[0]) for a in range(m)]
        quotas = np.array([N * (N - m) // z for z in norms], dtype=np.uint64)
        table, own = np.array(fall, dtype=np.uint64), np.arange(m)
        weights = np.empty((m, m), dtype=np.uint64)
        for start in range(0, m, ROWS_AT_ONCE):
            rows = slice(start, start + ROWS_AT_ONCE)
            distance = np.abs(own[None, :] - own[rows, None])
            weights[rows] = _upper_word(table[distance], quotas[rows, None]) + np.uint64(1)
        weights[own, own] -= weights.sum(axis=1)  # modulo 2⁶⁴: it adds the remainder
        weights.setflags(write=False)
        return weights

    @property
    def worst_case_odds(self) -> Fraction:
        """Exact largest W[a][j]/W[a′][j] over all outputs and lattice points, a bound for every label's row."""
        return self._worst

    @cached_property
    def _worst(self) -> Fraction:
        largest, smallest = self.weights.max(axis=0).tolist(), self.weights.min(axis=0).tolist()
        most, least = 1, 1
        for a, b in zip(largest, smallest, strict=True):
            if a * least > most * b:
                most, least = a, b
        return Fraction(most, least)

    @cached_property
    def _matrix(self) -> FloatArray:
        return np.asarray(self.weights.astype(np.float64) / float(N), np.float64)

    def _cells(self, positions: IntArray, outputs: IntArray) -> FloatArray:
        return np.asarray(self._matrix[positions, outputs], np.float64)

    def _means(self, values: FloatArray) -> FloatArray:
        return np.asarray(self._matrix @ values, np.float64)

    def _spread(self, mass: FloatArray) -> FloatArray:
        return np.asarray(mass @ self._matrix, np.float64)

    def _distances(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        points = np.arange(self.m)
        distance = np.einsum("ij,ij->i", self._matrix, np.abs(points[None, :] - points[:, None]).astype(np.float64))
        above = np.triu(self._matrix, 1).sum(axis=1)
        return distance, above, above + np.diagonal(self._matrix)

    # --- correction ------------------------------------------------------------------------------------------

    def debiased_outputs(self) -> FloatArray:
        """Return the unique solution of E[v | a] = a at every lattice point.

        Raises InvalidMechanism if its noise is ten times that of one bit: the truncation hides nearly all at the ends
        of the domain, and only outputs of their own there undo it.
        """
        if self._debiased is None:
            raise InvalidMechanism(
                "The exponential mechanism shrinks labels towards the middle of the domain, and undoing that exactly "
                "would amplify its noise too much."
            )
        return self._debiased

    @cached_property
    def _debiased(self) -> FloatArray | None:
        first, last = float(self.outputs[0]), float(self.outputs[-1])
        half = (last - first) / 2
        target = self.outputs - (first + half)
        # for falls r^|j − a| before normalising, the inverse has three diagonals (Kac, Murdock & Szegő 1953)
        values = _inverse_fall(target / np.diagonal(self._matrix), float(self.decay) / self.cells)
        values = values * (float(target[-1]) / float(self._matrix[-1] @ values))
        mean, square = self._means(values), self._means(values * values)
        if np.max(np.abs(mean - target)) > 1e-7 * np.max(np.abs(values)):
            return None
        noise = float(np.mean(square - mean * mean))
        one_bit = (half / np.tanh(float(self.epsilon) / 2)) ** 2
        return values + (first + half) if noise <= NOISIER_THAN_ONE_BIT * one_bit else None

    @property
    def unbiased(self) -> bool:
        if self._debiased is None:
            return False
        mean = self._means(self._debiased - self.outputs[0]) + self.outputs[0]
        span = float(self._debiased[-1] - self._debiased[0])
        return bool(np.max(np.abs(mean - self.outputs)) <= 1e-9 * span)

    def written(self) -> dict[str, object]:
        return {"decay": str(self.decay), "cells": str(self.cells)}

    @classmethod
    def read(cls, members: Members, domain: Domain) -> Self:
        return cls(domain=domain, decay=epsilon(members["decay"]), cells=integer(members["cells"]))


def _upper_word(a: UInt64Array, b: UInt64Array) -> UInt64Array:
    """Compute ⌊a·b/2⁶⁴⌋, exact, by halves of 32 bits."""
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    a_high, a_low, b_high, b_low = a >> half, a & low, b >> half, b & low
    middle = a_high * b_low + (a_low * b_low >> half)
    words = a_high * b_high + (middle >> half) + ((middle & low) + a_low * b_high >> half)
    return np.asarray(words, np.uint64)


def _inverse_fall(x: FloatArray, rate: float) -> FloatArray:
    """Compute K⁻¹x for K[a][j] = e^(−rate·|j − a|)."""
    r = np.exp(-rate)
    out = (1.0 + r * r) * x
    out[0], out[-1] = x[0], x[-1]
    out[1:] -= r * x[:-1]
    out[:-1] -= r * x[1:]
    return np.asarray(out / -np.expm1(-2.0 * rate), np.float64)
