"""Monotone fits under one more constraint: the meta-algorithm of Ghazi, Kamath, Kumar & Manurangsi (2022), Appendix C.

A *node* is a run of knots with a range of values and the constraints of its shape there. One choice of the exponential
mechanism decides the crossing of the function with the middle of the node's range, the values on both sides and the
structure on either side; two nodes of at most half the range remain. V = 2^T values make T levels of choices.

Guarantee, for every shape: ε-DP in the labels (replace-one; n and x are public).
- The score of an option is the least loss of the functions that it leaves possible on the node. All of them have values
  in the node's range, so by `LossGrid.sensitivity` one draw at `rate_of(share, sensitivity)` is share-DP, SLACK for its
  rounding included. The set of options depends on the node and the grid alone, never on a label.
- The nodes of a level read disjoint examples: one label affects one choice per level. Which one is determined by
  earlier choices, and the shares of the levels add up to ε. A choice that completes its node may take the
  shares of the levels that the node no longer needs: along every sequence of choices a label still pays ε at most.
- The function is a public one of the choices and the cells.

Differences from the paper, none of which the guarantee needs: a choice crosses from values up to the middle to values
above it, so that every function is reached in one way only; a function that does not cross has one option, not one for
each value at its end; between knots functions are straight lines through several cells (`steps`), so that few knots
suffice for smooth functions (steps = 1 is the paper's); levels at which few nodes can be active get less of ε.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from label_dp.companions.maps.shapes import MAX_VALUES
from label_dp.errors import InvalidMechanism
from label_dp.privacy import Epsilon
from labels_party.companions.mechanisms.isotonic.depth import SEEN
from labels_party.mechanisms.choice import choose, rate_of
from labels_party.mechanisms.entropy import Uint64Source

IntArray = npt.NDArray[np.int64]

NEVER = 1 << 60  # the loss of a function that the node does not allow; sums of four stay within 64 bits
MAX_OPTIONS = 1 << 22
MAX_LEVELS = MAX_VALUES.bit_length() - 1


@dataclass(frozen=True, slots=True)
class Node:
    """Knots `first` … `last` with values `low` … `high` (numbers of the values 0 … V − 1).

    `starts` (`ends`): the function is `low` at the first (`high` at the last) knot. `pieces`: their largest number.
    `least` … `most`: rises allowed from one knot to the next.
    """

    first: int
    last: int
    low: int
    high: int
    starts: bool = False
    ends: bool = False
    pieces: int = 0
    least: int = 0
    most: int = 0

    @property
    def middle(self) -> int:
        """Largest value that counts as low."""
        return (self.low + self.high) // 2

    @property
    def upper(self) -> slice:
        return slice(self.middle + 1, self.high + 1)

    @property
    def lower(self) -> slice:
        return slice(self.low, self.middle + 1)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of an option: nodes still to be cut, and fixed values, by knot."""

    nodes: Sequence[Node] = ()
    settled: Sequence[tuple[int, int]] = ()


@dataclass(frozen=True, slots=True)
class Options:
    """Choice at a node: `scores` int64[m] and the meaning of each option; `final` if every option completes the
    node."""

    scores: IntArray
    outcome: Callable[[int], Outcome]
    final: bool = False


class Shape(ABC):
    """Constraint on monotone functions of `knots` knots with values 0 … V − 1; `steps` cells from knot to knot.

    `losses` is int64[M, F] of `cell_losses`, M = (knots − 1)·steps + 1, F = (V − 1)·steps + 1 output values.
    """

    def __init__(self, losses: IntArray, knots: int, steps: int) -> None:
        self.losses, self.knots, self.steps = losses, knots, steps
        self.values = (losses.shape[1] - 1) // steps + 1

    @abstractmethod
    def root(self) -> Node: ...

    @abstractmethod
    def settle(self, node: Node) -> Sequence[tuple[int, int]] | None:
        """Return the values of the only function that the node allows, by knot; None if there are more."""

    @abstractmethod
    def options(self, node: Node) -> Options: ...

    def complexity(self) -> int:
        """Bound the number of nodes of a level with more than one option: public."""
        return self.knots

    @property
    def points(self) -> IntArray:
        """Losses of the values at the knots, int64[K, V]."""
        return self.losses[:: self.steps, :: self.steps]

    def between_knots(self, k: int) -> IntArray:
        """Return the losses of straight lines from v at knot k to w at the next one on the cells in between: int64[V,
        V]."""
        total = np.zeros((self.values, self.values), np.int64)
        v, w = np.indices(total.shape)
        for q in range(1, self.steps):
            total += self.losses[k * self.steps + q][(self.steps - q) * v + q * w]
        return total


