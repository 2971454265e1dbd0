"""The cost of adaptively chosen slices, in exact arithmetic rounded up, by bounds that are proved here.

Setting. A data set of n elements; two are neighbours if one element is replaced. Step i orders the remaining elements
by any rule that depends on earlier outputs, takes the first elements, runs a private algorithm A_i on them, shows its
output and never uses them again. A_i is (ε_i, δ_i)-DP when an element of its slice is replaced, (ε⁺_i, δ_i)-DP when one
is added or removed. The blog text on Reorder–Slice–Compute (Cohen, Lyu, Nelson, Sarlós & Stemmer 2023) gives no
constants.

**Composition** (`in_order`). For slices of fixed size, or of a size drawn independently of the data: the remainders of
neighbours are R + w and R + w′ for some R, w, w′. After a step it is so again, and the slices are equal or differ by
one replacement. So the costs of steps whose order depends on the data add up (Dwork & Roth 2014, theorem 3.16); a step
that shows nothing is free. Steps in a fresh uniform order are cheaper: w and w′ can be given the same place, the
element is in exactly one of these slices or in none, and from its slice on the two runs are the same. Such a step costs
the *larger* of its own cost and of everything that comes after it (joint convexity), not the sum.

**Advanced composition** (`advanced`). k steps of (ε, 0) cost kε·tanh(ε/2) + ε·√(2k·ln(1/δ)) at δ: the privacy loss of
each lies in ±ε and has mean at most ε·tanh(ε/2) (Dwork & Rothblum 2016; Kairouz, Oh & Viswanath 2017), then Azuma.

**Noisy slices** (`noisy_slices`). A slice of m elements gets m + J, P[J = j] = (1 − α)·α^j, α rational. The cost does
not grow with the number of steps (except for the cost of truncating J). F_C(v) is the probability of a transcript v of
all steps on C; S^t are the first t elements of C, p the place of z among C + z, t₀ = max(m, p − 1), q = P[m + J ≥ t₀].

1. F_C ≤ e^(ε⁺)/α·F_{C+z}, plus mass δ_i once. Induction over steps: sizes t < t₀ give the same slice and leave C′ and
   C′ + z. A size t ≥ t₀ of C is set against t + 1 of C + z, which is α times as likely and gives S^t + z: both runs
   have the same remainder, and what follows is equal.
2. F_{C+z} ≤ ρ_h·F_C, plus mass γ_0⋯γ_h + d_h. Of C + z, sizes t < t₀ are set against themselves as before; nothing is
   paid. Of the rest, t = t₀ + j with weight g_j = q(1 − α)α^j, a part a′_j is set against the same size of C (slices
   and rests are equal or differ by a replacement: a *bad* event, after which the induction goes on with one bad event
   less), and a part b′_j of size t₀ + j + 1 against t₀ + j of C (equal rests: the end). C has g_j for both:
   x·a′_j + y·b′_j ≤ g_j with x = ρ_{h−1}·e^ε/ρ_h, y = e^(ε⁺)/ρ_h, a′_j + b′_{j−1} = g_j, b′_{−1} = 0. The b′ are taken
   as large as that allows: b′_j = c_j·g_{j+1}, c_j = min(1, (1 − x(1 − c_{j−1}))/(yα)), c_{−1} = 0. A bad event then
   has probability γ_h = Σ_j (1 − α)α^j·(1 − c_{j−1}) each time there may be one, whatever was shown before, and h + 1
   in a row have γ_0⋯γ_h, which is given to δ. It needs ρ_0 ≥ max(1, αe^(ε⁺)), ρ_{−1} = 0, ε ≥ ε⁺. δ_i add the mass
   d_h = γ_h·d_{h−1} + δ_i·(γ_h·ρ_{h−1} + 1 − γ_h), by carrying the mass of each comparison through the induction.
3. Neighbours are C + z and C + z′: by 2, then 1, ε = ln(ρ_h·e^(ε⁺)/α) and δ = γ_0⋯γ_h + d_h + ρ_h·δ_i.
4. J is truncated at T: the transcript differs with probability at most k·α^T, so δ grows by (1 + e^ε)·k·α^T; by nothing
   if T ≥ n, since a slice never has more than n elements.

The ρ are given, in whole numbers, and must not fall. The planner searches for them with floats, and a signed document
lists them, so that a reader computes the bound again without any search. A poor choice makes the bound larger, never
wrong.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from label_dp.errors import InvalidEpsilon, InvalidMechanism
from label_dp.privacy import ATTO, ZERO, Epsilon, EpsilonSplit, exp_bounds, log_upper

WORD = 1 << 64
BITS = 256  # of the fixed-point numbers in which a bound is computed
RHO_BITS = 40  # ρ are whole numbers of 2⁻⁴⁰
MOST_RHO = 32
LARGEST = exp_bounds(Fraction(64))[0]  # odds
ROUNDS = 1 << 16  # terms of a series, before its remainder is bounded
LARGEST_MEAN = 1 << 16
CUT_SHARE = 1 << 12  # truncating J takes at most that part of δ
COMPOSITION, ADVANCED, NOISY = BOUNDS = "composition", "advanced composition", "noisy slices"


@dataclass(frozen=True)
class Cost:
    """Exact (ε, δ)."""

    epsilon: Fraction
    delta: Fraction = Fraction(0)

    def split(self) -> EpsilonSplit:
        """Return the ledger's charge: nano-ε and atto-δ, both rounded up."""
        return EpsilonSplit(ZERO, ZERO, Epsilon.round_up(self.epsilon), math.ceil(self.delta * ATTO))


