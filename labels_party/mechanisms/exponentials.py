"""e^−x in 64-bit floats by multiplications, additions and divisions alone, so that its error is proved, not assumed.

IEEE 754 fixes the result of these operations: it is within U = 2⁻⁵² of the true one in relative terms, in any rounding
mode, or within 2⁻¹⁰⁰⁰ of it. The exponential function of a library has no such rule, and its results differ between
machines; these do not, in one rounding mode. Constants come from exact integers: they lie between bounds whose distance
is checked, and are rounded once more (`int / int` is correctly rounded).
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from label_dp.errors import EpsilonNotProved, InvalidMechanism
from label_dp.privacy import exp_bounds

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

U = Fraction(1, 1 << 52)
POWER_ERROR = Fraction(1, 1 << 45)  # relative, of `powers`
LEAST = Fraction(1, 1 << 126)  # what `powers` may replace by 0
LOGISTIC_ERROR = 8 * U  # absolute, of `logistic`

MAX_BITS = 62  # of a number of steps
BEYOND = 88  # e^−88 < 2⁻¹²⁶
FIXED = 320  # bits of the numbers from which constants are computed
CLOSE = 60  # bits to which the bounds of a constant agree
DIGIT = 11  # bits that one table covers
BLOCK = 1 << 13  # numbers per block, which fits the processor's cache

STEP, END = 256, 48  # of the table of the logistic function: 1/256, to e^−48 < 2⁻⁶⁹
SERIES = tuple((-1) ** i / math.factorial(i) for i in range(7))  # the next term is r⁷/7! < 2⁻⁶⁸ for r < 1/256


def powers(rate: Fraction, steps: IntArray) -> FloatArray:
    """Compute e^(−rate·steps), float64[m], for rate > 0 and steps int64[m] of 0 … 2⁶² − 1, within POWER_ERROR in
    relative terms; or 0 if that is below LEAST.

    One constant for each bit of a step, multiplied up: at most 62 constants within 2⁻⁶⁰ + U and 61 products within U
    are together within 124·U < 2⁻⁴⁵. No product of them is below e^−176, far above the smallest normal number. Work and
    tables depend on the rate and on m alone. Raises InvalidMechanism (steps), EpsilonNotProved.
    """
    if steps.size and not 0 <= int(steps.min()) <= int(steps.max()) < 1 << MAX_BITS:
        raise InvalidMechanism("A power has 0 to 2⁶² − 1 steps.")
    tables, bits = _tables(rate)
    results = np.empty(steps.shape)
    for start in range(0, steps.size, BLOCK):
        remaining = np.minimum(steps[start : start + BLOCK], 1 << bits)
        part = tables[0].take(remaining & ((1 << DIGIT) - 1))
        for table in tables[1:]:
            remaining >>= DIGIT
            part *= table.take(remaining & ((1 << DIGIT) - 1))
        results[start : start + BLOCK] = part
    return results


@lru_cache(maxsize=64)
def _tables(rate: Fraction) -> tuple[tuple[FloatArray, ...], int]:
    """Compute products of the constants of every DIGIT bits, and the number of the bit from which on the power is 0."""
    bits = next((bit for bit in range(MAX_BITS) if rate * (1 << bit) >= BEYOND), MAX_BITS)
    constants = [*_squares(rate, bits), 0.0]
    tables = []
    for start in range(0, len(constants), DIGIT):
        digit = constants[start : start + DIGIT]
        table = np.ones(1 << len(digit))
        for bit, constant in enumerate(digit):
            np.multiply(table[: 1 << bit], constant, out=table[1 << bit : 2 << bit])
        tables.append(table)
    return tuple(tables), bits


def _squares(rate: Fraction, bits: int) -> list[float]:
    """Compute e^(−rate·2^j) for each bit j."""
    halvings = (rate.numerator // rate.denominator).bit_length()  # from a power of at most 1, squared up
    low, high = _bounds(rate / (1 << halvings))
    constants = []
    for at in range(halvings + bits):
        if at >= halvings:
            constants.append(_rounded(low, high))
        low, high = low * low >> FIXED, -(-high * high >> FIXED)
    return constants


def _bounds(x: Fraction) -> tuple[int, int]:
    """Return whole numbers around 2^FIXED·e^−x, 0 ≤ x ≤ 1."""
    lower, upper = exp_bounds(x)
    one = 1 << FIXED
    return one * upper.denominator // upper.numerator, -(-one * lower.denominator // lower.numerator)


def _rounded(low: int, high: int) -> float:
    """Return the float next to `low`, checked to be within 2⁻⁶⁰ of all between the bounds. Raises EpsilonNotProved."""
    if (high - low) << CLOSE > low:
        raise EpsilonNotProved("A power of e could not be bounded closely enough, so nothing was drawn.")
    return low / (1 << FIXED)


def logistic(score: FloatArray) -> FloatArray:
    """Compute 1/(1 + e^−score), float64[m], within LOGISTIC_ERROR, for finite scores; the same operations for each of
    them.

    With |score| = k/256 + r, 0 ≤ r < 1/256, both exact, e^−|score| is a constant times a series in r: within U + 2⁻⁶⁰
    for the constant, U for the product and 1.1·U for the series, whose inner terms count for a 256th or less, so within
    4·U. Scores beyond END are replaced by END: both powers are below 2⁻⁶⁹. The sum and the quotient add U each, and the
    error of the denominator is at most 4·U·e/(1 + e).
    """
    rest = np.minimum(np.abs(score), float(END))
    at = (rest * STEP).astype(np.int64)
    rest -= at / STEP
    small = np.full_like(rest, SERIES[-1])
    for term in SERIES[-2::-1]:
        small *= rest
        small += term
    small *= _falling().take(at)
    upper = np.where(score >= 0, 1.0, small)
    small += 1.0
    return np.asarray(np.divide(upper, small, out=upper), np.float64)


@lru_cache(maxsize=1)
def _falling() -> FloatArray:
    """Tabulate e^(−k/STEP), float64[END·STEP + 1]."""
    down, up = _bounds(Fraction(1, STEP))
    low = high = 1 << FIXED
    table = []
    for _ in range(END * STEP + 1):
        table.append(_rounded(low, high))
        low, high = low * down >> FIXED, -(-high * up >> FIXED)
    return np.array(table)
