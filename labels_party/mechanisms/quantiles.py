"""Private quantiles of labels over a public range, by the exponential mechanism on ranks; pure ε, drawn in integers.

Of n labels, the point v has rank loss max(0, #{y < v} − q·n, q·n − #{y ≤ v}) for the quantile q: the number of labels
by which v misses it. It is drawn with P[v] ∝ e^(−c·loss) (McSherry & Talwar 2007; Smith 2011 for quantiles), from
intervals of points that share a loss, so that a range of 2⁶⁴ points is never listed. Labels neighbour by *replacing
one*, n is public: both counts move by at most 1, hence the loss too, and a draw is 2c-DP (if labels are added or
removed, q·n moves instead, by less). With probability 1 − β the loss of a draw is at most ln(range/β)/c.

Several quantiles share ε in one of two ways. `plan_quantiles` takes, from public facts alone, the one of the larger c
(of equals the first; the second from three quantiles on, if the larger range has less than 2⁶³ points and every node
can expect a label):

- **one budget each**: m draws on all labels, by sequential composition 2cm = ε. Answers are put in order afterwards.
- **recursive** (Kaplan, Schnapp & Stemmer 2022): the middle quantile splits range and labels, each half has the
  quantiles on its side, at levels l = 1, 2, …. Equal labels are distinguished by their number among their equals, so
  that a set of labels *is* a set of distinct points (y, 0), (y, 1), … of a range n times as large; replacing a label
  takes one point away and adds one. A node has the labels between the answers around it, n′ of them, and draws the
  share q′ = (q − q_left)/(q_right − q_left) of those: its loss, with q′·n′ for q·n, moves by at most max(q′, 1 − q′)
  when a label is added or removed, and by at most 1 when one is replaced. Given the answers above, nodes of a level
  have labels of their own, so a replaced label touches one node (2c) or two (2c·(max(q′₁, 1 − q′₁) + max(q′₂, 1 − q′₂))
  at most), and the level costs the largest of these, w_l·c. Levels compose sequentially: c·Σ w_l = ε. For equal shares
  w_l = 2, so m quantiles cost like log₂(m + 1) instead of m, less a range n times as large.

Rounding in every draw is paid for by `choice.SLACK`, twice a level if two nodes may be touched.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from label_dp.errors import InvalidEpsilon, InvalidInput
from label_dp.numbers import decimal_of
from label_dp.privacy import Epsilon
from labels_party.mechanisms.choice import LARGEST_SIZE, SLACK, choose, choose_point, rate_of
from labels_party.mechanisms.entropy import Keystream, Uint64Source

Points = npt.NDArray[np.uint64]
Counts = npt.NDArray[np.int64]

EACH, RECURSIVE = "one budget each", "recursive"
MOST = 1024  # quantiles at once
PLACES = 9  # decimals of a quantile
STEPS = 32  # of a scale grid, for each factor of e
BETA = Fraction(1, 20)  # of the error bound that a plan states
LARGEST_LOSS = 1 << 61


@dataclass(frozen=True)
class QuantileStep:
    """Step of the recursion: quantile `at`, between the answers to `left` and `right` (None: the range's ends)."""

    at: int
    left: int | None
    right: int | None
    share: Fraction


@dataclass(frozen=True)
class QuantilePlan:
    """Division of ε among quantiles, from public facts. `rate` is c, per rank.

    With probability 19/20 every answer misses its quantile by at most `rank_error` labels.
    """

    wanted: tuple[Fraction, ...]
    method: str
    rate: Fraction
    rank_error: float


def parse_quantile(value: str | int | float | Decimal) -> Fraction:
    """Parse an exact quantile strictly between 0 and 1, of at most 9 decimals. Raises InvalidInput.

    0 and 1 would be the smallest and the largest label, and every point beyond those misses them by one rank at most: a
    draw could lie anywhere outside, at any ε, so they are refused.
    """
    try:
        number = decimal_of(value)
        if not -PLACES <= number.adjusted() <= 1:
            raise ValueError
        exact = Fraction(number)
    except (ArithmeticError, ValueError, TypeError):
        raise InvalidInput(
            f"A quantile is a decimal number between 0 and 1 of at most {PLACES} places, such as 0.95."
        ) from None
    if not 0 < exact < 1:
        raise InvalidInput(
            "A quantile lies strictly between 0 and 1: the smallest and the largest label cannot be bought at any ε. "
            "Leave the range at its public end instead, or ask for a quantile such as 0.99."
        )
    if 10**PLACES % exact.denominator:
        raise InvalidInput(f"A quantile has at most {PLACES} decimals; round it.")
    return exact


def plan_quantiles(
    wanted: Sequence[str | float | Decimal],
    epsilon: Epsilon,
    n: int,
    size: int,
    *,
    method: str | None = None,
) -> QuantilePlan:
    """Plan the division of `epsilon` among strictly increasing quantiles of `n` labels in a range of `size` points.

    Both n and size are public. `method` requests one of the two ways. Raises InvalidInput (quantiles, n, size, an
    impossible method), InvalidEpsilon (too small for so many).
    """
    exact = tuple(parse_quantile(quantile) for quantile in wanted)
    if not 1 <= len(exact) <= MOST:
        raise InvalidInput(f"Ask for 1 to {MOST} quantiles at once.")
    if any(a >= b for a, b in itertools.pairwise(exact)):
        raise InvalidInput("Quantiles are given in increasing order, each once.")
    if n < 1:
        raise InvalidInput("There are no labels to take a quantile of.")
    if not 1 <= size <= 1 << LARGEST_SIZE:
        raise InvalidInput("A range has 1 to 2⁶⁴ points.")
    levels = recursion(exact)
    shares = [*exact, *(node.share for level in levels for node in level)]  # of both ways
    if n * max(share.denominator for share in shares) >= LARGEST_LOSS:
        raise InvalidInput("These quantiles have too many decimals for so many labels; round them.")
    if method not in (None, EACH, RECURSIVE) or (method == RECURSIVE and size * n >= 1 << (LARGEST_SIZE - 1)):
        raise InvalidInput("This way of sharing ε is not known, or the range is too large for it.")
    plans = []
    if method != RECURSIVE:
        rate = rate_of(epsilon.fraction, 1, len(exact))
        plans.append(QuantilePlan(exact, EACH, rate, _reach(size, len(exact)) / float(rate)))
    if method == RECURSIVE or (method is None and size * n < 1 << (LARGEST_SIZE - 1) and _apart(exact) * n >= 1):
        rate = recursive_rate(levels, epsilon)
        if rate > 0:
            error = _recursive_error(levels, _reach(size * n, len(exact)) / float(rate))
            plans.append(QuantilePlan(exact, RECURSIVE, rate, error))
    if not plans:
        raise InvalidEpsilon("ε is too small for so many quantiles.")
    return max(plans, key=lambda plan: plan.rate)


def recursion(wanted: Sequence[Fraction]) -> list[list[QuantileStep]]:
    """List the nodes of every level, the middle one of all first."""
    levels: list[list[QuantileStep]] = []
    todo = [(0, len(wanted), 0)]
    while todo:
        start, stop, depth = todo.pop()
        if start >= stop:
            continue
        at = (start + stop) // 2
        left, right = (start - 1 if start else None), (stop if stop < len(wanted) else None)
        low = Fraction(0) if left is None else wanted[left]
        high = Fraction(1) if right is None else wanted[right]
        if depth == len(levels):
            levels.append([])
        levels[depth].append(QuantileStep(at, left, right, (wanted[at] - low) / (high - low)))
        todo += [(start, at, depth + 1), (at + 1, stop, depth + 1)]
    return levels


def level_cost(level: Sequence[QuantileStep]) -> Fraction:
    """Compute w: replacing one label moves the log-probability of all answers of a level by at most w·c."""
    moved = sorted((max(node.share, 1 - node.share) for node in level), reverse=True)
    return max(Fraction(2), 2 * sum(moved[:2], Fraction(0)))


def recursive_rate(levels: Sequence[Sequence[QuantileStep]], epsilon: Epsilon) -> Fraction:
    """Compute the c, per rank, for which all levels together are ε-DP with their rounding; at most 0 if ε is too
    small."""
    cost = sum((level_cost(level) for level in levels), Fraction(0))
    return (epsilon.fraction - 2 * SLACK * len(levels)) / cost


def quantiles(labels: npt.NDArray[Any], size: int, plan: QuantilePlan, source: Uint64Source | None = None) -> list[int]:
    """Draw one point 0 … size − 1 for each quantile of `plan`, not decreasing: ε-DP under replacing one label.

    `labels` are points of the range (integers [n], in any order; n as planned); `size` at most 2⁶⁴. O(n log n), and
    O(n) for each draw, whatever the size. The time depends on how many labels are equal; that of `histogram_quantiles`
    does not. Raises InvalidInput, RandomnessUnavailable.
    """
    if labels.ndim != 1 or labels.size < 1 or not np.issubdtype(labels.dtype, np.integer):
        raise InvalidInput("Labels are a column of at least one whole number.")
    if int(labels.min()) < 0 or int(labels.max()) >= size:
        raise InvalidInput("A label lies outside the range of points.")
    stream = Keystream() if source is None else source
    points = np.sort(labels.astype(np.uint64))
    if plan.method == RECURSIVE:
        return _recursive(points, size, plan, stream)
    distinct, first = np.unique(points, return_index=True)
    upto = np.append(first[1:], points.size).astype(np.int64)
    answers = [_draw(distinct, upto, (0, size - 1), share, plan.rate, stream) for share in plan.wanted]
    return sorted(answers)


def histogram_quantiles(counts: Counts, plan: QuantilePlan, source: Uint64Source | None = None) -> list[int]:
    """Draw as `quantiles`, from the number of labels at each of the k points, int64[k]. The work depends on k and n
    alone.

    Always one budget each. Raises InvalidInput, RandomnessUnavailable.
    """
    if counts.ndim != 1 or counts.size < 1 or int(counts.min()) < 0 or int(counts.sum()) < 1:
        raise InvalidInput("A histogram has at least one point and one label.")
    upto = np.cumsum(counts)
    return candidate_quantiles(upto - counts, upto, int(upto[-1]), plan, source)


def candidate_quantiles(
    below: Counts, upto: Counts, n: int, plan: QuantilePlan, source: Uint64Source | None = None
) -> list[int]:
    """Draw numbers of public candidates, not decreasing, from how many of n labels lie below each and up to it
    (int64[m], m as planned).

    With well-placed candidates fewer of them are as good: the loss is the distance of the best one from its quantile.
    One budget each. Raises InvalidInput, RandomnessUnavailable.
    """
    if plan.method != EACH:
        raise InvalidInput("Quantiles among candidates have one budget each.")
    stream = Keystream() if source is None else source
    numbers = [
        choose(rank_losses(below, upto, share, n), plan.rate / share.denominator, stream) for share in plan.wanted
    ]
    return sorted(numbers)


def scale_grid(k: int, zero: int) -> Counts:
    """Return rising positions int64[m] among k: all of them near the position `zero`, then each a thirty-second farther
    from it than the one before, with both ends; m is about 64 + 32·ln(k/64) on each side.

    For labels of unknown scale in a range that is far too wide: uniform among these is uniform on a logarithmic scale,
    so that the empty part of the range has no more candidates than the part with the labels.
    """
    away = [0]
    while away[-1] < k:
        away.append(away[-1] + max(1, away[-1] // STEPS))
    distances = np.array(away, np.int64)
    positions = np.concatenate([zero - distances, zero + distances, np.array([0, k - 1], np.int64)])
    return np.unique(positions[(positions >= 0) & (positions < k)])


def rank_losses(below: Counts, upto: Counts, share: Fraction, n: int) -> Counts:
    """Compute the rank loss of points with so many labels below and up to them, times the denominator of `share`:
    int64[m]."""
    target, each = share.numerator * n, share.denominator
    return np.maximum(np.maximum(each * below - target, target - each * upto), 0)


def _draw(
    points: Points, upto: Counts, ends: tuple[int, int], share: Fraction, rate: Fraction, source: Uint64Source
) -> int:
    """Draw a point of the range `ends` (both included), for the share of the labels inside it.

    `points` are distinct and rising; `upto` is the number of labels up to and including each.
    """
    low, high = ends
    m = points.size
    n = int(upto[-1]) if m else 0
    before = np.append(np.zeros(1, np.int64), upto)  # labels below each point, and below the end
    starts, sizes = np.empty(2 * m + 1, np.uint64), np.empty(2 * m + 1, np.uint64)
    edges = np.concatenate([np.array([low], np.uint64), points + np.uint64(1)])  # wraps at 2⁶⁴, beyond the last point
    starts[0::2], starts[1::2] = edges, points
    sizes[1::2] = 1
    sizes[0:-1:2] = points - edges[:-1]
    sizes[-1] = high + 1 - int(edges[-1]) if not m or int(points[-1]) < high else 0
    below, including = np.empty(2 * m + 1, np.int64), np.empty(2 * m + 1, np.int64)
    below[0::2], below[1::2] = before, before[:-1]
    including[0::2], including[1::2] = before, upto
    losses = rank_losses(below, including, share, n)
    return choose_point(losses, starts.tolist(), sizes.tolist(), rate / share.denominator, source)


def _recursive(points: Points, size: int, plan: QuantilePlan, source: Uint64Source) -> list[int]:
    n = points.size
    first = np.searchsorted(points, points, side="left")
    told_apart = points * np.uint64(n) + (np.arange(n) - first).astype(np.uint64)
    answers: dict[int | None, tuple[int, int]] = {}  # quantile → (point, labels up to it)
    for level in recursion(plan.wanted):
        for node in level:
            low, start = answers[node.left] if node.left is not None else (0, 0)
            high, stop = answers[node.right] if node.right is not None else (size * n - 1, n)
            inside = told_apart[start:stop]
            upto = np.arange(1, inside.size + 1)
            point = _draw(inside, upto, (low, high), node.share, plan.rate, source)
            answers[node.at] = point, int(np.searchsorted(told_apart, point, side="right"))
    return [answers[at][0] // n for at in range(len(plan.wanted))]


def _apart(shares: Sequence[Fraction]) -> Fraction:
    """Return the least share of the labels between neighbouring quantiles, and outside of them."""
    return min(b - a for a, b in itertools.pairwise([Fraction(0), *shares, Fraction(1)]))


def _reach(size: int, draws: int) -> float:
    """Return ln(size/β) for each of so many draws: c times the loss that none of them exceeds, except with probability
    β."""
    return math.log(size) + math.log(draws / BETA)


def _recursive_error(levels: Sequence[Sequence[QuantileStep]], each: float) -> float:
    """Return the largest rank error if every draw misses by `each` at most: a node inherits the errors around it."""
    errors: dict[int | None, float] = {None: 0.0}
    for level in levels:
        for node in level:
            share = float(node.share)
            errors[node.at] = (1.0 - share) * errors[node.left] + share * errors[node.right] + each
    return max(errors.values())
