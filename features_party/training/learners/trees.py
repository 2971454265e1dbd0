"""Gradient-boosted trees on numbers and effects of categories: xgboost `hist` with our own gradients and capacity."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from features_party.training.capacity import Capacity
from features_party.training.draws import dealt, seed
from features_party.training.encoding import FeatureSchema, Float32
from features_party.training.learner import Fit, Graph, Learner, ModelInput, Ports, Sample, Task
from features_party.training.learners.chance import NOTHING
from features_party.training.learners.comparison import CHANCE, SMALLEST, Objective, out_of_fold
from features_party.training.learners.onnx_trees import tree_attributes
from features_party.training.learners.tree_document import checked_document
from features_party.training.links import Link, read_link
from features_party.training.objectives import ChannelGradients, squared
from features_party.training.progress import part
from features_party.training.threads import openmp_threads
from label_dp.progress import Progress
from label_dp.schemas.json_types import JsonObject

FloatArray = npt.NDArray[np.float64]

ONE_HOT = 64  # values up to which a category is split one value at a time
LONGER = ((0.0, 1.0), (1.5, 2.0), (3.0, 4.0))  # from these multiples of the rule's trees, steps grow by these factors
LONGEST = 0.3
QUICK_FOLDS, QUICKER = 3, 4.0
AT_ONCE = 1 << 18  # rows predicted together: XGBoost takes 8 bytes a value for them
WATCHED = 40  # times in a training
MIN_ROWS = 4  # fewer rows than this cannot be split into two leaves that mean anything


def _xgboost() -> Any:
    openmp_threads(1)  # before it is loaded
    import xgboost

    return xgboost


@dataclass(frozen=True)
class TreeInput:
    """Input of the trees: float32[n, p] `numbers`, then float32[n, c] categories; `kinds` is xgboost's "q" or "c" per
    column. The joint array is made when needed, and not kept.

    Small categories enter as they are and are split one value at a time; large ones enter as effects.
    """

    numbers: Float32
    kinds: list[str]
    columns: Float32 | None = None
    _binned: dict[int, Any] = field(default_factory=dict, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.numbers)

    @classmethod
    def of(cls, inputs: ModelInput) -> TreeInput:
        encoded, sizes = inputs.encoded, inputs.sizes
        kinds = cls.kinds_of(encoded.numbers.shape[1], sizes)
        if not sizes:
            return cls(encoded.numbers, kinds)
        columns = np.empty(encoded.codes.shape, np.float32, order="F")
        for at, size in enumerate(sizes):
            if size > ONE_HOT:
                columns[:, at] = inputs.effects[:, at]
                continue
            codes = encoded.codes[:, at]
            columns[:, at] = codes
            columns[codes < 0, at] = np.nan
        return cls(encoded.numbers, kinds, columns)

    @staticmethod
    def kinds_of(numbers: int, sizes: list[int]) -> list[str]:
        return ["q"] * numbers + ["c" if size <= ONE_HOT else "q" for size in sizes]

    def matrix(self, rows: slice = slice(None)) -> Float32:
        """Join both for some rows, float32[·, p + c]."""
        if self.columns is None:
            return self.numbers[rows]
        return np.hstack([self.numbers[rows], self.columns[rows]])

    def margins(
        self, booster: Any, threads: int, base: FloatArray | None = None, trees: tuple[int, int] = (0, 0)
    ) -> FloatArray:
        """Sum these rounds of a booster's trees (default: all) in blocks of rows, float64[n] or [n, k].

        `base` float64[n] are scores that the trees add to, instead of their own constant.
        """
        blocks = []
        for start in range(0, len(self), AT_ONCE):
            rows = slice(start, start + AT_ONCE)
            margin = None if base is None else base[rows].astype(np.float32)
            data = _xgboost().DMatrix(self.matrix(rows), base_margin=margin, **self._described(threads))
            blocks.append(booster.predict(data, output_margin=True, iteration_range=trees))
        return np.concatenate(blocks).astype(np.float64)

    def to_train(self, threads: int, bins: int, labels: FloatArray, weights: FloatArray | None = None) -> Any:
        """Bin the input, with `bins` bins a number, once for all boosters that learn from these rows."""
        if bins not in self._binned:
            self._binned[bins] = _xgboost().QuantileDMatrix(self.matrix(), max_bin=bins, **self._described(threads))
        data = self._binned[bins]
        data.set_label(labels.astype(np.float32))
        if weights is not None:
            data.set_weight(weights.astype(np.float32))
        return data

    def _described(self, threads: int) -> JsonObject:
        return {
            "feature_types": self.kinds,
            "enable_categorical": "c" in self.kinds,
            "nthread": openmp_threads(threads),
        }


@dataclass(frozen=True)
class Trees(Learner):
    """Trained booster in xgboost's own JSON, and the link from its score to a prediction."""

    booster: Any
    link: Link | None
    of_trees = True

    @property
    def count(self) -> int:
        return int(self.booster.num_boosted_rounds())

    @classmethod
    def fit(cls, sample: Sample, task: Task, progress: Progress) -> Fit:
        """Fit one booster of the capacity's size; it has no trees if held-out outputs do not prefer them to the
        constant by more than chance."""
        capacity = task.capacity
        notes: tuple[str, ...] = ()
        if task.compared and sample.apart >= SMALLEST:
            objective = Objective.of(sample, task, task.told)
            report, progress = part(progress, 0.0, 0.6), part(progress, 0.6, 0.4)
            fold = out_of_fold(sample, task, tree_scores, report, lambda one: one.decides(sample, objective))
            if fold.gain(sample, objective) <= CHANCE:
                capacity, notes = capacity.model_copy(update={"rounds": 0}), (NOTHING,)
        model_input, effects = sample.seen(task, lambda share: progress("effects of categories", 0.1 * share))
        boosting = Boosting(told=task.told, capacity=capacity)
        body = fit_trees(TreeInput.of(model_input), sample, task, boosting, part(progress, 0.1, 0.9))
        return Fit(body, effects, None, notes)

    def predict(self, inputs: ModelInput, threads: int = 1) -> FloatArray:
        return self.outputs(inputs.once(TreeInput.of), threads)

    def outputs(
        self, inputs: TreeInput, threads: int = 1, base: FloatArray | None = None, rounds: int = 0
    ) -> FloatArray:
        """Predict float64[n], unclipped. `base` float64[n] is the score that the trees were trained on top of, if any;
        `rounds` takes the first trees only."""
        return self.linked(self.scores(inputs, threads, base, rounds))

    def linked(self, score: FloatArray) -> FloatArray:
        """Map scores float64[n] to predictions."""
        return _linked(self.link, score)

    def scores(
        self, inputs: TreeInput, threads: int = 1, base: FloatArray | None = None, rounds: int = 0, first: int = 0
    ) -> FloatArray:
        """Compute the score before the link, float64[n], of the trees from `first` on."""
        if not len(inputs):
            return np.empty(0)
        return inputs.margins(self.booster, threads, base, (first, min(rounds, self.count)))

    def importance(self, schema: FeatureSchema) -> dict[str, float]:
        return tree_gain((self.booster,), schema)

    def nodes(self, graph: Graph, ports: Ports) -> str:
        return self.node(graph, tree_ports(graph, ports), None)

    def node(self, graph: Graph, matrix: str, base: str | None) -> str:
        """Add predictions on top of the score `base` to the graph, from existing tree inputs."""
        attributes = tree_attributes(booster_document(self.booster))
        if base is not None:
            attributes["base_values"] = [0.0]
        score = graph.double(graph.add("TreeEnsembleRegressor", matrix, domain="ai.onnx.ml", **attributes))
        return score if base is None else graph.add("Add", score, base)

    def as_json(self) -> JsonObject:
        link = None if self.link is None else self.link.as_json()
        return {"link": link, "xgboost": booster_document(self.booster)}

    @classmethod
    def from_json(cls, data: dict[str, Any], numbers: int, sizes: list[int]) -> Trees:
        """Parse the output of `as_json`. The library receives a valid forest, however the file was edited."""
        link = read_link(data["link"])
        codes = [0] * numbers + [size - 1 for size in sizes]  # missing has none
        document = checked_document(data["xgboost"], TreeInput.kinds_of(numbers, sizes), codes)
        return cls(load_booster(document), link)


