"""At most k constant pieces: monotone step functions with few steps."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from labels_party.companions.mechanisms.isotonic.constrained import NEVER, Node, Options, Outcome, Shape

IntArray = npt.NDArray[np.int64]


class Pieces(Shape):
    """Step functions on the cells (every cell a knot) with at most `pieces` values.

    A node of r pieces is cut before one of its cells, with r₁ + r₂ = r; one of a single piece chooses its value, with
    the whole remaining ε. Work O(M·V·k) for all nodes of a level, M·k options at a node.
    """

    def __init__(self, losses: IntArray, pieces: int) -> None:
        super().__init__(losses, losses.shape[0], 1)
        self.pieces = min(pieces, self.knots)

    def root(self) -> Node:
        return Node(0, self.knots - 1, 0, self.values - 1, pieces=self.pieces)

    def complexity(self) -> int:
        return self.pieces

    def settle(self, node: Node) -> Sequence[tuple[int, int]] | None:
        if node.low == node.high:
            return [(knot, node.low) for knot in range(node.first, node.last + 1)]
        return None

    @cached_property
    def _sums(self) -> IntArray:
        """Losses of the cells before each, int64[M + 1, V]."""
        return np.concatenate([np.zeros((1, self.values), np.int64), np.cumsum(self.losses, axis=0)])

    def options(self, node: Node) -> Options:
        if node.pieces == 1:
            return self._constants(node)
        size = node.last - node.first + 1
        cells = self.losses[node.first : node.last + 1]
        # [r, j]: least loss of the first j (of the last j) cells with at most r pieces of low (of high) values
        low = _prefixes(cells[:, node.lower], node.pieces)
        high = _prefixes(cells[::-1, node.upper][:, ::-1], node.pieces)
        cuts = [(0, 0), (size, node.pieces)]
        for at in range(1, size):
            cuts += [(at, r) for r in range(max(1, node.pieces - (size - at)), min(node.pieces - 1, at) + 1)]
        at, left = np.array(cuts).T
        scores = low[left, at] + high[node.pieces - left, size - at]

        def outcome(i: int) -> Outcome:
            cut, r = cuts[i]
            lower = Node(node.first, node.first + cut - 1, node.low, node.middle, pieces=min(r, cut))
            upper = Node(
                node.first + cut, node.last, node.middle + 1, node.high, pieces=min(node.pieces - r, size - cut)
            )
            return Outcome([half for half in (lower, upper) if half.first <= half.last])

        return Options(scores, outcome)

    def _constants(self, node: Node) -> Options:
        window = slice(node.low, node.high + 1)
        scores = (self._sums[node.last + 1] - self._sums[node.first])[window]
        return Options(
            scores,
            lambda i: Outcome(settled=[(knot, node.low + i) for knot in range(node.first, node.last + 1)]),
            final=True,
        )


def _prefixes(losses: IntArray, pieces: int) -> IntArray:
    """Compute the least loss of rising functions of at most r pieces on the first j cells: int64[pieces + 1, cells +
    1]."""
    cells, values = losses.shape
    least = np.full((pieces + 1, cells + 1), NEVER, np.int64)
    least[:, 0] = 0
    ending = np.full((pieces + 1, values), NEVER, np.int64)  # whose last piece has just that value
    below = ending.copy()  # whose last piece has a value below, so that another piece of that value may follow
    below[0] = 0  # no piece before the first cell
    for j in range(cells):
        ending[1:] = np.minimum(np.minimum(ending[1:], below[:-1]) + losses[j], NEVER)
        best = np.minimum.accumulate(ending, axis=1)
        below[:, 0] = NEVER
        below[:, 1:] = best[:, :-1]
        least[:, j + 1] = best[:, -1]
    return np.minimum.accumulate(least, axis=0)
