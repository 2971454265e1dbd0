"""The exponential mechanism (McSherry & Talwar 2007) drawn in integers: one uniform integer decides, no float does.

Target: P[i] ∝ sizes_i·e^(−c·s_i) for integer scores s (losses, smaller is better) of which a neighbour moves each by at
most Δ, which is 2cΔ-DP. Drawn instead: integer weights W_i = ⌊2¹²⁴·e^(−c(s_i − min s))⌋ + η, the power from
`exponentials`, η = 2⁹²/M with M, the public sum of the sizes. The worst-case cost of that:

- η mixes in a uniform choice of mass at most 2⁻³², so that nothing has weight 0. The mixture is 2cΔ-DP as well: with
  A = e^(c·min s), moved by a neighbour by a factor a within e^(±cΔ), the quotient of two numerators A·e^(−cs) + η is at
  most max(1, a·e^(cΔ)), that of the two sums at most max(1, e^(cΔ)/a), and their product at most e^(2cΔ).
- The power is within 2⁻⁴⁵ of the true one in relative terms, as `exponentials.powers` proves, or below 2⁻¹²⁶ and taken
  for 0; the integer is within 1 below it, which is at most 2⁻²⁸ of η: a weight is within e^(±2⁻²⁷), and a quotient of
  probabilities, of four such, within e^(±2⁻²⁵).
- The uniform integer has 64 bits more than needed: every probability is within e^(±2⁻⁶³).

SLACK = 2⁻²⁰ covers all of it; `rate_of` subtracts it from ε before it divides. The number of drawn words depends on M
alone.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from label_dp.errors import InvalidEpsilon, InvalidMechanism
from labels_party.mechanisms.entropy import Uint64Source
from labels_party.mechanisms.exponentials import powers

Scores = npt.NDArray[np.int64]

SLACK = Fraction(1, 1 << 20)
HALF = 62  # bits of a float power that are converted at a time
BITS = 2 * HALF
UNIFORM = 32  # the uniform choice has mass 2⁻³² at most
LARGEST_SIZE = 64  # bits of M
BLOCK = 4096


def rate_of(epsilon: Fraction, sensitivity: int, draws: int = 1) -> Fraction:
    """Compute the c for which one of `draws` choices, of scores of that sensitivity, is (ε/draws)-DP with all its
    rounding.

    `sensitivity` ≥ 1 is the largest move of any score when one label is replaced. Raises InvalidEpsilon (too small),
    InvalidMechanism.
    """
    if sensitivity < 1 or draws < 1:
        raise InvalidMechanism("The sensitivity of scores and the number of draws must be at least 1.")
    fraction = epsilon / draws - SLACK
    if fraction <= 0:
        raise InvalidEpsilon(f"ε is too small: each of {draws} choices needs more than {float(SLACK):.1g}.")
    return fraction / (2 * sensitivity)


def weights(scores: Scores, rate: Fraction, total: int) -> list[int]:
    """Compute the weight of one point of each score, for `total` points M in all: int[m]. Raises InvalidMechanism."""
    high, low = _powers(scores, rate)
    floor = _floor(total)
    return [(h << HALF) + rest + floor for h, rest in zip(high.tolist(), low.tolist(), strict=True)]


def choose(scores: Scores, rate: Fraction, source: Uint64Source, sizes: Sequence[int] | None = None) -> int:
    """Draw the index i with probability in proportion to sizes_i·e^(−rate·scores_i), as this module says.

    `scores` int64[m], m ≥ 1; `sizes` m public whole numbers from 0 on with a sum of 1 to 2⁶⁴, the number of points of
    each score (None: 1 each). Raises InvalidMechanism, RandomnessUnavailable.
    """
    if sizes is not None:
        total = sum(sizes)
        each = weights(scores, rate, total)
        if len(each) != len(sizes) or min(sizes) < 0:
            raise InvalidMechanism("Every score needs one size that is not negative.")
        ends = list(accumulate(weight * size for weight, size in zip(each, sizes, strict=True)))
        return bisect_right(ends, _below(ends[-1], _bits(total), source))
    m = len(scores)
    high, low = _powers(scores, rate)
    floor, starts = _floor(m), np.arange(0, m, BLOCK)
    # 31 bits at a time, so that sums of 2³² of them are exact
    parts = [np.add.reduceat(part, starts).tolist() for word in (high, low) for part in (word >> 31, word & 0x7FFFFFFF)]
    lengths = np.diff(np.append(starts, m)).tolist()
    sums = [
        (((a << 31) + b) << HALF) + (c << 31) + d + floor * n for a, b, c, d, n in zip(*parts, lengths, strict=True)
    ]
    ends = list(accumulate(sums))
    at = _below(ends[-1], _bits(m), source)
    block = bisect_right(ends, at)
    within = slice(block * BLOCK, (block + 1) * BLOCK)
    pairs = zip(high[within].tolist(), low[within].tolist(), strict=True)
    inner = list(accumulate((h << HALF) + rest + floor for h, rest in pairs))
    return block * BLOCK + bisect_right(inner, at - (ends[block - 1] if block else 0))


def choose_point(
    scores: Scores, starts: Sequence[int], sizes: Sequence[int], rate: Fraction, source: Uint64Source
) -> int:
    """Draw a point of a domain cut into intervals [starts_i, starts_i + sizes_i) of one score each.

    Every point has a probability in proportion to e^(−rate·its score); the points are not listed. Raises as `choose`.
    """
    i = choose(scores, rate, source, sizes)
    return starts[i] + uniform_below(sizes[i], source)


def uniform_below(bound: int, source: Uint64Source) -> int:
    """Draw one of 0 … bound − 1, 1 ≤ bound ≤ 2⁶⁴, each with the same probability within e^(±2⁻⁶³).

    Raises InvalidMechanism, RandomnessUnavailable.
    """
    if not 1 <= bound <= 1 << LARGEST_SIZE:
        raise InvalidMechanism("A uniform choice is among 1 to 2⁶⁴ points.")
    return _below(bound, LARGEST_SIZE + 1, source)


def uniform_integer(bound: int, bits: int, source: Uint64Source) -> int:
    """Draw one of 0 … bound − 1, bound < 2^bits of any length, each with the same probability within e^(±2⁻⁶³).

    `bits` is public: it decides the number of drawn words. Raises InvalidMechanism, RandomnessUnavailable.
    """
    if not 1 <= bound < 1 << bits:
        raise InvalidMechanism("A uniform choice is among 1 to 2^bits − 1 points.")
    return _below(bound, bits, source)


def _powers(scores: Scores, rate: Fraction) -> tuple[Scores, Scores]:
    """Return int64[m] each, at most 2⁶²: ⌊2¹²⁴·e^(−rate·(scores − min))⌋ is upper·2⁶² + lower."""
    if scores.ndim != 1 or scores.dtype != np.int64 or scores.size < 1:
        raise InvalidMechanism("Scores are a column of at least one 64-bit integer.")
    if rate <= 0:
        raise InvalidMechanism("The rate of a choice must be greater than zero.")
    best = int(scores.min())
    if int(scores.max()) - best >= 1 << 62:
        raise InvalidMechanism("The scores of a choice lie too far apart.")
    scaled = powers(rate, scores - best) * 2.0**HALF
    high = scaled.astype(np.int64)
    low = ((scaled - high) * 2.0**HALF).astype(np.int64)  # exact: scaling by powers of two, and a fraction of a float
    return high, low


def _floor(total: int) -> int:
    """Return η for M points."""
    if not 1 <= total <= 1 << LARGEST_SIZE:
        raise InvalidMechanism("A choice is among 1 to 2⁶⁴ points.")
    return 1 << (BITS - UNIFORM - (total - 1).bit_length())


def _bits(total: int) -> int:
    """Return a number of bits that holds any sum of the weights of `total` points."""
    return BITS + 1 + total.bit_length()


def _below(bound: int, bits: int, source: Uint64Source) -> int:
    """Draw uniformly below `bound` < 2^bits, from as many words as `bits` needs and one more."""
    words = source.uint64(-(-bits // 64) + 1)
    value = int.from_bytes(words.astype("<u8").tobytes(), "little")
    return value * bound >> (64 * len(words))