@dataclass(frozen=True)
class Step:
    """Algorithm of one step. `epsilon` and `delta` hold when an element of its slice is replaced.

    `shuffled`: its order is fresh and uniform, independent of the data. `added`: the ε when an element is added or
    removed; None: the algorithm is given exactly as many elements as requested (`rsc.Session` ensures it), and ε holds
    for both.
    """

    epsilon: Fraction
    delta: Fraction = Fraction(0)
    shuffled: bool = False
    added: Fraction | None = None

    def __post_init__(self) -> None:
        if self.epsilon < 0 or not 0 <= self.delta < 1 or not 0 <= (self.added or 0) <= self.epsilon:
            raise InvalidEpsilon("A step costs 0 ≤ ε⁺ ≤ ε and 0 ≤ δ < 1.")


@dataclass(frozen=True)
class SliceNoise:
    """Geometric noise J with stop probability ⌊2⁶⁴/(mean + 1)⌋/2⁶⁴, so that its mean is `mean` or slightly more."""

    mean: int

    def __post_init__(self) -> None:
        if not 1 <= self.mean <= LARGEST_MEAN:
            raise InvalidMechanism(f"The mean noise of a slice's size is 1 to {LARGEST_MEAN} elements.")

    @property
    def stop(self) -> int:
        """Stop probability out of 2⁶⁴."""
        return WORD // (self.mean + 1)

    @property
    def alpha(self) -> Fraction:
        return 1 - Fraction(self.stop, WORD)


def in_order(steps: Sequence[Step]) -> Cost:
    """Compose steps that are taken in this order, as this module says."""
    after = Cost(Fraction(0))
    for step in reversed(steps):
        if step.shuffled:
            after = Cost(max(step.epsilon, after.epsilon), max(step.delta, after.delta))
        else:
            after = Cost(step.epsilon + after.epsilon, step.delta + after.delta)
    return after


def alike(step: Step, k: int) -> Cost:
    """Compose k equal steps by `in_order`."""
    return Cost(step.epsilon, step.delta) if step.shuffled else Cost(k * step.epsilon, k * step.delta)


def advanced(steps: Sequence[Step], delta: Fraction) -> Cost:
    """Compose all steps by advanced composition at the largest ε among them; `delta` > 0 is its addition to theirs."""
    paying = [step for step in steps if step.epsilon or step.delta]
    if not paying:
        return Cost(Fraction(0))
    largest = Step(max(step.epsilon for step in paying))
    return advanced_alike(largest, len(paying), delta + sum((step.delta for step in paying), Fraction(0)), delta)