def _linked(link: Link | None, score: FloatArray) -> FloatArray:
    return score if link is None else link.predictions(score)


def load_booster(document: bytes) -> Any:
    """Load a booster from a checked document. Raises ValueError."""
    xgb = _xgboost()
    booster = xgb.Booster()
    try:
        booster.load_model(bytearray(document))
    except xgb.core.XGBoostError:
        raise ValueError("the tree library does not take the trees") from None
    return booster


def booster_document(booster: Any) -> Any:
    """Return the booster in xgboost's own JSON."""
    return json.loads(bytes(booster.save_raw("json")))


def class_scores(booster: Any, inputs: TreeInput, k: int, threads: int) -> FloatArray:
    """Compute scores float64[n, k] of a booster of k trees a round."""
    return inputs.margins(booster, threads).reshape(-1, k) if len(inputs) else np.empty((0, k))


def tree_gain(boosters: Sequence[Any], schema: FeatureSchema) -> dict[str, float]:
    """Return shares of the total gain by feature, largest first."""
    names = [*schema.number_names, *schema.category_names]
    gain: dict[str, float] = {}
    for booster in boosters:
        for key, value in booster.get_score(importance_type="total_gain").items():
            name = names[int(key[1:])]
            gain[name] = gain.get(name, 0.0) + float(value)
    total = sum(gain.values()) or 1.0
    return dict(sorted(((name, value / total) for name, value in gain.items()), key=lambda item: -item[1]))


