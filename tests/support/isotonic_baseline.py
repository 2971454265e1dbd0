"""The paper's baseline: the exponential mechanism on all monotone functions of a grid at once (Ghazi, Kamath, Kumar &
Manurangsi 2022, Appendix A), drawn exactly.

Wanted: P[f] ∝ e^(−c·L(f)) for every monotone f: m elements → V values, with L(f) = Σ_x ℓ_x(f(x)) in whole numbers.
Drawn: P[f] ∝ Π_x W_x(f(x)) exactly, with whole numbers W_x(v) = ⌊2^K·e^(−c(ℓ_x(v) − min ℓ_x))⌋.

How. A monotone f is a walk from the empty down-set to the whole order: for each value in turn it adds the elements
of that value, in an order in which each set on the way is a down-set. Sums of the products of weights over all walks
to each down-set follow from each other (a chain has m + 1 of them), in integers without rounding. One uniform integer
below the last sum is the rank of a walk, and dividing it back gives f.

Guarantee. ε-DP in the labels (replace-one): replacing a label moves the difference of the losses of two functions by
at most 2Δ (`LossGrid.sensitivity` of all values), so ideal weights at `rate_of(ε, Δ)` leave SLACK of ε for rounding.
Factors that the functions share, min ℓ_x among them, cancel. Only one row of weights differs between neighbours; its
weights are at least 2⁹⁵, each within e^(±2⁻⁹⁰) of the ideal one, so probabilities are within e^(±2⁻⁸⁸); the
uniform integer has 64 bits more than the sum, which leaves probabilities within e^(±2⁻⁶³). Together far below SLACK.

Work O(V·N·width) products of integers of up to about 96·m + 0.72·ε·n bits. How long these are depends on public numbers
but for leading zeros of partial sums, which a clock close enough might tell from others: this is a baseline to compare
with, and no part of the service.
"""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import maximum_bipartite_matching

from label_dp.companions.maps.monotone import MonotoneMap
from label_dp.domain import Domain
from label_dp.errors import InvalidEpsilon, InvalidMechanism
from label_dp.losses import Loss
from label_dp.privacy import Epsilon
from labels_party.companions.mechanisms.isotonic.cells import Cells, cell_losses
from labels_party.companions.mechanisms.isotonic.grid import LossGrid, TableGrid, loss_grid
from labels_party.companions.mechanisms.isotonic.posets import Poset
from labels_party.companions.mechanisms.isotonic.total_order import AnyInts, OrderedExamples
from labels_party.mechanisms.choice import rate_of, uniform_integer
from labels_party.mechanisms.entropy import Keystream, Uint64Source

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

PRECISE = 96  # bits of the smallest weight
DIGITS = 50
MAX_BITS = 1 << 21  # of a product of weights
MAX_PRODUCTS = 1 << 20
MAX_VALUES = 1 << 8
CELLS = 64


def functions_bits(elements: int, values: int) -> int:
    """Bound the bits of the number of functions."""
    return elements * max(1, math.ceil(math.log2(values + 1)))


def baseline(
    x: AnyInts,
    y_positions: AnyInts,
    domain: Domain,
    x_size: int,
    epsilon: Epsilon,
    loss: str | Loss = "squared",
    *,
    cells: int = CELLS,
    values: int | None = None,
    source: Uint64Source | None = None,
) -> MonotoneMap:
    """A monotone map on at most `cells` public cells of about equally many examples each, with about `values` values
    (None: √(ε·n/log m), as the paper has it). Guarantee: this module; n and x are public.

    Raises InvalidInput, InvalidEpsilon, InvalidLoss, InvalidMechanism (too large), RandomnessUnavailable.
    """
    examples = OrderedExamples.checked(x, y_positions, domain, x_size)
    made = Cells.by_points(examples, cells)
    poset = Poset.chain(made.count)
    grid = loss_grid(domain, loss, _values(values, examples.n, epsilon, poset))
    losses = cell_losses(examples, made, grid)
    counts = np.diff(np.searchsorted(np.repeat(examples.xs, np.diff(examples.ends)), made.edges))
    return made.map_of(grid.outputs[draw_monotone(poset, losses, counts, domain, grid, epsilon, source or Keystream())])


def baseline_poset(
    elements: AnyInts,
    y_positions: AnyInts,
    domain: Domain,
    poset: Poset,
    epsilon: Epsilon,
    loss: str | Loss = "squared",
    *,
    values: int | None = None,
    source: Uint64Source | None = None,
) -> FloatArray:
    """float64[m]: the same for the elements of a partial order (`values` None: √(ε·n/(width·log m)))."""
    examples = OrderedExamples.checked(elements, y_positions, domain, poset.size)
    grid = loss_grid(domain, loss, _values(values, examples.n, epsilon, poset))
    losses = cell_losses(examples, Cells.even(poset.size, poset.size), grid)
    counts = np.bincount(np.asarray(elements), minlength=poset.size)
    return grid.outputs[draw_monotone(poset, losses, counts, domain, grid, epsilon, source or Keystream())]


