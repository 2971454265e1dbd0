"""Gaussian process regression with an ANOVA kernel: all interactions, for few effective rows.

    k(x, x′) = Π_j (1 + s_j·k_j(x_j, x′_j)) − 1

Each feature j has a strength s_j ≥ 0 (0 leaves it out) and, if it is ordered, a length scale; expanding the product
gives main effects and every interaction, weaker the higher its order (Duvenaud, Nickisch & Rasmussen 2011, "Additive
Gaussian processes"). Strengths and length scales are chosen feature by feature by the evidence, the marginal likelihood
of the labels, which needs no held-out rows and accounts for labels that are mostly noise. Rows enter through landmarks
(Nyström). Features are levels (training/levels.py), so a factor is a table.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from features_party.training import reading
from features_party.training.draws import Draws, shuffled
from features_party.training.encoding import FeatureSchema, Float32
from features_party.training.learner import FittedModel, Graph, ModelInput, Ports, feature_names
from features_party.training.learners.levels import Feature
from label_dp.schemas.json_types import JsonObject

FloatArray = npt.NDArray[np.float64]
Cells = npt.NDArray[np.uint8]
Report = Callable[[float], None]

LANDMARKS = 500
SEARCH_LANDMARKS = 100
SEARCH_ROWS = 1 << 17
SEARCH_FEATURES = 24  # the strongest by themselves, many of which are redundant: a dozen of 40 reached half the gain
SWEEPS = 2
JITTER = 1e-4  # of the mean of the landmarks' own kernel
SEARCH_JITTER = 1e-2
CHUNK = 1 << 12
GAIN = 1.0  # of log evidence, to add a feature
RIDGES = 10.0 ** np.linspace(-6, 2, 49)  # of the largest eigenvalue
FIRST = 0.5  # initial strength and length scale (of all levels) of a feature


@dataclass(frozen=True)
class Kernel:
    """Strength and length scale per feature; a feature of strength 0 is ignored."""

    features: tuple[Feature, ...]
    strengths: tuple[float, ...]
    lengths: tuple[float, ...]

    @classmethod
    def empty(cls, features: list[Feature]) -> Kernel:
        return cls(tuple(features), (0.0,) * len(features), (FIRST,) * len(features))

    def changed(self, at: int, strength: float, length: float) -> Kernel:
        strengths, lengths = list(self.strengths), list(self.lengths)
        strengths[at], lengths[at] = strength, length
        return replace(self, strengths=tuple(strengths), lengths=tuple(lengths))

    def kept(self) -> Kernel:
        """Drop the features of strength 0."""
        at = [i for i, s in enumerate(self.strengths) if s > 0.0]
        return Kernel(
            tuple(self.features[i] for i in at),
            tuple(self.strengths[i] for i in at),
            tuple(self.lengths[i] for i in at),
        )

    def cells(self, inputs: ModelInput) -> Cells:
        """Return the level of each row in each feature, uint8[n, p]."""
        out = np.empty((len(inputs), len(self.features)), np.uint8)
        for at, feature in enumerate(self.features):
            out[:, at] = feature.places(inputs)
        return out

    def factor(self, at: int) -> Float32:
        """Return float32[levels, levels]: 1 + s·k, k Gaussian over the ranks of ordered levels, else equality."""
        feature, k = self.features[at], np.eye(self.features[at].size)
        if feature.ordered:
            ranks = np.arange(feature.size - 1) / max(feature.size - 2, 1)
            k[1:, 1:] = np.exp(-0.5 * ((ranks[:, None] - ranks[None, :]) / self.lengths[at]) ** 2)
        return np.asarray(1.0 + self.strengths[at] * k, np.float32)

    def between(self, cells: Cells, landmarks: Cells) -> FloatArray:
        """Return float64[n, m] for cells uint8[n, p] and landmarks uint8[m, p]."""
        out = np.ones((len(cells), len(landmarks)), np.float64)
        for at, strength in enumerate(self.strengths):
            if strength > 0.0:
                out *= self.factor(at)[:, landmarks[:, at]][cells[:, at]]
        return out - 1.0


@dataclass(frozen=True)
class Sums:
    """Of kernel columns K float64[n, m], labels z and weights w: Σ wKᵀK, Σ wKᵀz, Σ wK, Σ wz, Σ wz², Σ w."""

    gram: FloatArray
    cross: FloatArray
    total: FloatArray
    label: float
    square: float
    weight: float

    @classmethod
    def over(cls, columns: Callable[[slice], FloatArray], m: int, z: FloatArray, w: FloatArray) -> Sums:
        """Compute the sums in 64 bits: the small directions of a kernel carry its interactions."""
        gram, cross, total = np.zeros((m, m)), np.zeros(m), np.zeros(m)
        for start in range(0, len(z), CHUNK):
            rows = slice(start, start + CHUNK)
            root = np.sqrt(w[rows])
            part = columns(rows) * root[:, None]
            gram += part.T @ part  # of one array by itself: half the products
            cross += part.T @ (root * z[rows])
            total += part.T @ root
        return cls(gram, cross, total, float(w @ z), float(w @ (z * z)), float(w.sum()))


@dataclass(frozen=True)
class Solution:
    """Solution: log evidence above a constant's; weights float64[m] of the kernel columns; the intercept."""

    evidence: float
    weights: FloatArray
    offset: float


