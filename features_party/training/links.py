"""Links from scores to predictions, as data that is saved, read strictly and exported with a model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from features_party.training.reading import number

FloatArray = npt.NDArray[np.float64]
Gradients = Callable[[FloatArray, FloatArray], tuple[FloatArray, FloatArray]]

MOST_SCORE = 700.0  # e^score is finite
HESSIAN_FLOOR = 0.1  # of an average row's Hessian
NEWTON, MOST_SLOPE = 25, 5.0
MOST_LOGIT = 30.0  # 1 − p is still distinct from 0


class Nodes(Protocol):
    """Operations of an ONNX graph that a link needs."""

    def add(self, operator: str, *inputs: str) -> str: ...

    def constant(self, value: Any, kind: Any) -> str: ...

    def clip(self, value: str, low: float, high: float) -> str: ...


class Link(ABC):
    """Rising map from scores, cut to `low` and `high`, to predictions. `kind`: its name in the encoding guide."""

    kind: ClassVar[str]
    largest_step: ClassVar[float]  # of a score in one leaf

    low: float
    high: float

    @abstractmethod
    def predictions(self, score: npt.NDArray[np.floating]) -> FloatArray:
        """Map scores to predictions, float64 of the same shape."""

    @abstractmethod
    def nodes(self, graph: Nodes, score: str) -> str:
        """Add the prediction of a score to an ONNX graph."""

    @abstractmethod
    def as_json(self) -> dict[str, float]:
        """Return the input of `read_link`."""


def read_link(data: Any) -> Link | None:
    """Parse the link of a saved model, None for null. Raises KeyError, TypeError or ValueError."""
    if data is None:
        return None
    return LogisticScore.from_json(data) if "first" in data else PoissonScore.from_json(data)


@dataclass(frozen=True)
class PoissonScore(Link):
    """Log link: prediction = e^f with f between `low` and `high`, float64. `scale` is the mean prediction."""

    low: float
    high: float
    scale: float

    kind, largest_step = "exp", 0.7  # no tree may double a prediction

    @classmethod
    def around(cls, mean: float, smallest: float, largest: float) -> PoissonScore:
        """Set bounds for labels between `smallest` and `largest` of mean `mean`; the prediction is kept positive."""
        top = max(largest, mean, 1e-6)
        scale = min(max(mean, 1e-3 * top), top)
        low = max(smallest, 1e-3 * scale)
        return cls(float(np.log(low)), float(np.log(max(top, low))), float(scale))

    def as_json(self) -> dict[str, float]:
        return {"low": self.low, "high": self.high, "scale": self.scale}

    @classmethod
    def from_json(cls, data: Any) -> PoissonScore:
        low = number(data["low"], -MOST_SCORE, MOST_SCORE)
        return cls(low, number(data["high"], low, MOST_SCORE), number(data["scale"], 0.0))

    def nodes(self, graph: Nodes, score: str) -> str:
        return graph.add("Exp", graph.clip(score, self.low, self.high))

    def base(self) -> float:
        return float(np.clip(np.log(self.scale), self.low, self.high))

    def predictions(self, score: npt.NDArray[np.floating]) -> FloatArray:
        return np.asarray(np.exp(np.clip(score.astype(np.float64), self.low, self.high)), np.float64)

    def gradients(self, score: FloatArray, labels: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return (μ − z, max(μ, floor)) in units of the mean prediction, so that a Hessian of 1 is one ordinary row."""
        mu = self.predictions(score)
        return (mu - labels) / self.scale, np.maximum(mu / self.scale, HESSIAN_FLOOR)


@dataclass(frozen=True)
class LogisticScore(Link):
    """Logistic link between two labels: first + (second − first)/(1 + e^(−(slope·f + shift)))."""

    low: float
    high: float
    first: float
    second: float
    slope: float = 1.0
    shift: float = 0.0

    kind, largest_step = "logistic", 2.0

    @classmethod
    def between(cls, first: float, second: float) -> LogisticScore:
        return cls(-MOST_LOGIT, MOST_LOGIT, first, second)

    def as_json(self) -> dict[str, float]:
        ends = {"low": self.low, "high": self.high, "first": self.first, "second": self.second}
        return ends | {"slope": self.slope, "shift": self.shift}

    @classmethod
    def from_json(cls, data: Any) -> LogisticScore:
        low, first = number(data["low"], -MOST_LOGIT, MOST_LOGIT), number(data["first"])
        high, second = number(data["high"], low, MOST_LOGIT), number(data["second"], first)
        return cls(low, high, first, second, number(data["slope"], 0.0, MOST_LOGIT), number(data["shift"]))

    def shares(self, score: npt.NDArray[np.floating]) -> FloatArray:
        """Return the probability of the second label."""
        logit = self.slope * np.clip(score.astype(np.float64), self.low, self.high) + self.shift
        return np.asarray(1.0 / (1.0 + np.exp(-np.clip(logit, -MOST_LOGIT, MOST_LOGIT))), np.float64)

    def predictions(self, score: npt.NDArray[np.floating]) -> FloatArray:
        return self.first + (self.second - self.first) * self.shares(score)

    def nodes(self, graph: Nodes, score: str) -> str:
        scaled = graph.add("Mul", graph.clip(score, self.low, self.high), graph.constant(self.slope, np.float64))
        logit = graph.add("Add", scaled, graph.constant(self.shift, np.float64))
        share = graph.add("Sigmoid", graph.clip(logit, -MOST_LOGIT, MOST_LOGIT))
        along = graph.add("Mul", share, graph.constant(self.second - self.first, np.float64))
        return graph.add("Add", along, graph.constant(self.first, np.float64))


def straight_line(
    gradients: Gradients, score: FloatArray, labels: FloatArray, information: float, longest: float = 1.0
) -> tuple[float, float]:
    """Fit the most likely slope, at least 0, and shift of scores float64[n] by models of other rows.

    The slope is shrunk by its own error (James and Stein 1961): 0 without signal, and then the shift has no meaning.
    `information`: of a row with a Hessian of 1; `longest`: limit on a Newton step.
    """
    slope, shift = 1.0, 0.0
    for _ in range(NEWTON):
        gradient, hessian = gradients(slope * score + shift, labels)
        along = np.array([gradient @ score, gradient.sum()])
        inner = float(hessian @ score)
        whole = np.array([[float(hessian @ (score * score)), inner], [inner, float(hessian.sum())]])
        step = np.linalg.solve(whole + 1e-9 * np.trace(whole) * np.eye(2), along)
        step = step / max(1.0, float(np.max(np.abs(step))) / longest)
        slope, shift = slope - float(step[0]), shift - float(step[1])
    spread = float(hessian @ (score * score)) - inner * inner / float(hessian.sum())
    error = 1.0 / max(spread * information, 1e-300)
    if slope <= 0.0 or slope * slope <= error:
        return 0.0, 0.0
    shrunk = min(slope * (1.0 - error / (slope * slope)), MOST_SLOPE)
    middle = inner / float(hessian.sum())  # the line turns here, so its height stays
    return shrunk, shift + (slope - shrunk) * middle
