"""Noise on a lattice: a few parameters describe it, from which its whole-number weights follow bit for bit."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from .domains import Domain
from .exact import NANO, N, exp_lower, units, whole
from .refusal import refuse


def power_of_e(x: Fraction, bits: int, up: bool) -> int:
    """2^bits·e^−x as a whole number, rounded up or down: its alternating series, all terms over 2^400, x ≤ 64."""
    halvings = max(0, (x.numerator // x.denominator).bit_length())
    one, z = 1 << 400, x / (1 << halvings)
    total, term, n = 0, one, 0
    while term:
        total += term if n % 2 == 0 else -term
        n += 1
        term = term * z.numerator // (z.denominator * n)
    for _ in range(halvings):
        total = total * total >> 400
    # the error is below 2^−300, and no power of e is that near to a multiple of 2^−bits
    return (total >> (400 - bits)) + up


def falling(nano: int, cells: int, count: int) -> list[int]:
    """2^144·e^(−ε·t/cells) for t = 0 … count − 1, every step rounded down."""
    rate, x = power_of_e(Fraction(nano, NANO * cells), 80, up=False), [1 << 144]
    while len(x) < count:
        x.append(x[-1] * rate >> 80)
    return x


def noise_weights(channel: Any) -> tuple[list[int], int, int]:
    """(w, cells, reach): w[t] is the weight of noise t and of noise −t, the last one that of everything further out."""
    own = units(channel["epsilon"], NANO, "ε of the noise")
    cells, reach, peak = (whole(channel[name]) for name in ("cells", "reach", "peak"))
    if not 0 < own <= 40 * NANO or cells < 1 or cells + 2 * reach >= 1 << 17 or not 2 <= peak < N or peak % 2:
        refuse("the lattice of the noise is out of bounds")
    b = power_of_e(Fraction(own, NANO), 80, up=True)
    if channel["kind"] == "laplace":
        w = [max(1, peak * x >> 144) for x in falling(own, cells, cells)]
    else:
        width = whole(channel["width"])
        if not 1 <= width <= cells:
            refuse("the step of the staircase is out of bounds")
        w = [peak] * width + [-(-peak * b >> 80)] * (cells - width)
    while len(w) < cells + reach:
        w.append(-(-w[len(w) - cells] * b >> 80))
    tail = -(-sum(w[reach:]) * b // ((1 << 80) - b))
    left = N - w[0] - 2 * (sum(w) - w[0] + tail)
    if left < 0 or any(x < y for x, y in itertools.pairwise(w)):
        refuse("the weights of the noise rise with distance, or sum to more than 2^64")
    return [*w, tail + left // 2], cells, reach


def check_noise(channel: Any, domain: Domain, nano: int) -> str:
    """Weights as far apart as the domain is wide, which two labels can give one output, differ by at most e^ε."""
    w, cells, reach = noise_weights(channel)
    check_lattice(domain, cells, reach)
    bound, tails = exp_lower(nano), list(itertools.accumulate(reversed(w)))[::-1]
    pairs = [(w[t], w[t + cells]) for t in range(reach)] + [(tails[reach], tails[reach + cells])]
    pairs += [(w[0], w[cells - 1])] if reach == 0 else []
    if any(x * bound.denominator > bound.numerator * y for x, y in pairs):
        refuse("the channel does not keep the stated ε: its noise is too narrow")
    return f"{channel['kind']} noise on {cells} + 2·{reach} lattice steps: weights {cells} apart differ by at most e^ε"


def check_lattice(domain: Domain, cells: int, reach: int) -> None:
    """Outputs are the points of `cells` equal steps through the domain, and of `reach` steps beyond either end: all of
    them different 64-bit floats."""
    if domain.k < 2 or not cells >= 1 or cells + 2 * reach >= 1 << 17:
        refuse("a lattice has two labels at least, and a bounded number of steps")
    step = (domain.high - domain.low) / cells
    bottom = math.lcm(domain.low.denominator, step.denominator)
    low, one = int(domain.low * bottom), int(step * bottom)
    points = [(low + one * j) / bottom for j in range(-reach, cells + reach + 1)]
    if any(x >= y for x, y in itertools.pairwise(points)):
        refuse("two outputs of the noise are the same 64-bit float")


def exponential_rows(channel: Any) -> Iterator[list[int]]:
    """Row a has weight ∝ e^(−decay·|j − a|/cells) for output j, and sums to 2^64."""
    decay, cells = units(channel["decay"], NANO, "the decay of the channel"), whole(channel["cells"])
    if not 0 < decay <= 24 * NANO or not 1 <= cells <= 1 << 11:
        refuse("the lattice of the exponential mechanism is out of bounds")
    m = cells + 1
    x = [min(v >> 80, N - 1) for v in falling(decay, cells, m)]
    sums = list(itertools.accumulate(x))
    for a in range(m):
        quota = N * (N - m) // (sums[a] + sums[cells - a] - x[0])
        row = [(x[abs(j - a)] * quota >> 64) + 1 for j in range(m)]
        row[a] += N - sum(row)
        yield row


def check_exponential(channel: Any, domain: Domain, nano: int) -> str:
    """Every output's largest weight over all labels is at most e^ε times its smallest."""
    check_lattice(domain, whole(channel["cells"]), 0)
    rows, bound = exponential_rows(channel), exp_lower(nano)
    largest = smallest = next(rows)
    for row in rows:
        largest, smallest = list(map(max, largest, row)), list(map(min, smallest, row))
    if any(x * bound.denominator > bound.numerator * y for x, y in zip(largest, smallest, strict=True)):
        refuse("the channel does not keep the stated ε")
    return f"exponential mechanism, {len(largest)} outputs: every column's largest weight ≤ e^ε · smallest"
