"""The cost of slices of a data set: the bounds that may be charged, in whole numbers rounded up.

A bound is named in the answer: of composition, of advanced composition, or of slices whose sizes are noisy, which
takes numbers ρ that the answer lists. The last one is an induction over bad events: γ bounds the probability of one,
given what ρ allows before and after it; all γ together, and what cutting off the noise costs, are δ.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

from .exact import ATTO, LARGEST, NANO, N, exp_bounds, log_upper, units
from .members import listed, matching, one_of
from .refusal import refuse

COMPOSITION, ADVANCED, NOISY = BOUNDS = "composition", "advanced composition", "noisy slices"
RHO = re.compile(r"[1-9][0-9]{0,59}", re.ASCII)
MOST_RHO, RHO_UNIT = 32, 1 << 40
ONE, ROUNDS = 1 << 256, 1 << 16
LARGEST_NOISE = 1 << 16
CUT_SHARE = 1 << 12
ODDS = exp_bounds(Fraction(LARGEST))[0]


@dataclass(frozen=True)
class Step:
    """ε and δ of one step where an element is replaced, ε where one is `added`. `shuffled`: in uniform order."""

    epsilon: Fraction
    delta: Fraction
    added: Fraction
    shuffled: bool = False


def check_charge(split: list[int], epsilon: Fraction, delta: Fraction) -> None:
    """All of ε went into the answer, and ε and δ are what the parameters cost, rounded up."""
    if split != [0, 0, math.ceil(epsilon * NANO), math.ceil(delta * ATTO)]:
        refuse("ε and δ of the answer are not what its parameters cost")


def together(given: Any, step: Step, k: int) -> tuple[Fraction, Fraction]:
    """(ε, δ) of k equal steps, by the bound that the parameters name."""
    slack = Fraction(units(given["delta_of_bound"], ATTO, "δ of the bound"), ATTO)
    bound = one_of(given["bound"], BOUNDS, "the bound")
    rho = [int(matching(r, RHO, "a number ρ")) for r in listed(given["rho"], 0, MOST_RHO, "the numbers ρ")]
    if slack >= 1 or given["slice_noise"] > LARGEST_NOISE or (bound != COMPOSITION and not slack):
        refuse("the noise of slices, or δ of the bound, is out of bounds")
    if bound != NOISY and rho:
        refuse("only the bound of noisy slices takes numbers ρ")
    if bound == COMPOSITION:
        return (step.epsilon, step.delta) if step.shuffled else (k * step.epsilon, k * step.delta)
    if step.epsilon > LARGEST:
        refuse("ε of a step is too large for this bound")
    if bound == ADVANCED:
        return _advanced(step, k, slack)
    if not given["slice_noise"] or not rho or any(b < a for a, b in pairwise(rho)):
        refuse("the bound of noisy slices takes noise, and numbers ρ that do not fall")
    return _noisy(step, k, given["slice_noise"], slack, given["examples"], rho)


def _advanced(step: Step, k: int, slack: Fraction) -> tuple[Fraction, Fraction]:
    upper = exp_bounds(step.epsilon)[1]
    mean = k * step.epsilon * (upper - 1) / (upper + 1)
    spread = 2 * k * Fraction(log_upper(1 / slack), NANO)
    root = Fraction(math.isqrt(math.ceil(spread * (1 << 128))) + 1, 1 << 64)
    return mean + step.epsilon * root, slack + k * step.delta


def _noisy(step: Step, k: int, noise: int, slack: Fraction, n: int, rho: list[int]) -> tuple[Fraction, Fraction]:
    alpha = 1 - Fraction(N // (noise + 1), N)
    replaced, put_in = exp_bounds(step.epsilon)[1], exp_bounds(step.added)[1]
    before, chance, extra = Fraction(0), Fraction(1), Fraction(0)
    for number in rho:
        after = max(Fraction(1), alpha * put_in, Fraction(number, RHO_UNIT))
        gamma = _gamma(before * replaced / after, put_in / after, alpha)
        extra = gamma * extra + step.delta * (gamma * before + 1 - gamma)
        chance, before = _up(chance * gamma), after
    total = before * put_in / alpha
    if total > ODDS:
        refuse("the bound of noisy slices says nothing here")
    wanted = math.log(CUT_SHARE * k) - math.log(slack.numerator) + math.log(slack.denominator) + 40.0
    most = min(n, math.ceil(wanted / -math.log1p(-(N // (noise + 1)) / N)))
    cut = (1 + total) * k * _power(alpha, most) if most < n else Fraction(0)
    needed = chance + extra + before * step.delta + cut
    if needed > slack:
        refuse("the bound of noisy slices needs more δ than it has")
    return Fraction(log_upper(total), NANO), needed


def _gamma(x: Fraction, y: Fraction, alpha: Fraction) -> Fraction:
    """At least Σ (1 − α)·α^j·(1 − c_{j−1}), c_j = min(1, (1 − x·(1 − c_{j−1}))/(y·α)), c_{−1} = 0."""
    if x >= 1:
        return Fraction(1)
    x_up, a_up = math.ceil(x * ONE), math.ceil(alpha * ONE)
    y_alpha, stop = math.ceil(y * alpha * ONE), math.ceil((1 - alpha) * ONE)
    left, power, total = ONE, ONE, 0
    for _ in range(ROUNDS):
        if left <= 0 or power <= 1:
            break
        total += -(-stop * power // ONE) * left
        c = (ONE - -(-x_up * left // ONE)) * ONE // y_alpha
        smaller = ONE - min(ONE, max(0, c))
        power = -(-power * a_up // ONE)
        if smaller == left:
            break
        left = smaller
    total += power * max(left, 0)
    return min(Fraction(1), Fraction(-(-total // ONE), ONE))


def _up(number: Fraction) -> Fraction:
    return Fraction(math.ceil(number * ONE), ONE)


def _power(alpha: Fraction, exponent: int) -> Fraction:
    found, base = Fraction(1), _up(alpha)
    while exponent:
        if exponent & 1:
            found = _up(found * base)
        base, exponent = _up(base * base), exponent >> 1
    return found
