"""An additive model with pairwise interactions, every part with its own variance, for few or noisy labels.

f = intercept + Σ main[feature] + Σ interaction[pair], tables over levels (training/levels.py); the prediction is f, or
e^f if `link` is set. Main effects of numbers are random walks over their bins; those of categories are independent.
Interactions are products of those, over coarser levels, with all main effects removed. Pairs are chosen by a score test
of their variance on the residuals of the main effects, strongest first, as many as exceed what chance alone would give.
The log link is fitted by least squares (Gauss-Newton), not by Poisson likelihood: the noise of a mechanism does not
grow with the mean, so large means weigh more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from features_party.training import reading
from features_party.training.encoding import FeatureSchema
from features_party.training.learner import FittedModel, Graph, ModelInput, Ports, feature_names
from features_party.training.learners.levels import Feature
from features_party.training.learners.variance import BlockStatistics, DesignBlock, Posterior, empirical_bayes, moments
from features_party.training.links import Link, PoissonScore, read_link
from label_dp.schemas.json_types import JsonObject

FloatArray = npt.NDArray[np.float64]
Places = npt.NDArray[np.unsignedinteger]  # the smallest type that holds the levels
Coarse = npt.NDArray[np.int32]
Report = Callable[[float], None]

COARSE = 8  # levels of a number within a pair
COARSE_VALUES = 12  # values of a category within a pair; the rest is one level
REACH = 2.5  # length scale of an interaction, in levels
MOST_PAIRS = 12
STEPS = 10  # of the variances; twice as many move predictions by a hundredth of their spread
LOG_STEPS = 2  # of Gauss and Newton
FALSE_PAIRS = 3.0  # expected number of pairs without any effect that a model takes in
SMALLEST_ROOT = 3e-3  # of the largest eigenvalue of a prior: smoother parts than labels could identify are left out


@dataclass(frozen=True)
class Interaction:
    """Features `first` and `second` by position, the coarse level of each of their levels, float64[coarse, coarse]."""

    first: int
    second: int
    rows: Coarse
    columns: Coarse
    table: FloatArray

    def places(self, levels: Sequence[Places]) -> Places:
        place = self.rows[levels[self.first]] * self.table.shape[1] + self.columns[levels[self.second]]
        return np.asarray(place, np.min_scalar_type(self.table.size))


@dataclass(frozen=True)
class Additive(FittedModel):
    """Additive model: `main[j]` float64[levels] of feature j; `spreads` are the variances of all tables over the
    training rows."""

    features: tuple[Feature, ...]
    intercept: float
    main: tuple[FloatArray, ...]
    pairs: tuple[Interaction, ...]
    spreads: tuple[float, ...]
    link: Link | None

    def importance(self, schema: FeatureSchema) -> dict[str, float]:
        """Return the share of the spread of the score by input; an interaction counts half for each of its inputs."""
        of = feature_names(schema)
        names = [of[f.source][f.at] for f in self.features]
        shares = dict.fromkeys(names, 0.0)
        for name, spread in zip(names, self.spreads, strict=False):
            shares[name] += spread
        for pair, spread in zip(self.pairs, self.spreads[len(names) :], strict=True):
            for at in (pair.first, pair.second):
                shares[names[at]] += spread / 2.0
        total = sum(shares.values()) or 1.0
        return {name: share / total for name, share in shares.items()}

    def score(self, inputs: ModelInput) -> FloatArray:
        """Compute the score before the link, float64[n]."""
        levels = [feature.places(inputs) for feature in self.features]
        total = np.full(len(inputs), self.intercept)
        for table, places in zip(self.main, levels, strict=True):
            total += table[places]
        for pair in self.pairs:
            total += pair.table.ravel()[pair.places(levels)]
        return total

    def linked(self, score: FloatArray) -> FloatArray:
        """Map scores float64[n] to predictions."""
        return score if self.link is None else self.link.predictions(score)

    def predict(self, inputs: ModelInput, threads: int = 1) -> FloatArray:
        return self.linked(self.score(inputs))

    def nodes(self, graph: Graph, ports: Ports) -> str:
        levels = [feature.nodes(graph, ports) for feature in self.features]
        score = graph.constant([[self.intercept]], np.float64)
        for table, level in zip(self.main, levels, strict=True):
            score = graph.add("Add", score, graph.looked_up(level, table, np.float64))
        for pair in self.pairs:
            row = graph.looked_up(levels[pair.first], pair.rows, np.int64)
            column = graph.looked_up(levels[pair.second], pair.columns, np.int64)
            cell = graph.add("Add", graph.whole("Mul", row, pair.table.shape[1]), column)
            score = graph.add("Add", score, graph.looked_up(cell, pair.table.ravel(), np.float64))
        return score

    def as_json(self) -> JsonObject:
        link = None if self.link is None else self.link.as_json()
        return {
            "link": link,
            "features": [feature.as_json() for feature in self.features],
            "intercept": self.intercept,
            "spreads": list(self.spreads),
            "main": [table.tolist() for table in self.main],
            "pairs": [
                {
                    "first": pair.first,
                    "second": pair.second,
                    "rows": pair.rows.tolist(),
                    "columns": pair.columns.tolist(),
                    "table": pair.table.tolist(),
                }
                for pair in self.pairs
            ],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any], numbers: int, sizes: list[int]) -> Additive:
        features = tuple(Feature.from_json(feature) for feature in reading.listed(data["features"]))
        for feature in features:
            feature.check(numbers, sizes)
        tables = reading.listed(data["main"], len(features))
        main = tuple(reading.numbers(table, f.size) for table, f in zip(tables, features, strict=True))
        pairs = []
        for one in reading.listed(data["pairs"]):
            lines = reading.listed(one["table"])
            table = np.stack([reading.numbers(line, len(lines[0])) for line in lines])
            first, second = (reading.whole(one[key], 0, len(features) - 1) for key in ("first", "second"))
            rows, columns = (
                reading.wholes(one[key], 0, size - 1, features[at].size).astype(np.int32)
                for key, at, size in (("rows", first, table.shape[0]), ("columns", second, table.shape[1]))
            )
            pairs.append(Interaction(first, second, rows, columns, table))
        link = read_link(data["link"])
        spreads = tuple(reading.numbers(data["spreads"], len(features) + len(pairs)).tolist())
        return cls(features, reading.number(data["intercept"]), main, tuple(pairs), spreads, link)


@dataclass(frozen=True)
class TrainingRows:
    """Training rows for both links: levels uint8[n] by feature, labels and weights float64[n] (mean 1, or None)."""

    features: tuple[Feature, ...]
    levels: Sequence[Places]
    labels: FloatArray
    weights: FloatArray | None
    signal: float  # approximate variance of the labels without noise

    @classmethod
    def of(
        cls, features: list[Feature], inputs: ModelInput, labels: FloatArray, weights: FloatArray | None, signal: float
    ) -> TrainingRows:
        levels = [feature.places(inputs) for feature in features]
        return cls(tuple(features), levels, labels, weights, max(signal, 1e-300))


@dataclass(frozen=True)
class AdditiveFit:
    """Fitted model, with the state from which a further one on the same rows starts."""

    model: Additive
    blocks: list[DesignBlock]
    shapes: tuple[Interaction, ...]
    posterior: Posterior
    predictions: FloatArray


def fit_main(rows: TrainingRows, report: Report) -> AdditiveFit:
    """Fit main effects only, with the identity link."""
    blocks = [_main_block(f, p) for f, p in zip(rows.features, rows.levels, strict=True)]
    data = moments(blocks, rows.labels, rows.weights, lambda share: report(0.4 * share))
    start = np.full(len(blocks), rows.signal / max(len(blocks), 1))
    residual = max(data.square / max(data.rows, 1.0), 1e-300)
    posterior = empirical_bayes(data, rows.signal, residual, start, STEPS, lambda share: report(0.4 + 0.6 * share))
    return _fitted(rows, blocks, (), data, posterior)


def fit_pairs(rows: TrainingRows, main: AdditiveFit, report: Report) -> AdditiveFit:
    """Fit main effects and the interactions supported by the residuals of `main`; returns `main` if there are none."""
    shapes, blocks = _interactions(rows, main, lambda share: report(0.3 * share))
    if not shapes:
        return main
    every = [*main.blocks, *blocks]
    data = moments(every, rows.labels, rows.weights, lambda share: report(0.3 + 0.3 * share))
    start = np.concatenate([main.posterior.block_variances, np.full(len(blocks), 0.01 * rows.signal)])
    residual = main.posterior.residual_variance
    posterior = empirical_bayes(data, rows.signal, residual, start, STEPS, lambda share: report(0.6 + 0.4 * share))
    return _fitted(rows, every, shapes, data, posterior)


def fit_log(rows: TrainingRows, start: AdditiveFit, bounds: tuple[float, float], report: Report) -> AdditiveFit:
    """Fit the blocks of `start` under the log link, with predictions between `bounds`."""
    mean = float(np.average(rows.labels, weights=rows.weights))
    link = PoissonScore.around(mean, max(bounds[0], 0.02 * min(max(mean, 0.0), bounds[1])), bounds[1])
    square = link.scale * link.scale
    variances = np.maximum(start.posterior.block_variances, 1e-5 * rows.signal) / square
    signal, residual = rows.signal / square, start.posterior.residual_variance
    predictions = np.clip(start.predictions, np.exp(link.low), np.exp(link.high))
    score = np.log(predictions)
    weights = np.ones(len(score)) if rows.weights is None else rows.weights
    additive_fit = start
    for step in range(LOG_STEPS):
        report(step / LOG_STEPS)
        # in units of the mean prediction, so that the residual variance stays that of a row
        slope = predictions / link.scale
        working = score + (rows.labels - predictions) / (link.scale * slope)
        data = moments(start.blocks, working, weights * slope * slope, lambda _share: None)
        posterior = empirical_bayes(data, signal, residual / square, variances, STEPS // 2)
        variances = posterior.block_variances
        additive_fit = _fitted(rows, start.blocks, start.shapes, data, posterior, link)
        score = np.clip(additive_fit.predictions, link.low, link.high)
        predictions = np.exp(score)
    return AdditiveFit(additive_fit.model, start.blocks, start.shapes, additive_fit.posterior, predictions)


def _fitted(
    rows: TrainingRows,
    blocks: list[DesignBlock],
    shapes: tuple[Interaction, ...],
    data: BlockStatistics,
    posterior: Posterior,
    link: PoissonScore | None = None,
) -> AdditiveFit:
    tables = [
        block.roots @ posterior.coefficients[data.starts[at] : data.starts[at + 1]] for at, block in enumerate(blocks)
    ]
    intercept = data.mean - float(data.middle @ posterior.coefficients) / data.total
    predictions = np.full(len(rows.labels), intercept)
    spreads = []
    for block, table in zip(blocks, tables, strict=True):
        part = table[block.places]
        spreads.append(float(np.var(part)))
        predictions += part
    mains = len(rows.features)
    pairs = tuple(
        Interaction(s.first, s.second, s.rows, s.columns, table.reshape(s.table.shape))
        for s, table in zip(shapes, tables[mains:], strict=True)
    )
    model = Additive(rows.features, intercept, tuple(tables[:mains]), pairs, tuple(spreads), link)
    return AdditiveFit(model, blocks, shapes, posterior, predictions)


# --- priors and choice of pairs --------------------------------------------------------------------------------


def _covariance(feature: Feature) -> FloatArray:
    """Return the prior over the levels of a main effect: a random walk over bins except missing; values are
    independent."""
    if not feature.ordered:
        return np.eye(feature.size)
    steps = np.arange(feature.size - 1) / max(feature.size - 2, 1)
    covariance = np.eye(feature.size)
    covariance[1:, 1:] = np.minimum.outer(steps, steps)
    return covariance


def _roots(covariance: npt.NDArray[np.floating], counts: FloatArray) -> FloatArray:
    """Return roots float64[levels, r]: roots·rootsᵀ is the covariance in units of its mean variance over the rows."""
    mean = float(counts @ np.diag(covariance)) / max(float(counts.sum()), 1.0)
    if mean <= 1e-12:
        return np.zeros((len(counts), 0))
    values, vectors = np.linalg.eigh((covariance + covariance.T) / (2.0 * mean))
    large = values > SMALLEST_ROOT * values.max()
    return np.asarray(vectors[:, large] * np.sqrt(values[large]), np.float64)


def _centred(covariance: FloatArray, counts: FloatArray) -> FloatArray:
    """Return the covariance of the effect less its mean over the rows."""
    off = np.eye(len(counts)) - counts[None, :] / max(float(counts.sum()), 1.0)
    return np.asarray(off @ covariance @ off.T, np.float64)


def _main_block(feature: Feature, places: Places) -> DesignBlock:
    counts = np.bincount(places, minlength=feature.size).astype(np.float64)
    return DesignBlock(places, _roots(_centred(_covariance(feature), counts), counts))


def _coarse(feature: Feature, counts: FloatArray) -> Coarse:
    """Coarsen levels to int32[levels]: neighbouring bins in equal shares of the rows, or the frequent values kept
    separate."""
    if feature.ordered:
        if feature.size <= COARSE + 2:
            coarse = np.arange(feature.size)
        else:
            middle = (np.cumsum(counts) - counts / 2.0) / max(float(counts.sum()), 1.0)
            coarse = np.minimum((middle * COARSE).astype(np.int64), COARSE - 1)
    else:
        frequent = np.argsort(-counts, kind="stable")[:COARSE_VALUES]
        coarse = np.full(feature.size, len(frequent))
        coarse[frequent] = np.arange(len(frequent))
    return np.asarray(np.unique(coarse, return_inverse=True)[1], np.int32)


def _pair_covariance(feature: Feature, levels: int, counts: FloatArray) -> FloatArray:
    at = np.arange(levels)
    alike = np.exp(-np.abs(at[:, None] - at) / REACH) if feature.ordered else np.eye(levels)
    return _centred(alike, counts)


def _interactions(
    rows: TrainingRows, main: AdditiveFit, report: Report
) -> tuple[tuple[Interaction, ...], list[DesignBlock]]:
    """Return shapes (tables still empty) and blocks of the pairs that pass the score test."""
    from scipy.stats import norm

    n = len(rows.features)
    weights = np.ones(len(rows.labels)) if rows.weights is None else rows.weights
    residual = weights * (rows.labels - main.predictions)
    coarse = [
        _coarse(f, np.bincount(p, minlength=f.size).astype(np.float64))
        for f, p in zip(rows.features, rows.levels, strict=True)
    ]
    sizes = [int(c.max()) + 1 for c in coarse]
    places = [c.astype(np.uint8)[p] for c, p in zip(coarse, rows.levels, strict=True)]
    shares = [np.bincount(p, weights, minlength=size).astype(np.float64) for p, size in zip(places, sizes, strict=True)]
    alike = [_pair_covariance(f, k, c) for f, k, c in zip(rows.features, sizes, shares, strict=True)]
    tested: list[tuple[float, int, int]] = []
    for i in range(n):
        report(i / n)
        own = places[i].astype(np.int32)
        for j in range(i):
            joint = own * sizes[j] + places[j]
            sums = np.bincount(joint, residual, minlength=sizes[i] * sizes[j]).astype(np.float64)
            counts = np.bincount(joint, weights, minlength=sizes[i] * sizes[j]).astype(np.float64)
            score = _score(sums, counts, alike[i], alike[j], main.posterior.residual_variance)
            tested.append((score, i, j))
    if not tested:
        return (), []
    enough = float(norm.isf(min(FALSE_PAIRS / len(tested), 0.5)))
    strongest = sorted((t for t in tested if t[0] > enough), reverse=True)[:MOST_PAIRS]
    shapes = tuple(Interaction(i, j, coarse[i], coarse[j], np.zeros((sizes[i], sizes[j]))) for _, i, j in strongest)
    blocks = []
    for shape in shapes:
        cells = shape.places(rows.levels)
        counts = np.bincount(cells, weights, minlength=shape.table.size).astype(np.float64)
        blocks.append(DesignBlock(cells, _roots(np.kron(alike[shape.first], alike[shape.second]), counts)))
    return shapes, blocks


def _score(sums: FloatArray, counts: FloatArray, first: FloatArray, second: FloatArray, variance: float) -> float:
    """Score the residual sums float64[cells] along the prior of an interaction against chance.

    About standard normal without an interaction: the derivative of the marginal likelihood at an interaction variance
    of 0.
    """
    shape = (len(first), len(second))
    folded = first @ sums.reshape(shape) @ second
    covariance = np.kron(first, second)
    scaled = covariance * counts[None, :]
    spread = float(np.sum(scaled * scaled.T))
    expected = variance * float(np.diag(covariance) @ counts)
    if spread <= 0.0:
        return 0.0
    return (float(np.sum(folded * sums.reshape(shape))) - expected) / (variance * float(np.sqrt(2.0 * spread)))
