"""Integer weights of symmetric noise on a lattice, out of N = 2⁶⁴, reproducible bit for bit from the parameters.

Noise of ε over `cells` lattice steps has weights w[0] ≥ w[1] ≥ …, the same on either side. A first period of `cells`
weights is given; each later one is the period before it times e^−ε, rounded *up*, so that w[t] ≤ e^ε·w[t + cells] holds
in integers by construction. The tail at or beyond L = cells + reach is one last weight, at least the rest over e^ε − 1,
which keeps the same bound for sums of the tail. Only whole-number arithmetic decides:

    b = ⌈2⁸⁰·e^−ε⌉,  ρ = ⌊2⁸⁰·e^(−ε/cells)⌋,  x₀ = 2¹⁴⁴,  x_{t+1} = ⌊x_t·ρ/2⁸⁰⌋
    Laplace      w[t] = max(1, ⌊peak·x_t/2¹⁴⁴⌋)                       0 ≤ t < cells
    staircase    w[t] = peak below `width`, then ⌈peak·b/2⁸⁰⌉         0 ≤ t < cells
    both         w[t + cells] = ⌈w[t]·b/2⁸⁰⌉                          t + cells < L
    tail         w[L] = ⌈I·b/(2⁸⁰ − b)⌉, I = Σ w[reach … L − 1], and then half of the remainder of N on top

Sources: Dwork et al. 2006; Ghosh, Roughgarden & Sundararajan 2012; Geng & Viswanath 2014.
"""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from label_dp.channels.base import N
from label_dp.errors import InvalidMechanism
from label_dp.privacy import NANO, Epsilon, exp_bounds

BITS, ONE = 80, 1 << 80
START = 144  # bits of the first power
MAX_LATTICE_OUTPUTS = 1 << 17
MAX_NOISE_EPSILON = Epsilon(40 * NANO)  # beyond it, weights out of 2⁶⁴ cannot resolve the noise

UInt64Array = npt.NDArray[np.uint64]


def shrink_upper(x: Fraction) -> int:
    """Compute ⌈2⁸⁰·e^−x⌉, x > 0; from a lower bound of e^x, so never too small."""
    lower = exp_bounds(x)[0]
    return -(-ONE * lower.denominator // lower.numerator)


def shrink_lower(x: Fraction) -> int:
    """Compute ⌊2⁸⁰·e^−x⌋, 0 < x ≤ 64."""
    upper = exp_bounds(x)[1]
    return ONE * upper.denominator // upper.numerator


def powers(epsilon: Epsilon, cells: int, count: int) -> list[int]:
    """Compute x₀ … x_{count − 1}: 2¹⁴⁴·e^(−ε·t/cells), rounded down step by step."""
    rate = shrink_lower(epsilon.fraction / cells)
    return list(itertools.accumulate(range(count - 1), lambda x, _: x * rate >> BITS, initial=1 << START))


def laplace_period(epsilon: Epsilon, cells: int, peak: int) -> list[int]:
    """Return the first `cells` Laplace weights, from `peak` down."""
    return [max(1, peak * x >> START) for x in powers(epsilon, cells, cells)]


def staircase_period(epsilon: Epsilon, cells: int, width: int, peak: int) -> list[int]:
    """Return the weights of one period of the staircase: `width` times `peak`, then the lower step."""
    low = -(-peak * shrink_upper(epsilon.fraction) // ONE)
    return [peak] * width + [low] * (cells - width)


def half_table(epsilon: Epsilon, period: list[int], reach: int) -> tuple[list[int], int]:
    """Return (w[0 … L], the remainder of N: negative if the weights are too many), L = cells + reach."""
    cells, b = len(period), shrink_upper(epsilon.fraction)
    weights = list(period)
    while len(weights) < cells + reach:
        missing = cells + reach - len(weights)
        weights += [-(-w * b >> BITS) for w in weights[-cells:][:missing]]
    inside = sum(weights[reach:])
    tail = -(-inside * b // (ONE - b))
    remainder = N - weights[0] - 2 * (sum(weights[1:]) + tail)
    return [*weights, tail + max(remainder, 0) // 2], remainder


def as_table(weights: list[int], left: int) -> UInt64Array:
    """Return uint64[L + 1], read-only. Raises InvalidMechanism if the weights do not sum to N."""
    if left < 0 or left % 2:
        raise InvalidMechanism("The weights of the noise must sum to 2⁶⁴.")
    table = np.array(weights, dtype=np.uint64)
    table.setflags(write=False)
    return table
