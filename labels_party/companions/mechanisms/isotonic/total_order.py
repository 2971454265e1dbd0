"""Private isotonic regression on a totally ordered domain (Ghazi, Kamath, Kumar & Manurangsi 2022, Algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from label_dp.companions.maps.monotone import MAX_X_SIZE, MonotoneMap
from label_dp.domain import Domain
from label_dp.errors import InvalidInput
from label_dp.losses import Loss
from label_dp.privacy import Epsilon
from labels_party.companions.mechanisms.isotonic.depth import Cuts, middle, planned, shares
from labels_party.companions.mechanisms.isotonic.grid import MAX_ROWS, LossGrid
from labels_party.companions.mechanisms.isotonic.prefix import least_prefixes, worth_compiling
from labels_party.mechanisms.choice import choose, choose_point, rate_of, uniform_below
from labels_party.mechanisms.entropy import Keystream, Uint64Source

IntArray = npt.NDArray[np.int64]
AnyInts = npt.NDArray[np.integer[npt.NBitBase]]


def isotonic(
    x: AnyInts,
    y_positions: AnyInts,
    domain: Domain,
    x_size: int,
    epsilon: Epsilon,
    loss: str | Loss = "squared",
    *,
    levels: int | None = None,
    cuts: Cuts = "points",
    places: AnyInts | IntArray | None = None,
    source: Uint64Source | None = None,
) -> MonotoneMap:
    """Fit a monotone map x → label of small empirical loss, ε-DP in the labels (replace-one; n and x are public).

    `x` int[n] in 0 … x_size − 1 (x_size ≤ 2³²), `y_positions` int[n]: positions of the labels in `domain`. Examples of
    one x stay together. `levels`: T, for 2^T output values (None: `depth.default_levels`, from public facts; a loss
    with candidate outputs has those, and as many levels as they need).

    `cuts`: the possible places of a cut. "points": in any gap between neighbouring distinct x, each with equal
    probability at the same loss, and in its middle. "domain": at any point of the domain, as in the paper; with public
    x that protects nothing more, and it costs log x_size instead of log n. `places` int[s]: the x between which cuts
    may fall, if those of the examples (None) would reveal which of many x have one; then there may be no example at
    all.

    Guarantee. Level t cuts each of its nodes by one choice of `labels_party.mechanisms.choice` among the node's cuts,
    at the rate that makes it ε_t-DP for the node's sensitivity (`LossGrid.sensitivity`), its rounding (SLACK) included,
    with Σ ε_t = ε (`depth.shares`). The nodes of a level read disjoint examples, and a node's draw is a function of its
    own examples and fresh randomness, rounding and all: replacing one label changes the odds of one node of the level
    only, by e^(ε_t) at most, for any earlier draws. The levels in sequence give ε. The map is a function of the cuts
    and of x. Expected excess loss: at most that of
    `tests/support/isotonic_bounds.py`.

    Work. Squared loss O(T·n), absolute O(T²·n), others O(2^T·n) operations on whole numbers (`prefix`), sorting x, and
    O(T·n) evaluations of e^−s. Which are done, on which rows, depends on x and on earlier draws, never on a label.

    Raises InvalidInput (x or labels: shape, type, outside, none at all), InvalidEpsilon, InvalidLoss, InvalidMechanism
    (an option), RandomnessUnavailable.
    """
    data = OrderedExamples.checked(x, y_positions, domain, x_size, places)
    grid = planned(domain, data.n, data.xs.size, x_size, epsilon, loss, levels=levels, cuts=cuts)
    edges = _cut(data, grid, epsilon, cuts, source or Keystream())
    pieces = np.flatnonzero(np.diff(edges) > 0)
    return MonotoneMap(x_size, edges[pieces[1:]], grid.outputs[pieces])


@dataclass(frozen=True, eq=False)
class OrderedExamples:
    """Examples in the order of x: `xs` int64[m] the distinct ones, `ends` int64[m + 1] the row after the examples of
    each.

    An x may have none. Those at xs[j] are rows ends[j] … ends[j + 1] − 1 of `labels` int64[n] (positions). x alone
    decides the order.
    """

    x_size: int
    xs: IntArray
    ends: IntArray
    labels: IntArray

    @property
    def n(self) -> int:
        return int(self.labels.size)

    @classmethod
    def checked(
        cls, x: AnyInts, y_positions: AnyInts, domain: Domain, x_size: int, places: AnyInts | IntArray | None = None
    ) -> OrderedExamples:
        """Check and sort the examples. `places`: further x, with or without examples. Raises InvalidInput, quoting no
        label."""
        x, labels = np.asarray(x), np.asarray(y_positions)
        every = x if places is None else np.concatenate([x, np.asarray(places)])
        check_columns(x, labels, domain, x_size)
        check_numbers(every, x_size)
        if every.size == 0:
            raise InvalidInput("An isotonic regression needs at least one example.")
        order = np.argsort(x, kind="stable")
        ordered = x[order].astype(np.int64)
        xs = np.unique(every).astype(np.int64)
        ends = np.append(np.searchsorted(ordered, xs), x.size)
        return cls(x_size, xs, ends, labels[order].astype(np.int64))


def check_columns(x: AnyInts, labels: AnyInts, domain: Domain, x_size: int) -> None:
    """Check for one x below `x_size` and one position of the domain for each of any number of examples. Raises
    InvalidInput, quoting no label."""
    if type(x_size) is not int or not 1 <= x_size <= MAX_X_SIZE:
        raise InvalidInput("The domain of x has between 1 and 2³² points.")
    if x.ndim != 1 or x.shape != labels.shape:
        raise InvalidInput("An isotonic regression takes one x and one label per example, in two columns.")
    if x.size > MAX_ROWS:
        raise InvalidInput(f"An isotonic regression takes at most {MAX_ROWS} examples.")
    check_numbers(x, x_size)
    if labels.dtype.kind not in "iu" or (labels.size and not 0 <= int(labels.min()) <= int(labels.max()) < domain.k):
        raise InvalidInput("Every label must be a position of the domain.")


def check_numbers(x: AnyInts, x_size: int) -> None:
    """Raise InvalidInput unless every x is a whole number in [0, x_size)."""
    if x.dtype.kind not in "iu" or (x.size and not 0 <= int(x.min()) <= int(x.max()) < x_size):
        raise InvalidInput(f"Every x must be a whole number from 0 to {x_size - 1}.")


@dataclass(frozen=True, slots=True)
class DomainNode:
    """Points low … high − 1 of the domain, distinct x number left … right − 1, output values first … stop − 1."""

    low: int
    high: int
    left: int
    right: int
    first: int
    stop: int

    @property
    def middle(self) -> int:
        return middle(self.first, self.stop)


def _cut(data: OrderedExamples, grid: LossGrid, epsilon: Epsilon, cuts: Cuts, source: Uint64Source) -> IntArray:
    """Draw the points of the domain at which each output value begins, and x_size: int64[V + 1]."""
    prepared = grid.prepared(data.labels)
    nodes = [DomainNode(0, data.x_size, 0, data.xs.size, 0, grid.size)]
    for share in shares(grid):
        below = []
        for node in nodes:
            if node.stop - node.first == 1:
                below.append(node)
                continue
            point = _draw(data, prepared, grid, node, epsilon.fraction * share, cuts, source)
            at = node.left + int(np.searchsorted(data.xs[node.left : node.right], point))
            below.append(DomainNode(node.low, point, node.left, at, node.first, node.middle))
            below.append(DomainNode(point, node.high, at, node.right, node.middle, node.stop))
        nodes = below
    return np.array([node.low for node in nodes] + [data.x_size], np.int64)


def _draw(
    data: OrderedExamples,
    prepared: IntArray,
    grid: LossGrid,
    node: DomainNode,
    epsilon: Fraction,
    cuts: Cuts,
    source: Uint64Source,
) -> int:
    """Draw the beginning of the upper half of a node's values: a point of the domain, or the node's end."""
    if node.left == node.right:  # no example, so that every cut is equally good
        return node.low + (uniform_below(node.high - node.low + 1, source) if cuts == "domain" else 0)
    scores = cut_scores(data, prepared, grid, node)
    rate = rate_of(epsilon, grid.sensitivity(node.first, node.stop))
    if cuts == "domain":
        return choose_point(scores, *gaps(data, node), rate, source)
    return _between(data, node, node.left + choose(scores, rate, source))


def cut_scores(data: OrderedExamples, prepared: IntArray, grid: LossGrid, node: DomainNode) -> IntArray:
    """Compute for the m distinct x of a node the least loss of monotone functions on the node of which the first j
    distinct x have output values below `node.middle`, the others from there on: int64[m + 1].

    Exact, see `prefix`; the upper half is fitted from its end, downwards.
    """
    rows = slice(int(data.ends[node.left]), int(data.ends[node.right]))
    labels, edges = prepared[rows], data.ends[node.left : node.right + 1] - rows.start
    fast = worth_compiling(data.n, grid.size)
    below = least_prefixes(grid, labels, edges[1:], range(node.first, node.middle), fast)
    turned = labels.size - edges[:-1][::-1]
    above = least_prefixes(grid, labels[::-1], turned, range(node.stop - 1, node.middle - 1, -1), fast)
    return np.asarray(below + above[::-1], np.int64)


def gaps(data: OrderedExamples, node: DomainNode) -> tuple[list[int], list[int]]:
    """Return starts and sizes of the m + 1 sets of points of the domain that cut a node's distinct x alike."""
    xs = data.xs[node.left : node.right]
    starts = np.concatenate([[node.low], xs + 1])
    return starts.tolist(), (np.append(xs, node.high) - starts + 1).tolist()


def _between(data: OrderedExamples, node: DomainNode, at: int) -> int:
    """Return the middle of the gap before distinct x number `at`; the node's own ends if no x lies beyond."""
    if at == node.left:
        return node.low
    if at == node.right:
        return node.high
    return (int(data.xs[at - 1]) + int(data.xs[at]) + 1) // 2