def solve(sums: Sums, among: FloatArray, jitter: float = JITTER) -> Solution:
    """Solve for the posterior mean under the ridge (noise over signal variance) of the largest evidence.

    The noise variance is integrated out at its most likely value. `among` float64[m, m] is the landmarks' own kernel.
    """
    m = len(among)
    factor = np.linalg.cholesky(among + jitter * max(float(np.trace(among)) / m, 1e-12) * np.eye(m))
    mean, middle = sums.label / sums.weight, sums.total / sums.weight
    half = np.linalg.solve(factor, sums.gram - sums.weight * np.outer(middle, middle))
    values, vectors = np.linalg.eigh(np.linalg.solve(factor, half.T))
    values = np.maximum(values, 0.0)
    along = vectors.T @ np.linalg.solve(factor, sums.cross - sums.label * middle)
    rest = max(sums.square - sums.label * mean, 1e-300)

    def evidence(ridge: float) -> float:
        residual = max(rest - float(np.sum(along * along / (values + ridge))), 1e-12 * rest)
        return -0.5 * sums.weight * math.log(residual / rest) - 0.5 * float(np.sum(np.log1p(values / ridge)))

    ridge = max((max(float(values.max()), 1e-12) * r for r in RIDGES), key=evidence)
    weights = np.linalg.solve(factor.T, vectors @ (along / (values + ridge)))
    return Solution(evidence(ridge), weights, mean - float(middle @ weights))


@dataclass(frozen=True)
class Gaussian(FittedModel):
    """Fitted process: offset + kernel(row, landmarks) @ weights."""

    kernel: Kernel
    landmarks: Cells
    weights: FloatArray
    offset: float
    link = None

    def importance(self, schema: FeatureSchema) -> dict[str, float]:
        """Return the share of the log of the kernel's largest value by feature: its part in deciding which rows are
        similar."""
        of = feature_names(schema)
        names = [of[f.source][f.at] for f in self.kernel.features]
        parts = [math.log1p(strength) for strength in self.kernel.strengths]
        return {name: part / sum(parts) for name, part in zip(names, parts, strict=True)}

    def predict(self, inputs: ModelInput, threads: int = 1) -> FloatArray:
        cells = self.kernel.cells(inputs)
        out = np.empty(len(cells))
        for start in range(0, len(cells), CHUNK):
            rows = slice(start, start + CHUNK)
            out[rows] = self.offset + self.kernel.between(cells[rows], self.landmarks) @ self.weights
        return out

    def nodes(self, graph: Graph, ports: Ports) -> str:
        """Add one table of factors per feature, and their product over features against the landmarks."""
        product = ""
        for at, feature in enumerate(self.kernel.features):
            table = self.kernel.factor(at)[:, self.landmarks[:, at]]
            rows = graph.looked_up(feature.nodes(graph, ports), table, np.float64)
            factor = graph.add("Squeeze", rows, graph.constant([1], np.int64))
            product = graph.add("Mul", product, factor) if product else factor
        kernel = graph.add("Sub", product, graph.constant(1.0, np.float64))
        sums = graph.add("MatMul", kernel, graph.constant(self.weights[:, None], np.float64))
        return graph.add("Add", sums, graph.constant(self.offset, np.float64))

    def as_json(self) -> JsonObject:
        kernel = self.kernel
        return {
            "features": [feature.as_json() for feature in kernel.features],
            "strengths": list(kernel.strengths),
            "lengths": list(kernel.lengths),
            "landmarks": self.landmarks.tolist(),
            "weights": self.weights.tolist(),
            "offset": self.offset,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any], numbers: int, sizes: list[int]) -> Gaussian:
        features = tuple(Feature.from_json(one) for one in reading.listed(data["features"]))
        for feature in features:
            feature.check(numbers, sizes)
        p = len(features)
        strengths, lengths = (tuple(reading.numbers(data[name], p).tolist()) for name in ("strengths", "lengths"))
        weights = reading.numbers(data["weights"])
        rows = [reading.wholes(row, 0, 255, p) for row in reading.listed(data["landmarks"], len(weights))]
        landmarks = np.array(rows, np.uint8).reshape(len(weights), p)
        if not all(v > 0.0 for v in (*strengths, *lengths)):
            raise ValueError("the kernel does not fit its features")
        if any(int(landmarks[:, at].max(initial=0)) >= feature.size for at, feature in enumerate(features)):
            raise ValueError("a landmark has a level that its feature has not")
        return cls(Kernel(features, strengths, lengths), landmarks, weights, reading.number(data["offset"]))


