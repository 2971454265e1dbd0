"""Monotone functions whose rises from knot to knot never fall; concave ones are their mirror images."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from labels_party.companions.mechanisms.isotonic.constrained import NEVER, Node, Options
from labels_party.companions.mechanisms.isotonic.shapes.lipschitz import only
from labels_party.companions.mechanisms.isotonic.shapes.straight import Rises, Straight

IntArray = npt.NDArray[np.int64]


class Convex(Straight):
    """Functions whose rises from one knot to the next never fall.

    A node also has the rises `least` … `most` that it allows. Work and memory O(K·V²), K·V²/4 options at a node.
    """

    def root(self) -> Node:
        return Node(0, self.knots - 1, 0, self.values - 1, most=self.values - 1)

    def rises(self, node: Node, rise: int) -> tuple[Rises, Rises]:
        return (node.least, rise), (rise, node.most)

    def options(self, node: Node) -> Options:
        if node.first == node.last:
            return self.one_knot(node)
        lower, upper = self._reached(node, node.lower), self._left(node, node.upper)
        a, b = np.indices((lower.shape[1], upper.shape[1]))
        rise = b + node.middle + 1 - node.low - a
        allowed = (rise >= node.least) & (rise <= node.most)
        top = node.high - node.low
        low = NEVER if node.ends else int(lower[-1, :, min(node.most, top)].min())
        high = NEVER if node.starts else int(upper[0, :, min(node.least, top)].min())
        return self.crossings(node, lower, upper, allowed, (low, high))

    def _reached(self, node: Node, values: slice) -> IntArray:
        """Compute the least loss up to each knot of functions of these values that end with v and whose last rise is at
        most s = 0 … high − low: int64[knots, v, s]."""
        points = self.points[node.first : node.last + 1, values]
        lines = self.lines[node.first : node.last, values, values]
        v, s = np.indices((points.shape[1], node.high - node.low + 1))
        below, allowed = np.maximum(v - s, 0), (v >= s) & (s >= node.least) & (s <= node.most)
        least = np.empty((len(points), *v.shape), np.int64)
        least[0] = only(points[0], 0 if node.starts else None)[:, None]
        for p in range(1, len(points)):
            risen = np.where(allowed, least[p - 1][below, s] + lines[p - 1][below, v], NEVER)
            least[p] = np.minimum.accumulate(np.minimum(risen + points[p][:, None], NEVER), axis=1)
        return least

    def _left(self, node: Node, values: slice) -> IntArray:
        """Compute the same from each knot on, for functions that begin with v and whose first rise is at least s:
        int64[knots, v, s]."""
        points = self.points[node.first : node.last + 1, values]
        lines = self.lines[node.first : node.last, values, values]
        width = points.shape[1]
        v, s = np.indices((width, node.high - node.low + 1))
        above, allowed = np.minimum(v + s, width - 1), (v + s < width) & (s >= node.least) & (s <= node.most)
        least = np.empty((len(points), *v.shape), np.int64)
        least[-1] = only(points[-1], -1 if node.ends else None)[:, None]
        for p in range(len(points) - 2, -1, -1):
            risen = np.where(allowed, least[p + 1][above, s] + lines[p][v, above], NEVER)
            here = np.minimum(risen + points[p][:, None], NEVER)
            least[p] = np.minimum.accumulate(here[:, ::-1], axis=1)[:, ::-1]
        return least
