"""Private isotonic regression on partial orders (Ghazi, Kamath, Kumar & Manurangsi 2022, Algorithm 3)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from label_dp.domain import Domain
from label_dp.errors import InvalidEpsilon, InvalidInput, InvalidMechanism
from label_dp.losses import Loss
from label_dp.privacy import Epsilon
from labels_party.companions.mechanisms.isotonic.cells import Cells, cell_losses
from labels_party.companions.mechanisms.isotonic.constrained import MAX_LEVELS, NEVER, default_values, levels_of, shares
from labels_party.companions.mechanisms.isotonic.fit import MAX_ROWS
from labels_party.companions.mechanisms.isotonic.grid import LossGrid, loss_grid
from labels_party.companions.mechanisms.isotonic.posets import BoolArray, DownSets, Poset
from labels_party.companions.mechanisms.isotonic.total_order import AnyInts, OrderedExamples
from labels_party.mechanisms.choice import choose, rate_of
from labels_party.mechanisms.entropy import Keystream, Uint64Source

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Region:
    """Elements of down-set number `upper` without those of `lower`, with values `low` … `high`."""

    lower: int
    upper: int
    low: int
    high: int

    @property
    def middle(self) -> int:
        return (self.low + self.high) // 2


def isotonic_poset(
    elements: AnyInts,
    y_positions: AnyInts,
    domain: Domain,
    poset: Poset,
    epsilon: Epsilon,
    loss: str | Loss = "squared",
    *,
    values: int | None = None,
    places: AnyInts | IntArray | None = None,
    source: Uint64Source | None = None,
) -> FloatArray:
    """Draw a monotone function on the m elements of a partial order, of small empirical loss: float64[m].

    ε-DP in the labels (replace-one; n, the order and the elements of the examples are public).

    `elements` int[n] in 0 … m − 1, `y_positions` int[n]: positions of the labels in `domain`. `values`: about how many
    equally spaced values the function may have (None: a public rule). `places`: elements; with them there may be no
    example.

    An antichain of a region, the largest elements at which the function is low, is equivalent to the down-set below it:
    level t chooses one for each of its regions among all down-sets of the region, by the least loss of the monotone
    functions that are low on it and high elsewhere.

    Guarantee. ε-DP, as module `constrained` says: all these functions have values in the region's range
    (`LossGrid.sensitivity`), the regions of a level hold disjoint elements, hence disjoint examples, the shares of the
    levels add up to ε, and the choice of a region of one element, by its value, takes the remainder of it. Expected
    excess loss O(log²V·range·log(down-sets)/ε) (Theorem 1; log(down-sets) ≤ width·log(m + 1)), at most
    the bound of `tests/support/isotonic_bounds.py`.

    Work O(V·N·width) for a level, N down-sets: a monotone function of values 0 … V − 1 is a chain of down-sets, and
    going through elements and values in order adds one element at a time, so one pass gives the least losses for *all*
    down-sets. On arrays whose sizes depend on the order and on earlier choices, never on a label.

    Raises InvalidInput (elements or labels; more than 2¹⁶ down-sets), InvalidEpsilon, InvalidLoss, InvalidMechanism,
    RandomnessUnavailable.
    """
    if not epsilon:
        raise InvalidEpsilon("An isotonic regression needs an ε greater than zero.")
    examples = OrderedExamples.checked(elements, y_positions, domain, poset.size, places)
    if examples.n > MAX_ROWS:
        raise InvalidInput(f"An isotonic regression on a partial order takes at most {MAX_ROWS} examples.")
    sets = poset.down_sets
    grid = poset_grid(domain, poset, examples.n, epsilon, loss, values)
    losses = cell_losses(examples, Cells.even(poset.size, poset.size), grid)
    parts = shares(epsilon.fraction, levels_of(grid.size), poset.size)
    settled = np.zeros(poset.size, np.int64)
    regions = [Region(0, sets.count - 1, 0, grid.size - 1)]
    for level in range(len(parts) + 1):
        below = []
        for region in regions:
            members = np.flatnonzero(sets.members[region.upper] & ~sets.members[region.lower])
            if members.size == 0:
                continue
            if region.low == region.high:
                settled[members] = region.low
                continue
            sensitivity = grid.sensitivity(region.low, region.high + 1)
            if members.size == 1:
                scores = losses[members[0], region.low : region.high + 1]
                rate = rate_of(sum(parts[level:], Fraction(0)), sensitivity)
                settled[members] = region.low + choose(scores, rate, source := source or Keystream())
                continue
            inside, scores = region_scores(sets, poset.sequence, losses, region)
            at = int(inside[choose(scores, rate_of(parts[level], sensitivity), source := source or Keystream())])
            below.append(Region(region.lower, at, region.low, region.middle))
            below.append(Region(at, region.upper, region.middle + 1, region.high))
        regions = below
    return grid.outputs[settled]


def region_scores(sets: DownSets, sequence: IntArray, losses: IntArray, region: Region) -> tuple[IntArray, IntArray]:
    """Return the down-sets of the region by number, int64[r], and the least loss for each.

    That is the least loss of the monotone functions on the region that have values up to its middle on the down-set and
    values above it elsewhere.
    """
    lower, upper = sets.members[region.lower], sets.members[region.upper]
    inside: BoolArray = (sets.members >= lower).all(axis=1) & (sets.members <= upper).all(axis=1)
    moves = []
    for x in sequence[upper[sequence] & ~lower[sequence]].tolist():
        into, of = sets.moves[x]
        within = inside[into] & inside[of]
        moves.append((x, into[within], of[within]))
    low, high = np.full((2, sets.count), NEVER, np.int64)
    low[region.lower] = high[region.upper] = 0
    for v in range(region.low, region.middle + 1):
        for x, into, of in moves:
            low[into] = np.minimum(low[into], low[of] + losses[x, v])
    for v in range(region.high, region.middle, -1):
        for x, into, of in reversed(moves):
            high[of] = np.minimum(high[of], high[into] + losses[x, v])
    numbers = np.flatnonzero(inside)
    return numbers, low[numbers] + high[numbers]


def poset_grid(
    domain: Domain, poset: Poset, n: int, epsilon: Epsilon, loss: str | Loss, values: int | None = None
) -> LossGrid:
    """Return the output values of `isotonic_poset`, from public facts.

    Raises InvalidInput, InvalidEpsilon, InvalidLoss, InvalidMechanism: every refusal comes here, before labels are read
    or ε is charged.
    """
    if values is None:
        values = default_values(n, epsilon, poset.size, poset.down_set_count)
    if type(values) is not int or not 2 <= values <= 1 << MAX_LEVELS:
        raise InvalidMechanism(f"'values' is a whole number from 2 to {1 << MAX_LEVELS}.")
    grid = loss_grid(domain, loss, values)
    for share in shares(epsilon.fraction, levels_of(grid.size), poset.size):
        rate_of(share, 1)  # refuses an ε that is too small
    return grid
