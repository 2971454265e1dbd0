"""The base of shapes whose functions are straight from each knot to the next."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from labels_party.companions.mechanisms.isotonic.constrained import NEVER, Node, Options, Outcome, Shape, feasible

IntArray = npt.NDArray[np.int64]
Rises = tuple[int, int]


class Straight(Shape):
    """Shape whose nodes are cut at the pair of neighbouring knots between which the function crosses the node's
    middle."""

    @abstractmethod
    def rises(self, node: Node, rise: int) -> tuple[Rises, Rises]:
        """Return the least and the most rise allowed before and after knots between which the function rises by
        `rise`."""

    def settle(self, node: Node) -> Sequence[tuple[int, int]] | None:
        if node.low == node.high:
            return [(knot, node.low) for knot in range(node.first, node.last + 1)]
        if node.first == node.last and (node.starts or node.ends):
            return [(node.first, node.low if node.starts else node.high)]
        if node.last == node.first + 1 and node.starts and node.ends:
            return [(node.first, node.low), (node.last, node.high)]
        return None

    @cached_property
    def lines(self) -> IntArray:
        """Losses between them, int64[K − 1, V, V]."""
        if self.knots == 1:
            return np.zeros((0, self.values, self.values), np.int64)
        return np.stack([self.between_knots(k) for k in range(self.knots - 1)])

    def one_knot(self, node: Node) -> Options:
        """Return the choice of a single value, with the whole remaining ε."""
        return Options(
            self.points[node.first, node.low : node.high + 1],
            lambda i: Outcome(settled=[(node.first, node.low + i)]),
            final=True,
        )

    def crossings(
        self, node: Node, lower: IntArray, upper: IntArray, allowed: npt.NDArray[np.bool_], flat: tuple[int, int]
    ) -> Options:
        """Return the options of a node of two or more knots.

        lower[j, a, s] (upper[j, b, s]): the least loss up to (from) the node's knot number j that ends with low value a
        (begins with high value b) before (after) a rise of s; a third axis of length 1 if s does not matter. `allowed`
        bool[a, b]: the allowed crossings. `flat`: the least losses of functions that stay low, and high.
        """
        a, b = np.indices(allowed.shape)
        rise = b + node.middle + 1 - node.low - a
        s = rise if lower.shape[2] > 1 else np.zeros_like(rise)
        crossed = lower[:-1][:, a, s] + upper[1:][:, b, s] + self.lines[node.first : node.last, node.lower, node.upper]
        every = np.append(np.where(allowed, crossed, NEVER).reshape(-1), flat)
        possible = feasible(every)
        return Options(every[possible], lambda i: self._outcome(node, int(possible[i]), crossed.shape))

    def _outcome(self, node: Node, at: int, shape: tuple[int, ...]) -> Outcome:
        least, most = node.least, node.most
        crossings = shape[0] * shape[1] * shape[2]
        if at == crossings:
            return Outcome([Node(node.first, node.last, node.low, node.middle, node.starts, False, 0, least, most)])
        if at == crossings + 1:
            return Outcome([Node(node.first, node.last, node.middle + 1, node.high, False, node.ends, 0, least, most)])
        edge, a, b = (int(i) for i in np.unravel_index(at, shape))
        knot, below, above = node.first + edge, node.low + a, node.middle + 1 + b
        before, after = self.rises(node, above - below)
        left = Node(node.first, knot, node.low, below, node.starts, True, 0, *before)
        right = Node(knot + 1, node.last, above, node.high, True, node.ends, 0, *after)
        return Outcome([left, right])
