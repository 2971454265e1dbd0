"""Clipped discrete Laplace noise as messages of format 1.0 have it: never written out as a matrix of k × k cells."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from shared.channel_base import Channel, FloatArray
from shared.errors import InvalidMechanism
from shared.losses import Loss, get_loss
from shared.privacy import MAX_EPSILON_NANO, NANO, Epsilon

MAX_ADDITIVE_PAIRS = 1 << 28
MAX_SCALE = 1 << 80


@dataclass(frozen=True, eq=False, kw_only=True)
class AdditiveChannel(Channel):
    """Discrete Laplace noise on the domain's equally spaced values, clipped to its ends (output j is value j).

    With s = `scale` in steps (an exact rational), P[noise = t] = (1 − r)/(1 + r)·r^|t|, r = e^(−1/s). The ε is
    exactly (k − 1)/s: the sensitivity is the whole domain. Raises InvalidMechanism.
    """

    kind = "additive"
    scale: Fraction

    def __post_init__(self) -> None:
        if not Fraction(self.k - 1, MAX_EPSILON_NANO // NANO) <= self.scale <= MAX_SCALE or self.scale <= 0:
            raise InvalidMechanism("The scale of additive noise is outside the range that any ε asks for.")
        if len({b - a for a, b in itertools.pairwise(self.domain.listed)}) > 1:
            raise InvalidMechanism("Additive noise needs a domain of equally spaced values.")
        object.__setattr__(self, "outputs", self.domain.values)

    @property
    def epsilon(self) -> Epsilon:
        return Epsilon.round_up((self.k - 1) / self.scale)

    def satisfies(self, epsilon: Epsilon) -> bool:
        return (self.k - 1) / self.scale <= epsilon.fraction

    @property
    def worst_case_odds(self) -> Fraction:
        """A rational that is at least e^ε. Raises InvalidMechanism for ε > 64."""
        if self.epsilon.fraction > 64:
            raise InvalidMechanism("The odds of this channel are too large to be written down.")
        return self.epsilon.exp_upper()

    @cached_property
    def _tails(self) -> FloatArray:
        """float64[k]: P[noise ≥ t] for t = 0 … k − 1, by r^t/(1 + r)."""
        rate = float(1 / self.scale)
        return np.asarray(np.exp(-rate * np.arange(self.k)) / (1.0 + math.exp(-rate)), np.float64)

    def rows(self, start: int, stop: int) -> FloatArray:
        if self.k == 1:
            return np.ones((stop - start, 1))
        distance = np.abs(np.arange(self.k)[None, :] - np.arange(start, stop)[:, None])
        rows = self._tails[distance]
        rows[:, 1:-1] *= -math.expm1(-float(1 / self.scale))
        return np.asarray(rows, np.float64)

    @cached_property
    def _masses(self) -> FloatArray:
        """float64[k]: c_j with P[z = j | y] = c_j·r^|j − y|; the ends take what is clipped to them."""
        masses = np.full(self.k, float(self._tails[0]) if self.k > 1 else 1.0)
        masses[1:-1] *= -math.expm1(-float(1 / self.scale))
        return masses

    def _smoothed(self, x: FloatArray) -> FloatArray:
        """float64[k]: Σ_j x_j·r^|j − i| for every i, without the k × k cells."""
        return self._decayed(x) + self._decayed(x[::-1])[::-1] - x

    def _decayed(self, x: FloatArray) -> FloatArray:
        """float64[k]: Σ_{j ≤ i} x_j·r^(i − j), by sums over 2, 4, 8 … neighbours: O(k log k)."""
        total, reach, rate = np.array(x, np.float64), 1, float(1 / self.scale)
        while reach < self.k and (factor := math.exp(-rate * reach)) > 0.0:
            total[reach:] += factor * total[:-reach]
            reach *= 2
        return total

    def output_distribution(self, prior: FloatArray | None) -> FloatArray:
        return self._masses * self._smoothed(self._prior(prior))

    def flip_probability(self, prior: FloatArray | None = None) -> float:
        # the likeliest output of a label is itself or an end
        likeliest = np.maximum(self._masses, np.maximum(self._tails, self._tails[::-1]) if self.k > 1 else 1.0)
        return max(0.0, 1.0 - float(self._prior(prior) @ likeliest))

    def moments(self, values: FloatArray) -> tuple[FloatArray, FloatArray]:
        """As for every channel; the outputs as they are have a closed form without cancellation."""
        if np.array_equal(values, self.outputs):
            shift, square = self._moments()
            return self.labels + shift, np.maximum(square - shift * shift, 0.0)
        centre = float(np.mean(values))
        x = values - centre
        mean = self._smoothed(self._masses * x)
        square = self._smoothed(self._masses * x * x)
        return centre + mean, np.maximum(square - mean * mean, 0.0)

    def _moments(self) -> tuple[FloatArray, FloatArray]:
        """float64[k] each: mean and mean square of (output − label), in closed form."""
        t = np.arange(1, self.k)
        first = np.concatenate([[0.0], np.cumsum(self._tails[1:])])
        second = np.concatenate([[0.0], np.cumsum((2 * t - 1) * self._tails[1:])])
        step = float(self.labels[-1] - self.labels[0]) / max(self.k - 1, 1)
        return step * (first[::-1] - first), step * step * (second[::-1] + second)

    def expected_loss(self, prior: FloatArray | None, loss: str | Loss) -> float:
        """As for every channel; above 2²⁸ pairs of labels only the squared loss is offered."""
        if get_loss(loss).name == "squared":
            return float(self._prior(prior) @ self._moments()[1])
        if self.k * self.k > MAX_ADDITIVE_PAIRS:
            raise InvalidMechanism(
                "The domain is too large for the expected loss of additive noise; use the squared loss."
            )
        return super().expected_loss(prior, loss)

    def debiased_outputs(self) -> FloatArray:
        """The outputs, but for the two ends, which move outwards by 1/(e^(1/s) − 1) steps: a geometric tail has no
        memory, so that is how far the noise exceeds an end on average whatever the label."""
        values = self.outputs.copy()
        if self.k > 1:
            outward = float(values[-1] - values[0]) / (self.k - 1) / math.expm1(float(1 / self.scale))
            values[0], values[-1] = values[0] - outward, values[-1] + outward
        return values

    @property
    def unbiased(self) -> bool:
        return True

    def as_json(self) -> dict[str, object]:
        return {
            "kind": self.kind,
            "scale_numerator": str(self.scale.numerator),
            "scale_denominator": str(self.scale.denominator),
        }