def tree_ports(graph: Graph, ports: Ports) -> str:
    """Return the trees' input as one value of an ONNX graph."""
    inputs = list(ports.numbers)
    for index, effects in zip(ports.index, ports.effects, strict=True):
        table = np.array([np.nan, *range(len(effects) - 1)]) if len(effects) <= ONE_HOT else effects
        inputs.append(graph.looked_up(index, table, np.float32))
    return graph.add("Concat", *inputs, axis=1)


@dataclass(frozen=True)
class Boosting:
    """Options of one booster.

    `bag`: other rows and columns tree by tree. `base` float64[n]: the score that the trees add to (the log of a
    prediction for poisson) instead of a constant. `told`: gradients by the channels, which come without a base.
    `capacity`: instead of the task's. `enough`: called after each tree with the number of trees; True stops.
    """

    bag: int = 0
    base: FloatArray | None = None
    told: ChannelGradients | None = None
    capacity: Capacity | None = None
    enough: Callable[[Trees, int], bool] = lambda _trees, _count: False


def fit_trees(inputs: TreeInput, sample: Sample, task: Task, boosting: Boosting, progress: Progress) -> Trees:
    """Fit trees for squared, absolute or poisson loss. Deterministic."""
    labels, weights = sample.labels, sample.weights
    capacity = boosting.capacity or task.capacity
    loss = Objective.of(sample, task, boosting.told)
    link, constant = loss.link, loss.constant

    def objective(score: npt.NDArray[np.float32], _: Any) -> tuple[FloatArray, FloatArray]:
        gradient, hessian = loss.gradients(score.astype(np.float64), labels)
        return (gradient, hessian) if weights is None else (gradient * weights, hessian * weights)

    own = loss.gradients is squared  # the same for any labels, and XGBoost's own is quicker
    data = inputs.to_train(task.threads, capacity.max_bins, labels, weights if own else None)
    start = np.full(len(labels), constant) if boosting.base is None else boosting.base
    data.set_base_margin(start.astype(np.float32))
    step = 0.0 if link is None else link.largest_step
    settings = {"objective": "reg:squarederror", "base_score": constant, "max_delta_step": step}
    settings |= {"seed": seed(sample.draws, f"trees {boosting.bag}")}
    booster = boosted(
        data,
        task,
        capacity,
        settings,
        None if own else objective,
        progress,
        enough=lambda model, count: boosting.enough(Trees(model, link), count),
        error=lambda score: float(np.average((labels - _linked(link, score)) ** 2, weights=weights)),
    )
    return Trees(booster, link)