def draw(
    shape: Shape, sensitivity: Callable[[int, int], int], epsilon: Epsilon, source: Uint64Source
) -> dict[int, int]:
    """Draw a function of the shape as its fixed values, knot → value; between them it is straight, rounded down.

    `sensitivity(low, high)`: `LossGrid.sensitivity` of functions with these values at the knots. ε-DP, see this module.
    Raises InvalidEpsilon (too small), InvalidMechanism (too many options), RandomnessUnavailable.
    """
    parts = shares(epsilon.fraction, levels_of(shape.values), shape.complexity())
    settled: dict[int, int] = {}
    nodes = [shape.root()]
    for level in range(len(parts) + 1):
        below: list[Node] = []
        for node in nodes:
            only = shape.settle(node)
            if only is not None:
                settled.update(only)
                continue
            options = shape.options(node)
            if options.scores.size > MAX_OPTIONS:
                raise InvalidMechanism("The grid leaves too many options to choose from; take fewer knots or values.")
            share = sum(parts[level:], Fraction(0)) if options.final else parts[level]
            rate = rate_of(share, sensitivity(node.low, node.high))
            outcome = options.outcome(choose(options.scores, rate, source))
            below.extend(outcome.nodes)
            settled.update(outcome.settled)
        nodes = below
    return settled


def on_cells(settled: dict[int, int], steps: int) -> IntArray:
    """Return the output values 0 … F − 1 of the function through the fixed knots, rounded down to whole ones:
    int64[M]."""
    knots = np.array(sorted(settled), np.int64)
    values = np.array([settled[k] for k in knots.tolist()], np.int64)
    at = np.arange(knots[0] * steps, knots[-1] * steps + 1)
    left = np.clip(np.searchsorted(knots * steps, at, side="right") - 1, 0, max(0, knots.size - 2))
    right = np.minimum(left + 1, knots.size - 1)
    run = np.maximum(knots[right] - knots[left], 1)
    rise = (at - knots[left] * steps) * (values[right] - values[left])
    return np.asarray(values[left] * steps + rise // run, np.int64)


def levels_of(values: int) -> int:
    """Return T, the number of levels of choices for V values."""
    return (values - 1).bit_length()


def shares(epsilon: Fraction, levels: int, complexity: int) -> list[Fraction]:
    """Divide ε among the levels in proportion to the root of min(1, complexity/2^t) (level t from 0).

    The choices of level t err by a range of 2^−t each, so by about min(2^t, complexity)·2^−t/share together; these
    shares minimise the sum over levels. Equal shares up to the complexity, as in the paper.
    """
    parts = [math.isqrt(min(1 << 40, (complexity << 40) >> t)) for t in range(levels)]
    return [epsilon * part / sum(parts) for part in parts]


def default_values(n: int, epsilon: Epsilon, complexity: int, options: int, most: int = 6) -> int:
    """Choose V = 2^T from public facts, to minimise the sum of the choices' error, as in `depth.default_levels`, and
    the squared error of rounding to V values."""

    def error(levels: int) -> float:
        roots = sum(math.sqrt(min(1.0, complexity / 2.0**t)) for t in range(levels))
        step = 1 / ((1 << levels) - 1)
        return roots * roots * math.log(max(2, options)) / (SEEN * float(epsilon)) + n * step * step / 12

    return 1 << min(range(1, most + 1), key=error)


def feasible(scores: IntArray) -> IntArray:
    """Return the flat indices of the options that allow a function at all, int64[m]; the same ones for any labels."""
    return np.flatnonzero(scores.reshape(-1) < NEVER // 2)
