"""Additive noise on a public lattice: its step, its reach, and the size of its weights.

The continuous mechanisms use a lattice of at least 1,000 steps per unit of the noise's scale, the discrete ones the
domain's own values if their noise fits into the table. Labels between two points of a lattice are rounded to either of
them at random, which keeps their mean and adds less than a millionth of the noise's variance.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar

from label_dp.channels.base import N
from label_dp.channels.noise import NoiseChannel
from label_dp.channels.noise_weights import BITS, MAX_LATTICE_OUTPUTS, MAX_NOISE_EPSILON, half_table, shrink_lower
from label_dp.domain import Domain
from label_dp.errors import InvalidEpsilon, InvalidMechanism
from label_dp.privacy import Epsilon

STEPS_PER_SCALE = 1000
FEWEST_CELLS = 64
CLIPPED_CELLS = 1024
TAIL = 26  # e^−26/2 = 2.6·10⁻¹², the most that saturates at an end of the reach

C = TypeVar("C", bound=NoiseChannel)


@dataclass(frozen=True)
class Lattice:
    """Lattice of `cells` steps over the domain, with outputs up to `reach` steps beyond its ends, for noise of
    `epsilon`."""

    epsilon: Epsilon
    cells: int
    reach: int


def choose_lattice(domain: Domain, epsilon: Epsilon, *, discrete: bool, unclipped: bool) -> Lattice:
    """Choose the lattice from public facts alone; the noise's ε is at most `epsilon`, and at most 40 however large that
    is.

    Raises InvalidEpsilon (0, or too small for a reach that holds all but 10⁻¹¹ of the noise), InvalidMechanism
    (discrete noise on values that are not equally spaced).
    """
    if not epsilon:
        raise InvalidEpsilon("Additive noise needs an ε greater than zero.")
    steps, used = domain.k - 1, min(epsilon, MAX_NOISE_EPSILON)
    even = equal_steps(domain)
    if discrete and not even:
        raise InvalidMechanism(
            "Discrete noise needs a domain of equally spaced values; take the continuous variant for other values."
        )
    periods = -(-TAIL // used.fraction) if unclipped else 0
    # with noise that wide, weights out of 2⁶⁴ could not distinguish neighbouring distances of more cells
    most = min((MAX_LATTICE_OUTPUTS - 1) // (1 + 2 * periods), used.nano)
    if not discrete:  # nor, if ε is large, at the other end of the domain
        most = min(most, math.isqrt(int(N * used.fraction**2 * shrink_lower(used.fraction)) >> (BITS + 1)))
    if most < 1:
        raise InvalidEpsilon(
            "This ε is too small for noise without clipping; leave out 'unclipped', or take an ε of at least 0.0004."
        )
    fine = max(-(-STEPS_PER_SCALE * used.fraction // 1), FEWEST_CELLS if unclipped else CLIPPED_CELLS)
    # round numbers of points between two values: 1, 2, 5, 10, 20 …
    between = next(n for n in (b * 10**i for i in range(10) for b in (1, 2, 5)) if n * steps >= fine)
    if discrete and steps <= most:
        cells = steps
    elif even and between * steps <= most:
        cells = between * steps
    else:
        cells = int(min(fine, most))
    return Lattice(used, cells, int(periods) * cells)


def equal_steps(domain: Domain) -> bool:
    """Check whether neighbouring values of the domain are equally far apart, exactly."""
    return not domain.listed or len({b - a for a, b in zip(domain.listed[:-1], domain.listed[1:], strict=True)}) <= 1


def fitted_peak(lattice: Lattice, share: float, period: Callable[[int], list[int]]) -> int:
    """Return the (nearly) largest even weight of zero noise whose table fits into 2⁶⁴; `share` is about its
    probability."""
    peak = max(2, int(share * N) & ~1)
    for _ in range(20):
        remainder = half_table(lattice.epsilon, period(peak), lattice.reach)[1]
        if remainder >= 0:
            return peak
        peak = max(2, peak - 2 * (int(-remainder * Fraction(share)) // 2 + 1))
    raise InvalidEpsilon("This ε is too small for so fine a lattice of noise.")


def proved(channel: C, epsilon: Epsilon) -> C:
    """Return the channel once its ε is proved in integers. Raises InvalidEpsilon if the proof fails."""
    if not channel.satisfies(epsilon):
        raise InvalidEpsilon("This ε is too small for noise of integer weights on this domain.")
    return channel
