"""Noise at the prediction: a whole number, its largest move by one label, and exact discrete Laplace noise."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from labels_party.mechanisms.entropy import LaplaceNoise, discrete_laplace

Noise = Callable[[LaplaceNoise], int]


def laplace_noise(noise: LaplaceNoise) -> int:
    """Draw one value with P[t] ∝ e^(−|t|/scale). Raises RandomnessUnavailable, EpsilonNotProved."""
    return int(discrete_laplace(noise, 1)[0])


def noisy(position: int, sensitivity: int, epsilon: Fraction, ends: tuple[int, int], noise: Noise) -> int:
    """Add noise to `position` and clip to `ends`, which are public: ε-DP if one label moves it by ≤ `sensitivity`.

    Precondition: `position` is a whole number by exact arithmetic or by rounding whose effect `sensitivity` counts.
    Source: Dwork & Feldman 2018, Lemma 4.5, with discrete Laplace noise (Ghosh, Roughgarden & Sundararajan 2012);
    clipping is post-processing. Raises InvalidMechanism, RandomnessUnavailable, EpsilonNotProved.
    """
    value = position + noise(LaplaceNoise(sensitivity, epsilon))
    return min(max(value, ends[0]), ends[1])
