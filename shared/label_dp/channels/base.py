"""A randomizer as data: the outputs of each label, with exact integer weights out of N = 2⁶⁴.

Both parties build the same objects: the labels party to draw from, the features party from a signed manifest, to prove
ε for itself (`satisfies`), to correct for the noise (`debiased_outputs`) and to quantify it. Every figure here comes
from the channel and a prior, never from a realised draw (invariant public-domain).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from label_dp.domain import Domain
from label_dp.errors import InvalidMechanism
from label_dp.losses import Loss, class_log_loss, get_loss
from label_dp.privacy import Epsilon, log_upper

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
UIntArray = npt.NDArray[np.unsignedinteger[npt.NBitBase]]

N = 1 << 64
MAX_MATRIX_CELLS = 1 << 27
CHUNK_CELLS = 1 << 20


def smallest_unsigned(count: int) -> np.dtype[np.unsignedinteger[npt.NBitBase]]:
    """Return the smallest unsigned integer type that holds 0 … count − 1."""
    return np.dtype(np.min_scalar_type(max(count - 1, 0)))


def frozen_floats(values: npt.ArrayLike, what: str) -> FloatArray:
    """Copy a finite, non-empty vector to read-only float64. Raises InvalidMechanism."""
    array = np.array(values, dtype=np.float64)
    if array.ndim != 1 or array.size == 0 or not np.all(np.isfinite(array)):
        raise InvalidMechanism(f"The {what} of a channel must be a list of finite numbers.")
    array.setflags(write=False)
    return array


@dataclass(frozen=True, eq=False, kw_only=True)
class Channel(ABC):
    """Channel from the k labels of `domain` to m outputs. `outputs` is float64[m]; labels are addressed by their
    position 0 … k − 1."""

    kind: ClassVar[str] = ""
    members: ClassVar[tuple[str, ...]] = ()  # of the manifest form, besides `kind` and `N`
    domain: Domain
    outputs: FloatArray = field(init=False, repr=False)

    @property
    def k(self) -> int:
        return self.domain.k

    @property
    def m(self) -> int:
        return int(self.outputs.size)

    @property
    def labels(self) -> FloatArray:
        """Values of the domain, float64[k]."""
        return self.domain.values

    @abstractmethod
    def rows(self, start: int, stop: int) -> FloatArray:
        """Return output probabilities of the labels at positions start … stop − 1, float64[stop − start, m]."""

    def matrix(self) -> FloatArray:
        """Return float64[k, m], whose rows sum to 1 up to rounding. Raises InvalidMechanism above 2²⁷ cells."""
        if self.k * self.m > MAX_MATRIX_CELLS:
            raise InvalidMechanism("This channel is too large to be written out as a matrix.")
        return self.rows(0, self.k)

    # --- privacy: exact --------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def epsilon(self) -> Epsilon:
        """Exact upper bound, in whole nano-ε, of ln(P[z | y] / P[z | y′]) over all z, y, y′."""

    @abstractmethod
    def satisfies(self, epsilon: Epsilon) -> bool:
        """Prove P[z | y] ≤ e^ε·P[z | y′] for all z, y, y′ in integers, with a lower bound of e^ε; False if the proof
        fails."""

    # --- expected figures ------------------------------------------------------------------------------------

    def _chunks(self) -> list[tuple[int, int]]:
        step = max(1, CHUNK_CELLS // self.m)
        return [(start, min(start + step, self.k)) for start in range(0, self.k, step)]

    def _prior(self, prior: FloatArray | None) -> FloatArray:
        if prior is None:
            return np.full(self.k, 1.0 / self.k)
        if prior.shape != (self.k,):
            raise InvalidMechanism("The prior must have one probability per label of the channel's domain.")
        return prior

    def expected_loss(self, prior: FloatArray | None, loss: str | Loss) -> float:
        """Compute Σ_y p_y Σ_z P[z | y]·ℓ(z, y); `prior` is float64[k] (None: uniform).

        For classes it is the log loss of the posterior given an output, whatever `loss` is.
        """
        if self.domain.nominal:
            return class_log_loss(self.matrix(), self._prior(prior))
        p, ell, total = self._prior(prior), get_loss(loss), 0.0
        for start, stop in self._chunks():
            cost = ell.matrix(self.outputs, self.labels[start:stop])
            total += float(p[start:stop] @ np.einsum("ij,ij->i", self.rows(start, stop), cost))
        return total

    def output_distribution(self, prior: FloatArray | None) -> FloatArray:
        """Return P[z] if labels follow `prior` (None: uniform), float64[m]."""
        p, total = self._prior(prior), np.zeros(self.m)
        for start, stop in self._chunks():
            total += p[start:stop] @ self.rows(start, stop)
        return total

    def flip_probability(self, prior: FloatArray | None = None) -> float:
        """Return the expected share of examples whose output is not the likeliest one of their label."""
        p, unchanged = self._prior(prior), 0.0
        for start, stop in self._chunks():
            unchanged += float(p[start:stop] @ self.rows(start, stop).max(axis=1))
        return max(0.0, 1.0 - unchanged)

    def moments(self, values: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return mean and variance of `values[Z]` given each label, float64[k] each; `values` is float64[m]."""
        means, variances = np.empty(self.k), np.empty(self.k)
        for start, stop in self._chunks():
            rows = self.rows(start, stop)
            mean = rows @ values
            means[start:stop] = mean
            variances[start:stop] = np.einsum("ij,ij->i", rows, (values[None, :] - mean[:, None]) ** 2)
        return means, variances

    # --- correction ------------------------------------------------------------------------------------------

    @abstractmethod
    def debiased_outputs(self) -> FloatArray:
        """Return the corrected value of each output, float64[m]. Raises InvalidMechanism if there is none."""

    @property
    @abstractmethod
    def unbiased(self) -> bool:
        """Whether E[corrected | y] = y on the whole domain, up to rounding."""

    def noise_variance(self, prior: FloatArray | None = None) -> FloatArray:
        """Return the variance of the corrected output given each label, float64[k].

        `prior` is accepted and unused: the channel alone decides.
        """
        return self.moments(self.debiased_outputs())[1]

    def corrected_variance(self, prior: FloatArray | None) -> float:
        """Average `noise_variance` over `prior` (None: uniform)."""
        return float(self._prior(prior) @ self.noise_variance())

    # --- manifest --------------------------------------------------------------------------------------------

    def as_json(self) -> dict[str, object]:
        """Serialize for the manifest: weights and floats as decimal strings. The domain is written beside it, not
        inside."""
        return {"kind": self.kind, "N": str(N)} | self.written()

    @abstractmethod
    def written(self) -> dict[str, object]:
        """Return the members of `as_json` besides the kind and N: `members`, in this order."""

    @classmethod
    @abstractmethod
    def read(cls, members: Mapping[str, object], domain: Domain) -> Self:
        """Parse the output of `as_json`, untrusted members of the right names. Raises a LabelDPError or ValueError."""


@dataclass(frozen=True, eq=False, kw_only=True)
class WeightedChannel(Channel):
    """Channel of integer weights out of N; ε follows from the largest ratio within a column."""

    @property
    @abstractmethod
    def worst_case_odds(self) -> Fraction:
        """Exact largest P[z | y] / P[z | y′] over all z, y, y′; at least 1."""

    @cached_property
    def _epsilon(self) -> Epsilon:
        return log_upper(self.worst_case_odds)

    @property
    def epsilon(self) -> Epsilon:
        return self._epsilon

    def satisfies(self, epsilon: Epsilon) -> bool:
        return self.worst_case_odds <= epsilon.exp_lower()