def tree_scores(
    inputs: ModelInput, sample: Sample, task: Task, progress: Progress
) -> Callable[[ModelInput], FloatArray]:
    """Grow trees of the task's capacity on these rows; returns their score function."""
    body = fit_trees(TreeInput.of(inputs), sample, task, Boosting(told=task.told), progress)
    return lambda later: body.scores(TreeInput.of(later), task.threads)


def left_by_trees(sample: Sample, task: Task) -> FloatArray:
    """Return labels less the predictions of trees that did not see the row, float64[n].

    Fewer trees than the rule's take longer steps, which is nearly as good.
    """
    fold = dealt(sample.draws, QUICK_FOLDS, "left by trees")
    steps, rounds = task.capacity.learning_rate * QUICKER, round(task.capacity.rounds / QUICKER)
    quick = {"learning_rate": min(steps, LONGEST), "rounds": max(rounds, 1)}
    capacity = task.capacity.model_copy(update=quick)
    residuals = sample.labels.copy()
    for at in range(QUICK_FOLDS):
        train, test = np.flatnonzero(fold != at), np.flatnonzero(fold == at)
        rest, later = sample.take(train), sample.encoded.take(test)
        model_input, effects = rest.seen(task)
        body = fit_trees(TreeInput.of(model_input), rest, task, Boosting(capacity=capacity), lambda _what, _share: None)
        residuals[test] -= body.predict(ModelInput(later, effects.apply(later.codes), task.sizes), task.threads)
    return residuals


def parameters_of(capacity: Capacity) -> dict[str, Any]:
    """Return XGBoost's parameters for boosters of this capacity."""
    return {
        "tree_method": "hist",
        "max_depth": capacity.depth,
        "eta": capacity.learning_rate,
        "min_child_weight": capacity.rows_per_leaf,
        "reg_lambda": capacity.leaf_penalty,
        "subsample": capacity.subsample,
        "colsample_bytree": capacity.columns_per_tree,
        "max_bin": capacity.max_bins,
        "max_cat_to_onehot": ONE_HOT + 1,
        "disable_default_eval_metric": True,
        "verbosity": 0,
    }


def boosted(
    data: Any,
    task: Task,
    capacity: Capacity,
    settings: dict[str, Any],
    objective: Callable[..., Any] | None,
    progress: Progress,
    rounds: int | None = None,
    enough: Callable[[Any, int], bool] = lambda _model, _count: False,
    error: Callable[[FloatArray], float] | None = None,
) -> Any:
    """Grow a booster of the capacity's size, of `rounds` rounds, or until `enough`; without trees if nothing can be
    split.

    `error` maps the scores of all rows to the figure reported to `watch`.
    """
    most = capacity.rounds if rounds is None else rounds
    most = most if data.num_row() >= MIN_ROWS and data.num_col() else 0
    parameters = parameters_of(capacity) | {"nthread": openmp_threads(task.threads)}
    every = max(1, most // WATCHED)

    def rate(tree: int) -> float:
        longer = max(times for start, times in LONGER if tree >= start * task.capacity.rounds)
        return max(min(capacity.learning_rate * longer, LONGEST), capacity.learning_rate)

    xgb = _xgboost()
    # a leaner `xgboost.train`, which looks for metrics and sets rates anew after every tree
    booster, step = xgb.Booster(parameters | settings, [data]), capacity.learning_rate
    for tree in range(most):
        booster.update(data, tree, objective)
        progress(f"tree {tree + 1} of {most}", (tree + 1) / most)
        if error is not None and tree % every == 0:  # scores of the training rows are available already
            task.watch(tree + 1, error(booster.predict(data, output_margin=True).astype(np.float64)))
        if enough(booster, tree + 1):
            break
        if rate(tree) != step:
            step = rate(tree)
            booster.set_param("learning_rate", step)
    return booster.reset()


LEARNER = Trees
