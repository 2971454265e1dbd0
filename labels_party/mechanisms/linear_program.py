"""ε-DP rows of small expected loss, unbiased or with a price on bias, as a linear program (HiGHS).

Extremal rows lie between q and e^ε·q, with q_v the least mass of output v over all labels (Kairouz, Oh & Viswanath
2016), which leaves g·(m + 1) variables for g knots and m outputs. Outputs are found by column generation: the dual
prices any real number as a further output, and those of negative price are added.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from label_dp.errors import InvalidMechanism
from labels_party.mechanisms.highs import dense, minimised

FloatArray = npt.NDArray[np.float64]

ACTIVE = 1e-8  # least mass below which an output is left out
ENOUGH = 5e-3  # relative gain below which no further round follows: each gains a quarter of the last
ROUNDS = 10
CANDIDATES = 3001  # outputs that the dual prices in each round
REACH = 1.5  # how far they extend, in units of the first outputs
WINDOW = 1.0  # a row may raise outputs within √2 times the window in which the last dual raises them
LARGE_ODDS, LARGE_WINDOW = 150.0, 0.25  # at large ε a row raises no outputs far from its label
CUTS = 0.5 ** np.arange(0, 11)  # tangents of the squared bias, in units of the largest


@dataclass(frozen=True)
class BiasPrice:
    """Price `rate`·Σ mass·bias² of a bias, which is balanced: Σ mass·bias = 0 and Σ told·bias = 0.

    `mass` and `told` are float64[g], distributed to the knots: the prior's mass, and the feature signal weighted by it.
    """

    rate: float
    mass: FloatArray
    told: FloatArray
    largest: float


@dataclass(frozen=True)
class ChannelRows:
    """Solution: `rows` float64[g, m] over `outputs` float64[m], each between `least` float64[m] and odds·`least`."""

    outputs: FloatArray
    least: FloatArray
    rows: FloatArray
    loss: float


Cost = Callable[[FloatArray], FloatArray]  # outputs float64[m] → expected losses float64[g, m], weighted with the prior


def best_rows(
    knots: FloatArray, cost: Cost, odds: float, start: FloatArray, price: BiasPrice | None = None
) -> ChannelRows:
    """Find rows at `knots` (float64[g], within ±1) of small cost at ratio `odds` > 1; `start` are the first outputs.

    Outputs are added until a round gains less than ENOUGH, so that the cost ends up to 2 % above the least. Unbiased
    without `price`. Raises InvalidMechanism if the solver finds none.
    """
    outputs, best = start, None
    near = LARGE_WINDOW if odds > LARGE_ODDS else np.inf
    raised = (np.abs(start - knots[:, None]) <= near) | (np.abs(start) > 1.0)
    reach = REACH * float(np.max(np.abs(start)))
    further = np.linspace(-reach, reach, CANDIDATES)
    for _ in range(ROUNDS):
        rows, level, slope = _solve(knots, cost(outputs), outputs, odds, raised, price)
        gained = best is None or rows.loss < best.loss - ENOUGH * abs(best.loss)
        if best is None or rows.loss < best.loss:
            best = rows
        if not gained:
            break
        reduced = cost(further) - level[:, None] - slope[:, None] * further
        worth = reduced.sum(axis=0) + (odds - 1.0) * np.minimum(reduced, 0.0).sum(axis=0)
        dips = (worth[1:-1] <= worth[:-2]) & (worth[1:-1] <= worth[2:]) & (worth[1:-1] < -1e-6 * abs(best.loss))
        if not dips.any():
            break
        outputs = np.unique(np.concatenate([best.outputs, further[1:-1][dips]]))
        priced = cost(outputs) - level[:, None] - slope[:, None] * outputs
        raised = priced < WINDOW * np.abs(np.minimum(priced.min(axis=1), reduced.min(axis=1)))[:, None]
    assert best is not None
    return best


def _solve(
    knots: FloatArray,
    cost: FloatArray,
    outputs: FloatArray,
    odds: float,
    raised: npt.NDArray[np.bool_],
    price: BiasPrice | None,
) -> tuple[ChannelRows, FloatArray, FloatArray]:
    """Solve for the best rows that exceed q only in `raised` [g, m]; returns the duals of the row sums and of the means
    too."""
    g, m = cost.shape
    unit = max(odds - 1.0, 1.0)  # of the least masses, so that their size matches the others'
    row, column = np.nonzero(raised)
    count, knots_at = row.size, np.arange(g)
    # variables: unit·q [m], the excess of rows over q [count]; with a price also bias [g] and its squares' bound [g]
    cells = m + np.arange(count)
    bias, square = m + count + knots_at, m + count + g + knots_at
    # rows: sums [g], means [g], with a price two balances, then limits on a row's excess [count], and tangents
    limits = 2 * g + (0 if price is None else 2) + np.arange(count)
    parts = [
        dense(np.vstack([np.ones((g, m)), np.tile(outputs, (g, 1))]) / unit),
        (row, cells, np.ones(count)),
        (g + row, cells, outputs[column]),
        (limits, column, np.full(count, (1.0 - odds) / unit)),
        (limits, cells, np.ones(count)),
    ]
    costs = np.concatenate([cost.sum(axis=0) / unit, cost[raised]])
    wanted, most, least = np.concatenate([np.ones(g), knots]), np.zeros(count), np.zeros(costs.size)
    if price is not None:
        at = np.concatenate([-CUTS[::-1], CUTS]) * price.largest
        knot, tangents = np.repeat(knots_at, at.size), 2 * g + 2 + count + np.arange(g * at.size)
        parts += [
            (g + knots_at, bias, -np.ones(g)),
            dense(np.stack([price.mass, price.told]), 2 * g, m + count),
            (tangents, bias[knot], np.tile(2.0 * at, g)),
            (tangents, square[knot], -np.ones(tangents.size)),
        ]
        costs = np.concatenate([costs, np.zeros(g), price.rate * price.mass])
        wanted, most = np.concatenate([wanted, np.zeros(2)]), np.concatenate([most, np.tile(at * at, g)])
        least = np.concatenate([least, np.full(g, -np.inf), np.zeros(g)])
    lower = np.concatenate([wanted, np.full(most.size, -np.inf)])
    solved = minimised(costs, least, lower, np.concatenate([wanted, most]), parts)
    if solved is None:
        raise InvalidMechanism("The solver found no randomizer for these labels at this ε; take a coarser domain.")
    masses = np.maximum(solved.x[:m] / unit, 0.0)
    rows = np.tile(masses, (g, 1))
    rows[raised] += solved.x[m : m + count]
    active = masses > ACTIVE / m
    best = ChannelRows(outputs[active], masses[active], rows[:, active], solved.value)
    return best, solved.duals[:g], solved.duals[g : 2 * g]