def advanced_alike(step: Step, k: int, needed: Fraction, delta: Fraction) -> Cost:
    """Compose k steps of the ε of `step`, at δ = `needed`, of which composition may add `delta` > 0."""
    upper = exp_upper(step.epsilon)
    mean = k * step.epsilon * (upper - 1) / (upper + 1)
    spread = 2 * k * log_upper(1 / delta).fraction
    scaled = math.isqrt(math.ceil(spread * (1 << 128))) + 1
    return Cost(mean + step.epsilon * Fraction(scaled, 1 << 64), needed)


def noisy_bound(step: Step, k: int, noise: SliceNoise, delta: Fraction, n: int, rho: Sequence[int]) -> Cost | None:
    """Bound k steps of cost at most `step` each on n elements, with `delta` to spend, by `rho` in units of 2⁻⁴⁰; None
    if the bound is vacuous.

    `Cost.delta` is what the bound needs, at most `delta`. Raises InvalidMechanism for ρ that fall, or too many.
    """
    if not 1 <= len(rho) <= MOST_RHO or any(b < a for a, b in itertools.pairwise(rho)) or rho[0] < 0:
        raise InvalidMechanism(f"The bound of noisy slices takes 1 to {MOST_RHO} numbers ρ that do not fall.")
    if delta <= 0:
        return None
    alpha = noise.alpha
    replaced, put_in = exp_upper(step.epsilon), exp_upper(step.epsilon if step.added is None else step.added)
    before, chance, extra = Fraction(0), Fraction(1), Fraction(0)
    for units in rho:
        following = max(Fraction(1), alpha * put_in, Fraction(units, 1 << RHO_BITS))
        gamma = _gamma(before * replaced / following, put_in / following, alpha)
        extra = gamma * extra + step.delta * (gamma * before + 1 - gamma)
        chance = _up(chance * gamma)
        before = following
    total = before * put_in / alpha
    if total > LARGEST:
        return None
    epsilon = log_upper(total).fraction
    most = cut_off(noise, delta, k, n)
    cut = (1 + total) * k * _power_upper(alpha, most) if most < n else Fraction(0)
    needed = chance + extra + before * step.delta + cut
    return Cost(epsilon, needed) if needed <= delta else None


def cut_off(noise: SliceNoise, delta: Fraction, k: int, n: int) -> int:
    """Compute T: no slice gets more than T extra elements; n if that needs no δ. From public facts alone."""
    if delta <= 0:
        return n
    exponent = math.log(CUT_SHARE * k) - math.log(delta.numerator) + math.log(delta.denominator) + 40.0
    return min(n, math.ceil(exponent / -math.log1p(-noise.stop / WORD)))


def exp_upper(x: Fraction) -> Fraction:
    """Return at least e^x. Raises InvalidEpsilon for x > 64."""
    if x > 64:
        raise InvalidEpsilon("A step's ε is at most 64.")
    return exp_bounds(x)[1]


def _up(value: Fraction) -> Fraction:
    """Round up slightly, to a short denominator."""
    return Fraction(math.ceil(value * (1 << BITS)), 1 << BITS)


def _power_upper(alpha: Fraction, exponent: int) -> Fraction:
    """Return at least α^exponent."""
    fraction, base = Fraction(1), _up(alpha)
    while exponent:
        if exponent & 1:
            fraction = _up(fraction * base)
        base, exponent = _up(base * base), exponent >> 1
    return fraction


def _gamma(x: Fraction, y: Fraction, alpha: Fraction) -> Fraction:
    """Return at least γ, in fixed point; 1 if x and y leave no room."""
    one = 1 << BITS
    if x >= 1:
        return Fraction(1)
    x_up, a_up = math.ceil(x * one), math.ceil(alpha * one)
    y_alpha = math.ceil(y * alpha * one)
    stop = math.ceil((1 - alpha) * one)
    left, power, total = one, one, 0  # 1 − c_{j−1}, α^j, Σ
    for _ in range(ROUNDS):
        if left <= 0 or power <= 1:
            break
        total += -(-stop * power // one) * left
        c = (one - -(-x_up * left // one)) * one // y_alpha
        smaller = one - min(one, max(0, c))
        power = -(-power * a_up // one)
        if smaller == left:
            break
        left = smaller
    total += power * max(left, 0)  # c never falls, so the rest of the series is at most α^j·(1 − c)
    return min(Fraction(1), Fraction(-(-total // one), one))
