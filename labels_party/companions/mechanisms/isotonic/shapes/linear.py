"""At most k straight pieces: continuous, monotone, piecewise linear functions with few breaks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from labels_party.companions.mechanisms.isotonic.constrained import NEVER, Node, Options, Outcome, Shape, feasible
from labels_party.companions.mechanisms.isotonic.shapes.lipschitz import only

IntArray = npt.NDArray[np.int64]


class PiecewiseLinear(Shape):
    """Functions of at most `pieces` straight pieces whose breaks are knots with values 0 … V − 1.

    Within a piece the function is rounded down to whole output values, F − 1 = (V − 1)·steps of them over the range. A
    node is cut by the piece that crosses its middle; one of a single piece chooses both of its ends, with the whole
    remaining ε. Work O(K²·V²·k) for the nodes of a level, memory O(K²·V²), K²·V²·k/8 options at most at a node.
    """

    def __init__(self, losses: IntArray, knots: int, steps: int, pieces: int) -> None:
        super().__init__(losses, knots, steps)
        self.pieces = min(pieces, knots - 1)

    def root(self) -> Node:
        return Node(0, self.knots - 1, 0, self.values - 1, pieces=self.pieces)

    def complexity(self) -> int:
        return self.pieces + 1

    def settle(self, node: Node) -> Sequence[tuple[int, int]] | None:
        if node.low == node.high:
            return [(node.first, node.low), (node.last, node.low)]
        if node.first == node.last and (node.starts or node.ends):
            return [(node.first, node.low if node.starts else node.high)]
        if node.starts and node.ends and node.pieces == 1:
            return [(node.first, node.low), (node.last, node.high)]
        return None

    @cached_property
    def lines(self) -> IntArray:
        """Losses of the piece from value v at knot p to w ≥ v at knot q > p on the cells between, int64[K, K, V, V]."""
        losses = np.full((self.knots, self.knots, self.values, self.values), NEVER, np.int64)
        v, w = np.triu_indices(self.values)
        for p in range(self.knots):
            for q in range(p + 1, self.knots):
                total = np.zeros(v.size, np.int64)
                for at in range(p * self.steps + 1, q * self.steps):
                    total += self.losses[at][v * self.steps + (at - p * self.steps) * (w - v) // (q - p)]
                losses[p, q, v, w] = total
        return losses

    def options(self, node: Node) -> Options:
        if node.first == node.last:
            values = self.points[node.first, node.low : node.high + 1]
            return Options(values, lambda i: Outcome(settled=[(node.first, node.low + i)]), final=True)
        if node.pieces == 1:
            return self._one_piece(node)
        lower, upper = self._reached(node), self._left(node)
        part = slice(node.first, node.last + 1)
        lines = self.lines[part, part, node.lower, node.upper]
        scores: list[IntArray] = []
        where: list[tuple[int, int, int]] = []
        knots = node.last - node.first
        for p in range(knots):
            for q in range(p + 1, knots + 1):
                rest = min(node.pieces - 1, p + knots - q)
                for r in range(max(rest - (knots - q), min(p, 1)), min(rest - min(knots - q, 1), p) + 1):
                    scores.append(lower[r, p][:, None] + lines[p, q] + upper[rest - r, q][None, :])
                    where.append((p, q, r))
        low = NEVER if node.ends else int(lower[-1, -1].min())
        high = NEVER if node.starts else int(upper[-1, 0].min())
        every = np.append(np.stack(scores).reshape(-1), [low, high])
        possible, shape = feasible(every), lines.shape[2:]
        return Options(every[possible], lambda i: self._outcome(node, int(possible[i]), where, shape))

    def _outcome(self, node: Node, at: int, where: list[tuple[int, int, int]], shape: tuple[int, ...]) -> Outcome:
        crossings = len(where) * shape[0] * shape[1]
        pieces = node.pieces
        if at == crossings:
            return Outcome([Node(node.first, node.last, node.low, node.middle, node.starts, False, pieces)])
        if at == crossings + 1:
            return Outcome([Node(node.first, node.last, node.middle + 1, node.high, False, node.ends, pieces)])
        which, a, b = (int(i) for i in np.unravel_index(at, (len(where), *shape)))
        p, q, r = where[which]
        knots = node.last - node.first
        rest = min(pieces - 1, p + knots - q) - r
        left = Node(node.first, node.first + p, node.low, node.low + a, node.starts, True, r)
        right = Node(node.first + q, node.last, node.middle + 1 + b, node.high, True, node.ends, rest)
        return Outcome([left, right])

    def _one_piece(self, node: Node) -> Options:
        values = slice(node.low, node.high + 1)
        first = only(self.points[node.first, values], 0 if node.starts else None)
        last = only(self.points[node.last, values], -1 if node.ends else None)
        every = first[:, None] + self.lines[node.first, node.last, values, values] + last[None, :]
        possible = feasible(every)

        def outcome(i: int) -> Outcome:
            v, w = divmod(int(possible[i]), every.shape[1])
            return Outcome(settled=[(node.first, node.low + v), (node.last, node.low + w)])

        return Options(every.reshape(-1)[possible], outcome, final=True)

    def _reached(self, node: Node) -> IntArray:
        """Compute the least loss up to each knot of functions of low values and at most r pieces that end with each:
        int64[pieces + 1, knots, low values]."""
        part = slice(node.first, node.last + 1)
        points, lines = self.points[part, node.lower], self.lines[part, part, node.lower, node.lower]
        least = np.full((node.pieces + 1, *points.shape), NEVER, np.int64)
        least[:, 0] = only(points[0], 0 if node.starts else None)
        for r in range(1, node.pieces + 1):
            for q in range(1, len(points)):
                best = (least[r - 1, :q, :, None] + lines[:q, q]).min(axis=(0, 1))
                least[r, q] = np.minimum(best + points[q], NEVER)
        return least

    def _left(self, node: Node) -> IntArray:
        """Compute the same from each knot on, for functions that begin with each: int64[pieces + 1, knots, high
        values]."""
        part = slice(node.first, node.last + 1)
        points, lines = self.points[part, node.upper], self.lines[part, part, node.upper, node.upper]
        least = np.full((node.pieces + 1, *points.shape), NEVER, np.int64)
        least[:, -1] = only(points[-1], -1 if node.ends else None)
        for r in range(1, node.pieces + 1):
            for p in range(len(points) - 1):
                best = (lines[p, p + 1 :] + least[r - 1, p + 1 :, None, :]).min(axis=(0, 2))
                least[r, p] = np.minimum(best + points[p], NEVER)
        return least
