"""Noise at the prediction: a whole number, what one label may move it by, and exact discrete Laplace noise."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from labels_party.mechanisms.entropy import MAX_NOISE_SCALE, discrete_laplace, float_not_below
from shared.errors import InvalidMechanism

Noise = Callable[[Fraction], int]


def scale_of(sensitivity: int, epsilon: Fraction) -> Fraction:
    """The scale sensitivity/ε, ε and sensitivity above 0. Raises InvalidMechanism where no sampler takes it."""
    if sensitivity < 1 or epsilon <= 0:
        raise InvalidMechanism("Noise needs a sensitivity of at least 1 and an ε greater than zero.")
    scale = sensitivity / epsilon
    if float_not_below(scale) > MAX_NOISE_SCALE:
        raise InvalidMechanism("The noise scale is too large; ask with a larger ε.")
    return scale


def laplace_noise(scale: Fraction) -> int:
    """One draw with P[t] ∝ e^(−|t|/s), s the smallest float not below `scale`. Raises RandomnessUnavailable."""
    return int(discrete_laplace(scale, 1)[0])


def noisy(position: int, sensitivity: int, epsilon: Fraction, ends: tuple[int, int], noise: Noise) -> int:
    """`position` and noise, clipped to `ends`, which are public: ε-DP where one label moves it by ≤ `sensitivity`.

    Precondition: `position` is a whole number by exact arithmetic or by rounding whose effect `sensitivity` counts.
    Source: Dwork & Feldman 2018, Lemma 4.5, with discrete Laplace noise (Ghosh, Roughgarden & Sundararajan 2012);
    clipping is post-processing. Raises InvalidMechanism, RandomnessUnavailable.
    """
    drawn = position + noise(scale_of(sensitivity, epsilon))
    return min(max(drawn, ends[0]), ends[1])
