"""The interface of a model: one class that predicts, is saved, read again and exported; and, where it can be asked for,
is fitted. A learner is a module of `training/learners/` and its name in `label_dp.schemas.training`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from features_party.training.capacity import Capacity
from features_party.training.cells import CellLikelihood
from features_party.training.draws import Draws
from features_party.training.effects import Effects, out_of_fold
from features_party.training.encoding import Encoded, FeatureSchema, Float32
from features_party.training.intervals import Folds
from features_party.training.links import Link
from features_party.training.objectives import ChannelGradients
from features_party.training.spread import Spread
from features_party.training.words import Words
from label_dp.progress import Progress

FloatArray = npt.NDArray[np.float64]
Rowwise = npt.NDArray[np.integer]
Made = TypeVar("Made")


@dataclass(frozen=True)
class ModelInput:
    """n rows as models see them: `effects` float32[n, c] of their categories, `sizes[c]` values of category c, missing
    included."""

    encoded: Encoded
    effects: Float32
    sizes: list[int]
    _made: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.encoded)

    def take(self, rows: npt.NDArray[np.int64]) -> ModelInput:
        return ModelInput(self.encoded.take(rows), self.effects[rows], self.sizes)

    def once(self, make: Callable[[ModelInput], Made]) -> Made:
        """What `make` makes of these rows, made once however many models look at it."""
        if make not in self._made:
            self._made[make] = make(self)
        found: Made = self._made[make]
        return found


@dataclass(frozen=True)
class Sample:
    """Rows to learn from: labels float64[n], draws by which they are split (draws.py; those of one example are the
    same), weights float64[n] of mean 1 (None: all alike). `label_weights`: of the labels in effects of categories,
    where the loss does not look at labels; elsewhere None, for the weights. `cells`: how likely distributions of a
    row's label make its output, where channels tell."""

    encoded: Encoded
    labels: FloatArray
    draws: Draws
    weights: FloatArray | None = None
    label_weights: FloatArray | None = None
    cells: CellLikelihood | None = None

    @property
    def mean(self) -> float:
        return float(np.average(self.labels, weights=self.weights))

    @property
    def apart(self) -> int:
        """How many examples there are."""
        return len(np.unique(self.draws))

    @property
    def row_weights(self) -> FloatArray:
        return np.ones(len(self.labels)) if self.weights is None else self.weights

    def take(self, rows: npt.NDArray[Any]) -> Sample:
        weights = None if self.weights is None else self.weights[rows]
        told = None if self.label_weights is None else self.label_weights[rows]
        cells = None if self.cells is None else self.cells.take(rows)
        return Sample(self.encoded.take(rows), self.labels[rows], self.draws[rows], weights, told, cells)

    def seen(self, task: Task, done: Callable[[float], None] = lambda _share: None) -> tuple[ModelInput, Effects]:
        """These rows with out-of-fold effects of their categories, and the effects for later rows."""
        weights = self.weights if self.label_weights is None else self.label_weights
        seen, effects = out_of_fold(
            self.encoded.codes, self.labels, self.draws, task.sizes, done, task.shrinkage, weights, task.words
        )
        return ModelInput(self.encoded, seen, task.sizes), effects


Watch = Callable[[int, float], None]  # a number of trees or epochs, and the loss after them


@dataclass(frozen=True)
class Task:
    """How models are fitted, the same on every sample. `unbiased`: the labels have the true ones as their expectation,
    so that held-out ones can tell models apart. `compared`: a single model stands only where held-out outputs prefer it
    to the constant. `told`: gradients by the channels, row by row; `median`: the label's
    median around the mean is predicted, where the sample has cells; `shrinkage`: of the last categories, which are
    crossings, the λ of their effects (effects.py); `settings`: what one learner alone takes; `members`: of an ensemble,
    those that are looked at (None: all); `words`: of categories whose values are texts; `watch`: is told the loss after
    so many trees or epochs."""

    sizes: list[int]
    loss: str
    bounds: tuple[float, float]
    capacity: Capacity
    threads: int
    smooth: int | None = None  # the first so many numbers are shown to models of smooth effects; None: all
    unbiased: bool = False
    validate: bool = False
    compared: bool = False
    told: ChannelGradients | None = None
    median: bool = False
    shrinkage: tuple[float | None, ...] = ()
    settings: Any = None
    members: frozenset[str] | None = None
    words: Mapping[int, Words] = field(default_factory=dict)
    watch: Watch = field(default=lambda _place, _loss: None, repr=False, compare=False)

    @property
    def positive(self) -> bool:
        return self.bounds[0] >= 0.0 and self.bounds[1] > 0.0