def draw_monotone(
    poset: Poset,
    losses: IntArray,
    counts: IntArray,
    domain: Domain,
    grid: LossGrid,
    epsilon: Epsilon,
    source: Uint64Source,
) -> IntArray:
    """int64[m]: values 0 … V − 1 of a monotone function, P[f] ∝ e^(−c·Σ losses[x, f(x)]) as this module says.

    `losses` int64[m, V] of `counts` int64[m] (public) examples at each element. Raises InvalidMechanism (too large).
    """
    rate = rate_of(epsilon.fraction, grid.sensitivity(0, grid.size))
    bits = [PRECISE + _halvings(rate, int(count) * widest(domain, grid)) for count in counts]
    length = sum(bits) + functions_bits(poset.size, grid.size)
    if length > MAX_BITS:
        raise InvalidMechanism("The baseline takes about 10⁶ examples times ε at most; take fewer, or fewer cells.")
    sets = poset.down_sets
    if grid.size * sum(into.size for into, _ in sets.moves) > MAX_PRODUCTS:
        raise InvalidMechanism("The baseline has too many values times down-sets here; take fewer of either.")
    weights = [row_weights(row, rate, size) for row, size in zip(losses, bits, strict=True)]
    moves = [(x, list(zip(*(part.tolist() for part in sets.moves[x]), strict=True))) for x in poset.sequence.tolist()]
    sums = [0] * sets.count
    sums[0] = 1
    for v in range(grid.size):
        for x, pairs in moves:
            weight = weights[x][v]
            for into, of in pairs:
                sums[into] += weight * sums[of]
    rank, at = uniform_integer(sums[-1], length, source), sets.count - 1
    found = np.zeros(poset.size, np.int64)
    for v in reversed(range(grid.size)):
        for x, pairs in reversed(moves):
            weight, came = weights[x][v], -1
            for into, of in pairs:
                sums[into] -= weight * sums[of]  # as it was before this element could take this value
                came = of if into == at else came
            if came >= 0 and rank >= sums[at]:
                rank, at = (rank - sums[at]) // weight, came
                found[x] = v
    return found


def row_weights(losses: IntArray, rate: Fraction, bits: int) -> list[int]:
    """int[V]: ⌊2^bits·e^(−rate·(losses − min))⌋, in relative terms within 2⁻⁹⁰; `bits` are enough for 2⁹⁵ each."""
    return [_weight(loss, rate, bits) for loss in (losses - losses.min()).tolist()]


@lru_cache(maxsize=1 << 12)
def _weight(loss: int, rate: Fraction, bits: int) -> int:
    with localcontext() as context:
        context.prec = DIGITS
        half = Decimal(2).ln()
        exponent = Decimal(rate.numerator * loss) / Decimal(rate.denominator)
        halvings = int(exponent / half)
        rest = int((half * halvings - exponent).exp() * (1 << 2 * PRECISE))
        return (rest << bits >> halvings) >> 2 * PRECISE


def widest(domain: Domain, grid: LossGrid) -> int:
    """The most by which the losses of two values differ at one label; of convex losses, at an end of the domain."""
    labels = np.arange(domain.k) if isinstance(grid, TableGrid) else np.array([0, domain.k - 1])
    prepared = grid.prepared(labels)
    costs = np.stack([grid.costs(v, prepared) for v in range(grid.size)])
    return int(np.ptp(costs, axis=0).max())


def baseline_excess_bound(functions: int, grid: LossGrid, epsilon: Epsilon) -> float:
    """The most by which the expected loss exceeds that of the best function of the grid, summed over all examples, in
    the loss's own scale (Lemma 7 of the paper), for that many functions."""
    return math.log(functions) / float(rate_of(epsilon.fraction, grid.sensitivity(0, grid.size))) * grid.unit


def width(poset: Poset) -> int:
    """The most elements of which none is below another (Dilworth: m less the largest matching of a < b)."""
    matched = maximum_bipartite_matching(csr_matrix(poset.below), perm_type="column")
    return poset.size - int(np.count_nonzero(matched >= 0))


def _halvings(rate: Fraction, loss: int) -> int:
    """At least rate·loss/log 2, in whole numbers."""
    return math.ceil(rate * loss * Fraction(1443, 1000)) + 1


def _values(values: int | None, n: int, epsilon: Epsilon, poset: Poset) -> int:
    if not epsilon:
        raise InvalidEpsilon("The exponential mechanism needs an ε greater than zero.")
    if values is None:
        ratio = float(epsilon) * n / (width(poset) * math.log(poset.size + 1))
        return max(2, min(MAX_VALUES, round(math.sqrt(ratio))))
    if type(values) is not int or not 2 <= values <= MAX_VALUES:
        raise InvalidMechanism(f"'values' is a whole number from 2 to {MAX_VALUES}.")
    return values
