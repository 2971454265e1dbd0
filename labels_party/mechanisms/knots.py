"""Channels of knots: the choice of knots, and float rows into exact integer weights."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from label_dp.channels.base import FloatArray, IntArray, N
from label_dp.channels.knots import KnotsChannel
from label_dp.domain import Domain
from label_dp.errors import InvalidEpsilon
from label_dp.privacy import Epsilon

SLACK = 1e-6  # relative: margin of the program's odds below e^ε, half of it on either side
ATOM = 0.02  # labels of more mass become knots
REPAIRS = 12
MEAN_BITS = 40  # a mean is exact to 2⁻⁴⁰ of the outputs' span at least, and nearly always to 2⁻⁶³


def place_knots(labels: FloatArray, prior: FloatArray, count: int) -> IntArray:
    """Place knots int64[g], g about `count` or k. All labels if they are few; else the ends, labels with much mass of
    their own, and the rest half evenly over the range, half by the cube root of the prior's density."""
    k = labels.size
    if k <= count:
        return np.arange(k)
    widths = np.diff(labels) / (labels[-1] - labels[0])
    atoms = np.flatnonzero(prior > ATOM)
    spread = np.where(prior > ATOM, 0.0, prior)
    density = np.cbrt((spread[1:] + spread[:-1]) / widths)
    total = float(np.sum(density * widths))
    share = widths * (0.5 + 0.5 * density / total) if total > 0 else widths
    reached = np.concatenate([[0.0], np.cumsum(share)])
    targets = np.linspace(0.0, reached[-1], max(count - atoms.size, 2))
    return np.unique(np.concatenate([[0, k - 1], atoms, np.searchsorted(reached, targets).clip(0, k - 1)]))


def shared_out(labels: FloatArray, knots: IntArray, what: FloatArray) -> FloatArray:
    """Sum what_y·(y's share in the knot) over labels rounded to the adjacent knots: float64[g]."""
    at = labels[knots]
    lower = np.minimum(np.searchsorted(at, labels, side="right") - 1, knots.size - 2)
    upper = (labels - at[lower]) / (at[lower + 1] - at[lower])
    sums = np.bincount(lower, what * (1.0 - upper), knots.size) + np.bincount(lower + 1, what * upper, knots.size)
    return np.asarray(sums, np.float64)


def solvable_odds(epsilon: Epsilon) -> float:
    """Return the ratio to solve for, so that rows rounded to integers stay inside e^ε."""
    return float(epsilon.exp_lower()) * (1.0 - 2 * SLACK)


def exact_channel(
    domain: Domain, knots: IntArray, outputs: FloatArray, rows: FloatArray, means: list[Fraction], epsilon: Epsilon
) -> KnotsChannel:
    """Build the channel of integer weights next to float `rows` [g, m] whose E[z | knot] is `means`, to 2⁻⁶⁴ of the
    span.

    The rows' odds must be at most `solvable_odds(epsilon)`, their sums and means exact to about 10⁻⁸. ε is proved on
    the result. Raises InvalidEpsilon if the slack does not suffice.
    """
    odds = epsilon.exp_lower()
    least = [max(1, int(q * (1.0 - SLACK) * N)) for q in rows.min(axis=0).tolist()]
    most = [lo * odds.numerator // odds.denominator for lo in least]
    exact = [Fraction(v) for v in outputs.tolist()]
    scale = math.lcm(*(v.denominator for v in exact))
    values = [int(v * scale) for v in exact]
    weights = [
        _repaired(row.tolist(), least, most, values, mean * scale * N, outputs)
        for row, mean in zip(rows, means, strict=True)
    ]
    channel = KnotsChannel(domain=domain, knots=knots, outputs=outputs, weights=np.array(weights, dtype=np.uint64))
    if not channel.satisfies(epsilon):
        raise InvalidEpsilon("The rounded weights of the randomizer exceed this ε.")
    return channel


def _repaired(
    row: list[float], least: list[int], most: list[int], values: list[int], target: Fraction, outputs: FloatArray
) -> list[int]:
    """Return weights next to `row` that sum to N, lie within their bounds and have Σ w·value next to `target`, to
    within one unit of weight."""
    w = [min(max(int(p * N), lo), hi) for p, lo, hi in zip(row, least, most, strict=True)]
    for _ in range(REPAIRS):
        missing = N - sum(w)
        if missing == 0:
            break
        room = [(hi - x if missing > 0 else x - lo) for x, lo, hi in zip(w, least, most, strict=True)]
        j = max(range(len(w)), key=room.__getitem__)
        w[j] += min(room[j], missing) if missing > 0 else -min(room[j], -missing)
    for _ in range(REPAIRS):
        missing_mean = target - sum(x * v for x, v in zip(w, values, strict=True))
        up = np.array([hi - x for x, hi in zip(w, most, strict=True)], dtype=np.float64)
        down = np.array([x - lo for x, lo in zip(w, least, strict=True)], dtype=np.float64)
        away = outputs[:, None] - outputs[None, :] if missing_mean > 0 else outputs[None, :] - outputs[:, None]
        able = np.minimum(up[:, None], down[None, :]) * np.maximum(away, 0.0)
        i, j = divmod(int(np.argmax(able)), len(w))
        if able[i, j] <= 0.0:
            break
        moved = min(int(missing_mean / (values[i] - values[j]) + Fraction(1, 2)), most[i] - w[i], w[j] - least[j])
        if moved <= 0:
            break
        w[i] += moved
        w[j] -= moved
    missing_mean = target - sum(x * v for x, v in zip(w, values, strict=True))
    if abs(missing_mean) > (values[-1] - values[0]) * (N >> MEAN_BITS):
        raise InvalidEpsilon("The means of the randomizer could not be made exact at this ε; take a larger one.")
    if sum(w) != N or any(not lo <= x <= hi for x, lo, hi in zip(w, least, most, strict=True)):
        raise InvalidEpsilon("The rows of the randomizer could not be made exact at this ε; take a larger one.")
    return w


def exact_labels(domain: Domain, positions: IntArray) -> list[Fraction]:
    """Return the labels at `positions` as fractions."""
    denominator, ints = domain.lattice
    if isinstance(ints, list):
        return [Fraction(ints[i], denominator) for i in positions.tolist()]
    return [Fraction(ints[0] + ints[1] * i, denominator) for i in positions.tolist()]