class Graph(Protocol):
    """An ONNX graph being written: each call adds a node, or a constant, and gives its name."""

    def add(self, operator: str, *inputs: str, domain: str = "", **attributes: Any) -> str: ...

    def constant(self, value: Any, kind: Any) -> str: ...

    def whole(self, operator: str, left: str, right: int) -> str: ...

    def double(self, value: str) -> str: ...

    def single(self, value: str) -> str: ...

    def int64(self, value: str) -> str: ...

    def clip(self, value: str, low: float, high: float) -> str: ...

    def looked_up(self, index: str, table: npt.NDArray[Any], kind: Any) -> str: ...

    def standardised(self, numbers: list[str], mean: FloatArray, scale: FloatArray, most: float) -> tuple[str, str]: ...

    def linked(self, score: str, link: Link | None) -> str: ...


@dataclass(frozen=True)
class Ports:
    """[n, 1] values by name, in the order of Encoded: float32 numbers with the statistics, int64 places of categories,
    0 for missing, then the vocabulary; and the tables of their effects."""

    numbers: list[str]
    index: list[str]
    effects: tuple[FloatArray, ...]

    def effect(self, graph: Graph, at: int) -> str:
        return graph.looked_up(self.index[at], self.effects[at], np.float32)


class Body(ABC):
    """A fitted model. `link`: through which a score becomes a prediction; `spread`: how labels are distributed around
    predictions, where the outputs that it was fitted on tell."""

    link: Link | None
    spread: Spread | None = None

    @property
    def count(self) -> int | None:
        """How many trees it has; None: it is of another kind."""
        return None

    @abstractmethod
    def predict(self, seen: ModelInput, threads: int = 1) -> FloatArray:
        """float64[n], unclipped."""

    @abstractmethod
    def as_json(self) -> dict[str, Any]: ...

    @classmethod
    @abstractmethod
    def from_json(cls, data: dict[str, Any], numbers: int, sizes: list[int]) -> Body:
        """Inverse of `as_json`, for so many numbers and categories of these sizes. Raises KeyError, TypeError or
        ValueError for what is not one."""

    @abstractmethod
    def nodes(self, graph: Graph, ports: Ports) -> str:
        """float64 [n, 1]: the score before the link, as nodes of an ONNX graph."""

    def importance(self, schema: FeatureSchema) -> dict[str, float]:
        """Share by feature, largest first; empty where the model does not tell."""
        return {}

    def members(self) -> list[dict[str, Any]]:
        """What an ensemble sums, as name, weight and number of trees (None without any); empty for other models."""
        return []


@dataclass(frozen=True)
class CrossFit:
    """Per row, from models that did not see its fold: `predictions` and the `constants` they are compared with,
    float64[n] (float64[n, k] of classes); `fold` int8[n]. Of rows in the first `used` folds (None: all)."""

    predictions: FloatArray
    constants: FloatArray
    fold: npt.NDArray[np.int8]
    used: int | None = None

    @property
    def rows(self) -> npt.NDArray[np.int64]:
        """int64[h]: the rows that have predictions."""
        return np.flatnonzero(self.fold < (self.folds.count if self.used is None else self.used))

    @property
    def folds(self) -> Folds:
        return Folds(int(self.fold.max()) + 1, self.used)

    def take(self, rows: npt.NDArray[np.int64]) -> CrossFit:
        return replace(self, predictions=self.predictions[rows], constants=self.constants[rows], fold=self.fold[rows])


@dataclass(frozen=True)
class Fit:
    """A fitted model, the effects of categories that it wants of later rows, and what validation left behind."""

    body: Body
    effects: Effects
    cross: CrossFit | None = None
    notes: tuple[str, ...] = ()


class Learner(Body):
    """A model that can be asked for. `of_trees`: it takes the absolute loss's gradients by the channel, and sees what
    large categories say without labels. `own_categories`: it has a place for each value, instead of effects.
    `medians_from`: of so many examples on it predicts medians around means that it learned, where cells tell them."""

    of_trees: ClassVar[bool] = False
    own_categories: ClassVar[bool] = False
    medians_from: ClassVar[int | None] = None

    @classmethod
    def require(cls) -> None:
        """Raises InvalidInput where a library that it is fitted with is not installed."""

    @classmethod
    @abstractmethod
    def fit(cls, sample: Sample, task: Task, progress: Progress) -> Fit:
        """Whatever `progress` raises ends it."""


def feature_names(schema: FeatureSchema) -> dict[str, list[str]]:
    """Names of inputs by the source that a `levels.Feature` has."""
    categories = schema.category_names
    return {"number": schema.number_names, "effect": categories, "category": categories}
