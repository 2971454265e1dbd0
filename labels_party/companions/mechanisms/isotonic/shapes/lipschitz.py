"""Monotone functions that rise by at most a given number of values from one knot to the next."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from labels_party.companions.mechanisms.isotonic.constrained import NEVER, Node, Options
from labels_party.companions.mechanisms.isotonic.shapes.straight import Rises, Straight

IntArray = npt.NDArray[np.int64]


class Lipschitz(Straight):
    """Functions that rise by at most `most` values from one knot to the next.

    Work O(K·V²) for the nodes of a level, K·min(V/2, most)² options at most at a node.
    """

    def __init__(self, losses: IntArray, knots: int, steps: int, most: int) -> None:
        super().__init__(losses, knots, steps)
        self.most = min(most, self.values - 1)

    def root(self) -> Node:
        return Node(0, self.knots - 1, 0, self.values - 1, most=self.most)

    def rises(self, node: Node, rise: int) -> tuple[Rises, Rises]:
        return (0, self.most), (0, self.most)

    def options(self, node: Node) -> Options:
        if node.first == node.last:
            return self.one_knot(node)
        lower = self._reached(node, node.lower, 0 if node.starts else None)
        upper = self._left(node, node.upper, -1 if node.ends else None)
        a, b = np.indices((lower.shape[1], upper.shape[1]))
        allowed = b + node.middle + 1 - node.low - a <= node.most
        flat = (NEVER if node.ends else int(lower[-1].min()), NEVER if node.starts else int(upper[0].min()))
        return self.crossings(node, lower[:, :, None], upper[:, :, None], allowed, flat)

    def _reached(self, node: Node, values: slice, start: int | None) -> IntArray:
        """Compute the least loss up to each knot of functions of these values that end with each: int64[knots,
        values]."""
        points, lines = self._part(node, values)
        least = points.copy()
        least[0] = only(points[0], start)
        for p in range(1, len(points)):
            least[p] = np.minimum((least[p - 1][:, None] + lines[p - 1]).min(axis=0) + points[p], NEVER)
        return least

    def _left(self, node: Node, values: slice, end: int | None) -> IntArray:
        """Compute the same from each knot on, for functions that begin with each value: int64[knots, values]."""
        points, lines = self._part(node, values)
        least = points.copy()
        least[-1] = only(points[-1], end)
        for p in range(len(points) - 2, -1, -1):
            least[p] = np.minimum((least[p + 1] + lines[p]).min(axis=1) + points[p], NEVER)
        return least

    def _part(self, node: Node, values: slice) -> tuple[IntArray, IntArray]:
        lines = self.lines[node.first : node.last, values, values]
        v, w = np.indices(lines.shape[1:])
        allowed = (w >= v) & (w - v <= node.most)
        return self.points[node.first : node.last + 1, values], np.where(allowed, lines, NEVER)


def only(losses: IntArray, at: int | None) -> IntArray:
    """Forbid all values but `at`, if it is given."""
    if at is None:
        return losses
    masked = np.full_like(losses, NEVER)
    masked[at] = losses[at]
    return masked
