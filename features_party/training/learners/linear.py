"""Ridge regression, Poisson regression with log link, or logistic regression through the channels, on standardised
numbers and categories."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from features_party.training import reading
from features_party.training.encoding import Codes, Encoded, Float32
from features_party.training.learner import CrossFit, Fit, Graph, Learner, ModelInput, Ports, Sample, Task
from features_party.training.learners.chance import NOTHING
from features_party.training.learners.comparison import CHANCE, SMALLEST, Objective, out_of_fold
from features_party.training.learners.ridge import Chunks, Moments, scored
from features_party.training.likelihood import RowLikelihood
from features_party.training.links import Link, PoissonScore, read_link
from features_party.training.progress import part
from label_dp.progress import Progress
from label_dp.schemas.json_types import JsonObject

FloatArray = npt.NDArray[np.float64]

ONE_HOT = 32  # categories with more values than this enter through their effects only
SMALLEST_SPREAD = 1e-12
LARGEST = 10.0  # standard deviations: a value far outside the training range must not decide alone
CHUNK_ROWS = 1 << 16
KEPT_CELLS = 1 << 26
MOST = 1 << 31


@dataclass(frozen=True)
class Design:
    """Map from encoded rows to columns: standardised numbers (missing as the mean, with an indicator if any is missing
    in training), indicators of the values of small categories, standardised effects of the large ones."""

    mean: FloatArray
    spread: FloatArray
    gaps: tuple[int, ...]
    one_hot: tuple[tuple[int, int], ...]  # (category, number of its values)
    large: tuple[int, ...]

    @classmethod
    def learn(cls, encoded: Encoded, effects: Float32, sizes: list[int]) -> Design:
        large = tuple(at for at, size in enumerate(sizes) if size - 1 > ONE_HOT)
        numbers = np.hstack([encoded.numbers, effects[:, large]]).astype(np.float64)
        present = np.isfinite(numbers)
        count = np.maximum(present.sum(axis=0), 1)
        filled = np.where(present, numbers, 0.0)
        mean = filled.sum(axis=0) / count
        spread = np.sqrt(np.where(present, (numbers - mean) ** 2, 0.0).sum(axis=0) / count)
        gaps = tuple(int(at) for at in np.flatnonzero(~present.all(axis=0) & present.any(axis=0)))
        one_hot = tuple((at, size - 1) for at, size in enumerate(sizes) if 0 < size - 1 <= ONE_HOT)
        return cls(mean, spread, gaps, one_hot, large)

    @property
    def width(self) -> int:
        return len(self.mean) + len(self.gaps) + sum(size for _, size in self.one_hot)

    @property
    def scale(self) -> FloatArray:
        """Scale of the numbers, float64[columns of numbers]; infinite for a column that did not vary, which removes
        it."""
        return np.where(self.spread > SMALLEST_SPREAD * (1.0 + np.abs(self.mean)), self.spread, np.inf)

    def columns(self, numbers: Float32, codes: Codes, effects: Float32) -> FloatArray:
        """Build the columns, float64[n, width]."""
        values = np.hstack([numbers, effects[:, self.large]]).astype(np.float64)
        present = np.isfinite(values)
        standard = np.clip(np.where(present, (values - self.mean) / self.scale, 0.0), -LARGEST, LARGEST)
        parts = [standard, (~present[:, self.gaps]).astype(np.float64)]
        parts += [(codes[:, [at]] == np.arange(size)).astype(np.float64) for at, size in self.one_hot]
        return np.hstack(parts)

    def chunks(self, inputs: ModelInput) -> Chunks:
        """Split the columns into chunks of rows."""
        for start in range(0, len(inputs), CHUNK_ROWS):
            rows = slice(start, start + CHUNK_ROWS)
            yield rows, self.columns(inputs.encoded.numbers[rows], inputs.encoded.codes[rows], inputs.effects[rows])

    def as_json(self) -> JsonObject:
        return {
            "mean": self.mean.tolist(),
            "spread": self.spread.tolist(),
            "gaps": list(self.gaps),
            "one_hot": [list(pair) for pair in self.one_hot],
            "large": list(self.large),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Design:
        """Parse the output of `as_json`. Raises KeyError, TypeError or ValueError for anything else."""
        mean = reading.numbers(data["mean"])
        pairs = [reading.wholes(pair, 0, MOST, 2).tolist() for pair in reading.listed(data["one_hot"])]
        return cls(
            mean,
            reading.numbers(data["spread"], len(mean)),
            tuple(reading.wholes(data["gaps"], 0, len(mean) - 1).tolist()),
            tuple((at, size) for at, size in pairs),
            tuple(reading.wholes(data["large"], 0, MOST).tolist()),
        )

    def check(self, numbers: int, sizes: list[int]) -> None:
        """Raise ValueError if it does not fit this number of numbers and categories of these sizes."""
        small = [at for at, _ in self.one_hot]
        if len(self.mean) != numbers + len(self.large) or len({*small, *self.large}) < len(small) + len(self.large):
            raise ValueError("the design does not fit the features")
        if any(at >= len(sizes) for at in self.large) or any(sizes[at] - 1 != size for at, size in self.one_hot):
            raise ValueError("the design does not fit the categories")


@dataclass(frozen=True)
class Linear(Learner):
    """Linear model intercept + columns · coefficients, through `link` if it is set."""

    design: Design
    intercept: float
    coefficients: FloatArray
    link: Link | None

    @classmethod
    def fit(cls, sample: Sample, task: Task, progress: Progress) -> Fit:
        """Fit ridge (squared, absolute), penalised Poisson or logistic regression; the intercept is not shrunk."""
        if task.compared and sample.apart >= SMALLEST:
            return _compared(sample, task if task.loss != "absolute" else replace(task, loss="squared"), progress)
        model_input, effects = sample.seen(task, lambda share: progress("effects of categories", 0.1 * share))
        return Fit(_fitted(model_input, sample, task, part(progress, 0.1, 0.9)), effects)

    def predict(self, inputs: ModelInput, threads: int = 1) -> FloatArray:
        score = self.scores(inputs)
        return score if self.link is None else self.link.predictions(score)

    def scores(self, inputs: ModelInput) -> FloatArray:
        """Compute the scores before the link, float64[n]."""
        out = np.empty(len(inputs))
        for rows, columns in self.design.chunks(inputs):
            out[rows] = self.intercept + columns @ self.coefficients
        return out

    def nodes(self, graph: Graph, ports: Ports) -> str:
        design, weights = self.design, self.coefficients
        numbers = ports.numbers + [ports.effect(graph, at) for at in design.large]
        score = graph.constant([[self.intercept]], np.float64)
        # a model of small categories only has no numbers; the shape then comes from them
        if numbers:
            standard, missing = graph.standardised(numbers, design.mean, design.scale, LARGEST)
            width = len(design.mean)
            gaps = np.zeros(width)
            gaps[list(design.gaps)] = weights[width : width + len(design.gaps)]
            for term, by in ((standard, weights[:width]), (graph.double(missing), gaps)):
                score = graph.add("Add", score, graph.add("MatMul", term, graph.constant(by[:, None], np.float64)))
        start = len(design.mean) + len(design.gaps)
        for at, size in design.one_hot:
            table = np.concatenate([[0.0], weights[start : start + size]])
            score = graph.add("Add", score, graph.looked_up(ports.index[at], table, np.float64))
            start += size
        return score

    def as_json(self) -> JsonObject:
        link = None if self.link is None else self.link.as_json()
        return {
            "link": link,
            "design": self.design.as_json(),
            "intercept": self.intercept,
            "coefficients": self.coefficients.tolist(),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any], numbers: int, sizes: list[int]) -> Linear:
        link = read_link(data["link"])
        design = Design.from_json(data["design"])
        design.check(numbers, sizes)
        coefficients = reading.numbers(data["coefficients"], design.width)
        return cls(design, reading.number(data["intercept"]), coefficients, link)


def _compared(sample: Sample, task: Task, progress: Progress) -> Fit:
    """Fit a regression, kept if out-of-fold outputs are likelier by more than chance, with their slope if that is below
    1.

    Near a rate of 0 the evidence alone prefers steep slopes on a few rows of noise.
    """
    objective = Objective.of(sample, task, task.told)

    def scored(seen: ModelInput, rest: Sample, own: Task, report: Progress) -> Callable[[ModelInput], FloatArray]:
        return _fitted(seen, rest, own, report).scores

    fold = out_of_fold(sample, task, scored, part(progress, 0.0, 0.8))
    seen, effects = sample.seen(task)
    model = _fitted(seen, sample, task, part(progress, 0.8, 0.2))
    slope, shift = fold.line(sample, objective)
    straight = fold.straightened(slope, shift, objective.constant)
    keep = slope > 0.0 and straight.gain(sample, objective) > CHANCE
    scores = fold.scores if keep else fold.constants
    if not keep:
        model = replace(model, intercept=objective.constant, coefficients=0.0 * model.coefficients)
    elif slope < 1.0:
        model = replace(model, intercept=slope * model.intercept + shift, coefficients=slope * model.coefficients)
        scores = straight.scores
    notes = () if keep else (NOTHING,)
    if not isinstance(task.told, RowLikelihood):
        return Fit(model, effects, None, notes)
    link = task.told.link
    return Fit(model, effects, CrossFit(link.predictions(scores), link.predictions(fold.constants), fold.fold), notes)


def _fitted(inputs: ModelInput, sample: Sample, task: Task, progress: Progress) -> Linear:
    """Fit the model. `progress` is called for every chunk of rows, so that an exception it raises ends the training
    soon."""
    labels, w = sample.labels, sample.row_weights
    design = Design.learn(inputs.encoded, inputs.effects, inputs.sizes)
    poisson = task.loss == "poisson"
    # solvers with a link pass over the columns many times
    passes = poisson or isinstance(task.told, RowLikelihood)
    blocks = list(design.chunks(inputs)) if passes and len(labels) * design.width <= KEPT_CELLS else None

    def chunks() -> Chunks:
        return design.chunks(inputs) if blocks is None else iter(blocks)

    if isinstance(task.told, RowLikelihood):
        intercept, coefficients = scored(chunks, task.told, design.width, part(progress, 0.1, 0.9))
        return Linear(design, intercept, coefficients, task.told.link)

    def reported() -> Chunks:
        for rows, columns in chunks():
            progress("moments", 0.5 * rows.start / len(labels))
            yield rows, columns

    moments = Moments.of(reported(), labels, w, design.width)
    penalty = moments.penalty(task.capacity.label_variance)
    if poisson:
        link = PoissonScore.around(sample.mean, *task.bounds)
        intercept, coefficients = _poisson(chunks, labels, w, link, penalty, design.width, progress)
        return Linear(design, intercept, coefficients, link)
    return Linear(design, *moments.solved(penalty), None)


def _poisson(
    chunks: Callable[[], Chunks],
    labels: FloatArray,
    w: FloatArray,
    link: PoissonScore,
    penalty: float,
    width: int,
    progress: Progress,
) -> tuple[float, FloatArray]:
    """Minimise Σ w(e^f − z·f)/scale + λ|b|²/2, with e^f continued as a line beyond the score's bounds."""
    from scipy.optimize import minimize

    def cost(parameters: FloatArray) -> tuple[float, FloatArray]:
        value = 0.5 * penalty * float(parameters[1:] @ parameters[1:])
        gradient = np.concatenate([[0.0], penalty * parameters[1:]])
        for rows, columns in chunks():
            progress("solving", 0.5)
            f = parameters[0] + columns @ parameters[1:]
            mu = link.predictions(f)
            beyond = f - np.clip(f, link.low, link.high)
            scaled = w[rows] / link.scale
            value += float(scaled @ (mu * (1.0 + beyond) - labels[rows] * f))
            slope = scaled * (mu - labels[rows])
            gradient[0] += slope.sum()
            gradient[1:] += columns.T @ slope
        return value, gradient

    start = np.zeros(width + 1)
    start[0] = link.base()
    # with few rows and negative labels the cost may have no minimum: the box keeps every score finite
    box = [(link.low, link.high)] + [(-10.0, 10.0)] * width
    optimum = minimize(cost, start, jac=True, method="L-BFGS-B", bounds=box, options={"maxiter": 200})
    return float(optimum.x[0]), np.asarray(optimum.x[1:], dtype=np.float64)


LEARNER = Linear