class Search:
    """Coordinate ascent of the evidence on few landmarks, one feature's factor at a time."""

    def __init__(self, features: list[Feature], cells: Cells, z: FloatArray, w: FloatArray, draws: Draws) -> None:
        order = shuffled(draws, "search of a kernel")
        rows = np.sort(order[:SEARCH_ROWS])
        self.cells, self.z, self.w = cells[rows], z[rows] - np.average(z[rows], weights=w[rows]), w[rows]
        self.landmarks = cells[order[:SEARCH_LANDMARKS]]
        self.kernel = Kernel.empty(features)
        m = len(self.landmarks)
        self.products, self.among = np.ones((len(rows), m), np.float32), np.ones((m, m))
        self.best = 0.0

    def alone(self, at: int) -> float:
        """Return the evidence of a feature by itself, from sums over its levels."""
        cells, size = self.cells[:, at], self.kernel.features[at].size
        weight, label = np.bincount(cells, self.w, size), np.bincount(cells, self.w * self.z, size)
        here = np.flatnonzero(weight > 0)
        own = self.kernel.changed(at, 1.0, FIRST / 2).factor(at).astype(np.float64)[np.ix_(here, here)] - 1.0
        w, y = weight[here], label[here]
        square = float(self.w @ (self.z * self.z))
        sums = Sums(own @ (w[:, None] * own), own @ y, own @ w, float(y.sum()), square, float(w.sum()))
        return solve(sums, own).evidence

    def tried(self, at: int, strength: float, length: float) -> float:
        """Return the evidence with other settings of a feature."""
        if strength == 0.0 and not any(s for i, s in enumerate(self.kernel.strengths) if i != at):
            return 0.0  # only the constant is left
        ratio = self._ratio(at, strength, length)

        def columns(rows: slice) -> FloatArray:
            return np.asarray(self.products[rows] * ratio[self.cells[rows, at]] - 1.0, np.float64)

        sums = Sums.over(columns, len(self.landmarks), self.z, self.w)
        return solve(sums, self.among * ratio[self.landmarks[:, at]] - 1.0, SEARCH_JITTER).evidence

    def take(self, at: int, strength: float, length: float, evidence: float) -> None:
        ratio = self._ratio(at, strength, length)
        self.among = self.among * ratio[self.landmarks[:, at]]
        for start in range(0, len(self.cells), CHUNK):
            rows = slice(start, start + CHUNK)
            self.products[rows] *= ratio[self.cells[rows, at]]
        self.kernel, self.best = self.kernel.changed(at, strength, length), evidence

    def _ratio(self, at: int, strength: float, length: float) -> Float32:
        ratio = self.kernel.changed(at, strength, length).factor(at) / self.kernel.factor(at)
        return np.asarray(ratio[:, self.landmarks[:, at]], np.float32)


def choose_kernel(
    features: list[Feature], cells: Cells, z: FloatArray, w: FloatArray, draws: Draws, report: Report
) -> Kernel:
    """Choose strengths and length scales for cells uint8[n, p], labels and weights float64[n], strongest features
    first."""
    search = Search(features, cells, z, w, draws)
    alone = [search.alone(at) for at in range(len(features))]
    order = sorted(range(len(features)), key=lambda at: -alone[at])[:SEARCH_FEATURES]
    steps = [(sweep, at) for sweep in range(SWEEPS) for at in order]
    for finished, (sweep, at) in enumerate(steps):
        report(finished / len(steps))
        now = best_setting = (search.kernel.strengths[at], search.kernel.lengths[at])
        best = search.best
        for strength, length in _candidates(features[at].ordered, now, sweep, alone[at] > GAIN):
            evidence = search.tried(at, strength, length)
            if evidence > best + (GAIN if best_setting == now and now[0] == 0.0 else 0.0):
                best, best_setting = evidence, (strength, length)
        if best_setting != now:
            search.take(at, *best_setting, best)
    return search.kernel.kept()


def _candidates(ordered: bool, now: tuple[float, float], sweep: int, alone: bool) -> list[tuple[float, float]]:
    strength, length = now
    if sweep == 0:
        if not alone:  # it may still change the effect of others
            return [(FIRST, FIRST)]
        return [(s, v) for v in ((0.12, 0.5) if ordered else (length,)) for s in (0.1, 0.5, 2.0)]
    if strength == 0.0:
        return []
    neighbours = [(strength * 2.0, length), (strength / 2.0, length), (0.0, length)]
    return neighbours + ([(strength, length * 1.6), (strength, length / 1.6)] if ordered else [])


def fit_gaussian(kernel: Kernel, cells: Cells, z: FloatArray, w: FloatArray, draws: Draws, report: Report) -> Gaussian:
    """Fit the process for a kernel of strengths above 0, cells uint8[n, p] of its features, z and weights w
    float64[n]."""
    order = shuffled(draws, "landmarks")[: 4 * LANDMARKS]
    # rows that are equal under the kernel are one landmark
    _, first = np.unique(cells[order], axis=0, return_index=True)
    landmarks = cells[order[np.sort(first)[:LANDMARKS]]]

    def columns(rows: slice) -> FloatArray:
        report(rows.start / len(z))
        return kernel.between(cells[rows], landmarks)

    solution = solve(Sums.over(columns, len(landmarks), z, w), kernel.between(landmarks, landmarks))
    return Gaussian(kernel, landmarks, solution.weights, solution.offset)
