"""The placement of bins as a least-weight path: prefix moments, edge costs, Dinkelbach's method. Needs numpy only.

Two graphs. *Intervals* (squared, Poisson, log): nodes 0 … k, an edge i → j is the bin of labels i … j − 1 at its best
output. *Candidates* (absolute, and every loss on a coarse grid): nodes are candidate outputs between a source and a
sink, an edge a → b opens b and serves the labels between the two from the nearer one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from label_dp.losses import LOG_FLOOR, POISSON_FLOOR, Loss, bregman_log

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

MAX_ROUNDS = 60
MAX_REPRESENTABLE_EPSILON = 64 * math.log(2.0)  # limit of 64-bit weights


def prefix_sums(terms: FloatArray) -> FloatArray:
    """Compute float64[k + 1] running sums from 0, compensated (Neumaier 1974): the error does not grow with k."""
    sums = np.concatenate([[0.0], np.cumsum(terms)])
    before, after = sums[:-1], sums[1:]
    added = after - before
    errors = (before - (after - added)) + (terms - added)
    return np.asarray(sums + np.concatenate([[0.0], np.cumsum(errors)]), np.float64)


@dataclass(frozen=True, eq=False)
class Instance:
    """Placement problem, centred and scaled: x = (y − centre)/scale, and losses in multiples of `unit`.

    `p0`, `p1`, `p2` are float64[k + 1] prefix sums of p, p·x and p·D(y, centre)/unit, with D the loss (0 for absolute).
    `gain` = e^ε − 1. `floor` and `ceiling` are the least and the largest output allowed, in x.
    """

    labels: FloatArray
    prior: FloatArray
    loss: Loss
    gain: float
    centre: float
    scale: float
    unit: float
    floor: float
    ceiling: float
    x: FloatArray
    p0: FloatArray
    p1: FloatArray
    p2: FloatArray

    @classmethod
    def of(cls, prior: FloatArray, labels: FloatArray, epsilon: float, loss: Loss) -> Instance:
        gain = math.expm1(min(epsilon, MAX_REPRESENTABLE_EPSILON))
        offset = labels[labels.size // 2]
        mean = float(offset + np.sum(prior * (labels - offset)))
        ceiling = math.inf
        if loss.name == "poisson":
            centre = scale = unit = max(mean, POISSON_FLOOR)
            floor = (POISSON_FLOOR - centre) / centre
        elif loss.name == "log":
            centre, scale, unit = min(max(mean, LOG_FLOOR), 1.0 - LOG_FLOOR), 1.0, 1.0
            floor, ceiling = LOG_FLOOR - centre, 1.0 - LOG_FLOOR - centre
        else:
            centre = float(labels[int(np.argmin(np.abs(labels - mean)))])  # a label: differences to it are exact
            span = float(labels[-1] - labels[0])
            scale = 2.0 ** math.frexp(span)[1] if span > 0 else 1.0
            unit, floor = (scale * scale if loss.name == "squared" else scale), -math.inf
        x = (labels - centre) / scale
        if loss.name == "log":
            bregman = loss.pointwise(np.asarray(centre), labels)
        elif loss.name == "poisson":
            bregman = bregman_log(x)
        else:
            bregman = x * x if loss.name == "squared" else np.zeros_like(x)
        p0, p1, p2 = (prefix_sums(prior * t) for t in (np.ones_like(x), x, bregman))
        return cls(labels, prior, loss, gain, centre, scale, unit, floor, ceiling, x, p0, p1, p2)

    @property
    def k(self) -> int:
        return int(self.labels.size)

    # --- outputs ---------------------------------------------------------------------------------------------

    def best_values(self, boundaries: IntArray) -> FloatArray:
        """Compute the output of least cost of each bin, its labels weighing e^ε and all others 1: float64[d]."""
        i, j = boundaries[:-1], boundaries[1:]
        if self.loss.name != "absolute":
            weight = self.p0[-1] + self.gain * (self.p0[j] - self.p0[i])
            x = (self.p1[-1] + self.gain * (self.p1[j] - self.p1[i])) / weight
            return np.asarray(self.centre + self.scale * np.clip(x, self.floor, self.ceiling), np.float64)
        half = 0.5 * (self.p0[-1] + self.gain * (self.p0[j] - self.p0[i]))
        inside = (half + self.gain * self.p0[i]) / (1.0 + self.gain)
        after = half - self.gain * (self.p0[j] - self.p0[i])
        target = np.where(self.p0[i] >= half, half, np.where(self.p0[j] >= inside, inside, after))
        median = np.searchsorted(self.p0[1:], target - 1e-15)
        return np.asarray(self.labels[np.minimum(median, self.k - 1)], np.float64)

    def thresholds(self, values: FloatArray, following: FloatArray) -> FloatArray:
        """Compute the change of the nearer of two outputs: labels up to it belong to `values`, above it to
        `following`."""
        gap = following - values
        if self.loss.name == "poisson":
            return np.asarray(gap / np.log1p(gap / values), np.float64)
        if self.loss.name == "log":
            against = np.log1p(gap / (1.0 - following))
            return np.asarray(against / (np.log1p(gap / values) + against), np.float64)
        return np.asarray(values + 0.5 * gap, np.float64)

    def assign(self, values: FloatArray) -> tuple[IntArray, FloatArray]:
        """Assign every label to its nearest output; drop outputs without labels (they only ever cost)."""
        values = np.unique(values)
        cuts = np.searchsorted(self.labels, self.thresholds(values[:-1], values[1:]), side="right")
        boundaries = np.concatenate([[0], cuts, [self.k]]).astype(np.int64)
        used = np.diff(boundaries) > 0
        return np.concatenate([[0], boundaries[1:][used]]), values[used]

    def expected_loss(self, boundaries: IntArray, values: FloatArray) -> float:
        """Compute [Σ_j C(v_j) + (e^ε − 1)·Σ_y p_y ℓ(v_Φ(y), y)]/(e^ε + d − 1), without cancellation."""
        own = self.prior * self.loss.pointwise(np.repeat(values, np.diff(boundaries)), self.labels)
        everywhere = float(np.sum(self.overall(values))) * self.unit
        return (everywhere + self.gain * float(np.sum(own))) / (self.gain + values.size)

    def overall(self, values: FloatArray) -> FloatArray:
        """Compute C(v) = Σ_y p_y ℓ(v, y) of each value, in units."""
        index = np.searchsorted(self.labels, values, side="right")
        x = (values - self.centre) / self.scale
        return self.served(x, np.zeros_like(index), index, False) + self.served(
            x, index, np.full_like(index, self.k), True
        )

    def served(self, x: FloatArray, start: IntArray, stop: IntArray, above: bool) -> FloatArray:
        """Sum p ℓ(v, y) over the labels start … stop − 1 from outputs x; `above`: those labels are not below v."""
        s0, s1, s2 = (s[stop] - s[start] for s in (self.p0, self.p1, self.p2))
        if self.loss.name == "absolute":
            return np.asarray(s1 - x * s0 if above else x * s0 - s1, np.float64)
        if self.loss.name == "squared":
            return np.asarray(s2 - 2.0 * x * s1 + x * x * s0, np.float64)
        if self.loss.name == "log":
            v, c = self.centre + np.clip(x, self.floor, self.ceiling), np.asarray(self.centre)
            turned = np.log(v / c) - np.log((1.0 - v) / (1.0 - c))  # logit v − logit centre
            return np.asarray(s2 - s1 * turned + s0 * self.loss.pointwise(v, c), np.float64)
        log = np.log1p(np.maximum(x, self.floor))
        return np.asarray(s2 - s1 * log + s0 * (x - log), np.float64)

    # --- edges -----------------------------------------------------------------------------------------------

    def interval_row(self, i: int, stop: int | None = None) -> FloatArray:
        """Compute L of the bins i … j − 1 for j = i + 1 … k (or up to `stop`), in units."""
        end = slice(i + 1, stop)
        w0 = self.p0[-1] + self.gain * (self.p0[end] - self.p0[i])
        w1 = self.p1[-1] + self.gain * (self.p1[end] - self.p1[i])
        w2 = self.p2[-1] + self.gain * (self.p2[end] - self.p2[i])
        x = w1 / w0
        if self.loss.name == "squared":
            return np.asarray(w2 - w0 * (x * x), np.float64)
        if self.loss.name == "log":
            means = np.clip(self.centre + x, 0.0, 1.0)  # rounding
            beyond = self.loss.pointwise(means, means)  # 0 except outside the allowed range
            return np.asarray(w2 - w0 * (self.loss.pointwise(np.asarray(self.centre), means) - beyond), np.float64)
        cost = w2 - w0 * bregman_log(x)
        low = x < self.floor
        if np.any(low):
            bound = 1.0 + self.floor
            cost = np.where(
                low, cost + w0 * bound * bregman_log((np.minimum(x, self.floor) - self.floor) / bound), cost
            )
        return np.asarray(cost, np.float64)

    def interval_edges(self) -> FloatArray:
        """Compute the interval graph: float64[k + 1, k + 1], upper triangle."""
        edges = np.full((self.k + 1, self.k + 1), np.inf)
        for i in range(self.k):
            edges[i, i + 1 :] = self.interval_row(i)
        return edges

    def candidate_edges(self, candidates: FloatArray) -> FloatArray:
        """Compute the candidate graph over increasing `candidates` float64[m]: float64[m + 2, m + 2], upper
        triangle."""
        m = candidates.size
        x = (candidates - self.centre) / self.scale
        at = np.searchsorted(self.labels, candidates, side="right")
        opening = self.overall(candidates)
        edges = np.full((m + 2, m + 2), np.inf)
        edges[0, 1 : m + 1] = opening + self.gain * self.served(x, np.zeros_like(at), at, False)
        edges[1 : m + 1, m + 1] = self.gain * self.served(x, at, np.full_like(at, self.k), True)
        for a in range(m - 1):
            later = slice(a + 1, m)
            turn = np.searchsorted(self.labels, self.thresholds(candidates[a], candidates[later]), side="right")
            left = self.served(x[a], at[a], turn, True)
            right = self.served(x[later], turn, at[later], False)
            edges[a + 1, a + 2 : m + 1] = opening[later] + self.gain * (left + right)
        return edges


Path = list[int]
Search = Callable[[float], Path]
Cost = Callable[[Path], float]


def least_path(edges: FloatArray, price: float) -> Path:
    """Find the nodes of the path 0 → last of least Σ(edge − price) in an acyclic graph; fewer edges win a tie."""
    nodes = edges.shape[0]
    best, came = np.full(nodes, np.inf), np.zeros(nodes, dtype=np.int64)
    best[0] = 0.0
    for i in range(nodes - 1):
        reached = edges[i, i + 1 :] + (best[i] - price)
        better = reached < best[i + 1 :]
        np.copyto(best[i + 1 :], reached, where=better)
        came[i + 1 :][better] = i
    return trace(came)


def trace(came: IntArray) -> Path:
    """Follow predecessors from the last node to node 0; return the path in forward order."""
    path = [came.size - 1]
    while path[-1] > 0:
        path.append(int(came[path[-1]]))
    return path[::-1]


def path_cost(edges: FloatArray) -> Cost:
    """Build the cost of a path: the exactly rounded sum of its edges."""
    return lambda path: math.fsum(float(edges[i, j]) for i, j in itertools.pairwise(path))


def dinkelbach(search: Search, cost: Cost, start: Path, gain: float, closing: int) -> tuple[Path, float]:
    """Find the path of least cost/(openings + e^ε − 1), and that ratio; `closing` edges of every path open nothing.
    Dinkelbach (1967): at price λ take the least path of Σ(edge − λ), then λ ← its ratio, until it does not fall."""

    def ratio(path: Path) -> float:
        return cost(path) / (len(path) - 1 - closing + gain)

    best, price = start, ratio(start)
    for _ in range(MAX_ROUNDS):
        path = search(price)
        reached = ratio(path)
        if reached >= price:
            break
        best, price = path, reached
    return best, price
