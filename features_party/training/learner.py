"""The interface of a model: one class that predicts, is saved, read again and exported and, for a model that users can
request, is fitted.

A learner is a module of `training/learners/` and its name in `label_dp.schemas.training`.
"""

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
from label_dp.schemas.json_types import JsonObject

FloatArray = npt.NDArray[np.float64]
Rowwise = npt.NDArray[np.integer]
Made = TypeVar("Made")


@dataclass(frozen=True)
class ModelInput:
    """Rows as models see them: `effects` float32[n, c] of their categories, `sizes[c]` values of category c, missing
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
        """Return `make()` of these rows, computed once for all models."""
        if make not in self._made:
            self._made[make] = make(self)
        made_value: Made = self._made[make]
        return made_value


@dataclass(frozen=True)
class Sample:
    """Rows to learn from: labels float64[n], draws by which they are split (draws.py; equal for rows of one example),
    weights float64[n] of mean 1 (None: all equal).

    `label_weights` are those of the labels in effects of categories, if the loss does not read labels; else None, for
    the weights. `cells` is the likelihood of label distributions given the outputs, if the channels identify them.
    """

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
        """Number of examples."""
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
        """Return these rows with out-of-fold effects of their categories, and the effects for later rows."""
        weights = self.weights if self.label_weights is None else self.label_weights
        seen, effects = out_of_fold(
            self.encoded.codes, self.labels, self.draws, task.sizes, done, task.shrinkage, weights, task.words
        )
        return ModelInput(self.encoded, seen, task.sizes), effects


Watch = Callable[[int, float], None]  # a number of trees or epochs, and the loss after them


@dataclass(frozen=True)
class Task:
    """Fitting options, the same for every sample.

    `unbiased`: the labels are unbiased, so held-out ones can compare models. `compared`: keep a single model only if
    held-out outputs prefer it to the constant. `told`: gradients by the channels, row by row. `median`: predict the
    label's median around the mean, if the sample has cells. `shrinkage`: λ of the effects of the last categories, which
    are crossings (effects.py). `settings`: those of one learner. `members`: members of an ensemble to consider (None:
    all). `words`: those of categories whose values are texts. `watch`: called with the loss after some trees or epochs.
    """

    sizes: list[int]
    loss: str
    bounds: tuple[float, float]
    capacity: Capacity
    threads: int
    smooth: int | None = None  # how many of the first numbers models of smooth effects see; None: all
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
    """ONNX graph under construction: each call adds a node, or a constant, and returns its name."""

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
    """Values [n, 1] by name, in the order of Encoded: float32 numbers with the statistics, int64 places of categories
    (0 for missing, then the vocabulary), and the tables of their effects."""

    numbers: list[str]
    index: list[str]
    effects: tuple[FloatArray, ...]

    def effect(self, graph: Graph, at: int) -> str:
        return graph.looked_up(self.index[at], self.effects[at], np.float32)


class FittedModel(ABC):
    """Fitted model. `link` maps a score to a prediction; `spread` is the distribution of labels around predictions, if
    the outputs it was fitted on identify it."""

    link: Link | None
    spread: Spread | None = None

    @property
    def count(self) -> int | None:
        """Number of trees; None for other models."""
        return None

    @abstractmethod
    def predict(self, inputs: ModelInput, threads: int = 1) -> FloatArray:
        """Predict float64[n], unclipped."""

    @abstractmethod
    def as_json(self) -> JsonObject: ...

    @classmethod
    @abstractmethod
    def from_json(cls, data: dict[str, Any], numbers: int, sizes: list[int]) -> FittedModel:
        """Parse the output of `as_json` for this number of numbers and categories of these sizes. Raises KeyError,
        TypeError or ValueError for anything else."""

    @abstractmethod
    def nodes(self, graph: Graph, ports: Ports) -> str:
        """Add the score before the link, float64 [n, 1], as nodes of an ONNX graph."""

    def importance(self, schema: FeatureSchema) -> dict[str, float]:
        """Return the share by feature, largest first; empty if the model has none."""
        return {}

    def members(self) -> list[dict[str, Any]]:
        """List the members of an ensemble as name, weight and number of trees (None without any); empty for other
        models."""
        return []


@dataclass(frozen=True)
class CrossFit:
    """Out-of-fold results per row, from models that did not see its fold: `predictions` and the `constants` they are
    compared with, float64[n] (float64[n, k] of classes); `fold` int8[n]. For rows in the first `used` folds (None:
    all)."""

    predictions: FloatArray
    constants: FloatArray
    fold: npt.NDArray[np.int8]
    used: int | None = None

    @property
    def rows(self) -> npt.NDArray[np.int64]:
        """Rows that have predictions, int64[h]."""
        return np.flatnonzero(self.fold < (self.folds.count if self.used is None else self.used))

    @property
    def folds(self) -> Folds:
        return Folds(int(self.fold.max()) + 1, self.used)

    def take(self, rows: npt.NDArray[np.int64]) -> CrossFit:
        return replace(self, predictions=self.predictions[rows], constants=self.constants[rows], fold=self.fold[rows])


@dataclass(frozen=True)
class Fit:
    """Fitted model, the effects of categories that it needs for later rows, and the results of validation."""

    body: FittedModel
    effects: Effects
    cross: CrossFit | None = None
    notes: tuple[str, ...] = ()


class Learner(FittedModel):
    """Model that users can request.

    `of_trees`: it takes the absolute loss's gradients by the channel, and sees statistics of large categories.
    `own_categories`: it has a place for each value, instead of effects. `medians_from`: smallest number of examples for
    which medians are predicted around the means; needs `sample.cells`.
    """

    of_trees: ClassVar[bool] = False
    own_categories: ClassVar[bool] = False
    medians_from: ClassVar[int | None] = None

    @classmethod
    def require(cls) -> None:
        """Raise InvalidInput if a library needed for fitting is not installed."""

    @classmethod
    @abstractmethod
    def fit(cls, sample: Sample, task: Task, progress: Progress) -> Fit:
        """Fit the model. An exception raised by `progress` ends the fit."""


def feature_names(schema: FeatureSchema) -> dict[str, list[str]]:
    """Return the names of inputs by the source of a `levels.Feature`."""
    categories = schema.category_names
    return {"number": schema.number_names, "effect": categories, "category": categories}
