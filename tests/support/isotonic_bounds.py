"""Bounds that the papers and the modules' proofs state for private isotonic fits, in the loss's own scale: what tests
and benchmarks hold the fits to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from label_dp.errors import InvalidEpsilon
from label_dp.privacy import Epsilon
from labels_party.companions.mechanisms.isotonic import constrained, depth
from labels_party.companions.mechanisms.isotonic.binned import BinnedMeans
from labels_party.companions.mechanisms.isotonic.binning import IntArray
from labels_party.companions.mechanisms.isotonic.constrained import levels_of
from labels_party.companions.mechanisms.isotonic.fit import FitDesign
from labels_party.companions.mechanisms.isotonic.fit import _complexity as complexity_of
from labels_party.companions.mechanisms.isotonic.fit import _most_options as most_options
from labels_party.companions.mechanisms.isotonic.grid import UNITS, LossGrid
from labels_party.companions.mechanisms.isotonic.posets import Poset
from labels_party.mechanisms.choice import rate_of


def excess_bound(grid: LossGrid, places: int, epsilon: Epsilon) -> float:
    """Bound the excess of the private map's expected loss, summed over all examples, over that of the best monotone
    function with the grid's outputs.

    In the loss's own scale. A choice among M points at rate c exceeds its least score by log(M)/c in expectation (Lemma
    7 of the paper; the uniform part of a choice adds 2⁻³² of the range), and the scores of a level's nodes are the
    least losses that remain for the next level, so the excesses add up (the paper's proof of Theorem 3). Raises
    InvalidEpsilon.
    """
    total = 0.0
    for share, level in zip(depth.shares(grid), depth.nodes_of(grid.size), strict=True):
        each = epsilon.fraction * share
        if not each:
            raise InvalidEpsilon("The bound of an isotonic regression needs an ε greater than zero.")
        rates = [rate_of(each, grid.sensitivity(first, stop)) for first, stop in level]
        total += sum(math.log(places) / float(rate) for rate in rates)
    return total * grid.unit


def poset_excess_bound(grid: LossGrid, poset: Poset, epsilon: Epsilon) -> float:
    """Bound the excess of the expected loss, summed over all examples, over that of the best monotone function with the
    grid's values.

    In the loss's own scale: the sum over levels of that of their choices (Lemma 7 of the paper). With values h apart
    the best such function loses up to n·h²/4 (squared) or n·h/2 (absolute) more than the best of all monotone ones:
    each of that one's values moves by h/2 at most, and means are the best values of its blocks.
    """
    parts = constrained.shares(epsilon.fraction, levels_of(grid.size), poset.size)
    total, ranges = 0.0, [(0, grid.size - 1)]
    for share in parts:
        worst = sorted((grid.sensitivity(a, b + 1) for a, b in ranges if b > a), reverse=True)
        rates: Sequence[Fraction] = [rate_of(share, each) for each in worst[: poset.size]]
        total += sum(math.log(poset.down_set_count) / float(rate) for rate in rates)
        ranges = [half for a, b in ranges for half in ((a, (a + b) // 2), ((a + b) // 2 + 1, b)) if b > a]
    return total * grid.unit


def shape_excess_bound(plan: FitDesign) -> float:
    """Bound the excess of the expected loss, summed over all examples, over that of the best function of the shape
    on this grid.

    In the loss's own scale. A choice of m options at rate c exceeds its least score by log(m)/c in expectation
    (Lemma 7 of the paper), the scores of a level's nodes are the least losses that remain for the next, so the
    excesses add up (the paper's proof of Theorem 3), and level t has min(2^t, `Shape.complexity`) nodes of 2^−t of
    the range at most.
    """
    complexity, total = complexity_of(plan.shape, plan.pieces, plan.knots), 0.0
    options = most_options(plan.shape, plan.cells, plan.knots, plan.values, plan.pieces)
    for level, share in enumerate(constrained.shares(plan.epsilon.fraction, levels_of(plan.values), complexity)):
        reach = (plan.values - 1) >> level
        widest = max(plan.sensitivity(low, low + reach) for low in range(plan.values - reach))
        total += min(1 << level, complexity) * math.log(max(2, options)) / float(rate_of(share, widest))
    return total * plan.grid.unit


def binned_excess_bound(plan: BinnedMeans, counts: IntArray) -> float:
    """Bound the excess of the expected squared error, summed over all examples, over that of the best monotone map
    that is constant on the cells.

    In squared label units; cells have `counts` int64[M] matched examples each. A cell of s uploaded scores, of
    which few belong to the batch, errs more, so no document states the bound: the sender of the scores may compute
    it under the assumption that all of them matched.

    The map g nearest to noisy means ȳ + z, and f* nearest to ȳ, have, weighted by the counts, ‖g − ȳ‖² − ‖f* − ȳ‖²
    ≤ 2⟨g − f*, z⟩ − ‖g − f*‖² ≤ ‖z‖², and E‖z‖² ≤ 2(R/ε)²·Σ 1/count for a range R. A cell without an example counts
    as one of the middle, from which f* may be R/2 away. Labels, and g's values, are rounded by R/(2·UNITS) each; on
    a block with constant g both roundings move its mean, so that √E‖z‖² grows by √n·R/UNITS at most.
    """
    weights = np.maximum(counts, 1)
    wide = float(plan.domain.value(plan.domain.k - 1) - plan.domain.value(0))
    noise = 2 * (wide / float(plan.epsilon)) ** 2 * float(np.sum(1 / weights))
    rounding = wide * math.sqrt(float(weights.sum())) / UNITS
    return (math.sqrt(noise) + rounding) ** 2 + wide**2 / 4 * int(np.sum(counts == 0))
