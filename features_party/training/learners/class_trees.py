"""Boosted trees that predict the probabilities of classes: one tree for each class and round, through the channel.

The probabilities of several boosters on other rows and columns are averaged. Slope and shifts of their scores come from
boosters that did not see the row (`straightening.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from features_party.training import reading
from features_party.training.class_contrast import contrast
from features_party.training.class_likelihood import ClassLikelihood
from features_party.training.classes import FEWEST, MOST
from features_party.training.draws import seed
from features_party.training.encoding import FeatureSchema
from features_party.training.learner import CrossFit, Fit, FittedModel, Graph, ModelInput, Ports, Sample, Task
from features_party.training.learners.comparison import SMALLEST, assign_folds
from features_party.training.learners.crossfit import BAGS
from features_party.training.learners.onnx_trees import tree_attributes
from features_party.training.learners.tree_document import checked_document
from features_party.training.learners.trees import (
    ONE_HOT,
    TreeInput,
    boosted,
    booster_document,
    class_scores,
    load_booster,
    tree_gain,
    tree_ports,
)
from features_party.training.progress import part
from features_party.training.softmax import Softmax
from features_party.training.straightening import straightened
from label_dp.progress import Progress
from label_dp.schemas.json_types import JsonObject

FloatArray = npt.NDArray[np.float64]

LARGEST_STEP = 2.0  # of a score in one leaf
MANY = 10  # classes above which one booster and two folds are used, for the time they take
NOTHING = "these labels say too little of the features: the model predicts the class shares for everybody"


@dataclass(frozen=True)
class ClassTrees(FittedModel):
    """Mean of the softmaxes of the scores of `boosters`; `shares` float64[k] are those of the classes before anything
    is learned."""

    boosters: tuple[Any, ...]
    softmax: Softmax
    shares: FloatArray

    link = None

    @property
    def k(self) -> int:
        return len(self.shares)

    @property
    def count(self) -> int:
        return self.k * sum(int(booster.num_boosted_rounds()) for booster in self.boosters)

    def predict(self, inputs: ModelInput, threads: int = 1) -> FloatArray:
        """Predict float64[n, k]; each row sums to 1."""
        rows = inputs.once(TreeInput.of)
        total = np.zeros((len(inputs), self.k))
        for booster in self.boosters:
            total += self.softmax.shares(class_scores(booster, rows, self.k, threads))
        return total / len(self.boosters)

    def importance(self, schema: FeatureSchema) -> dict[str, float]:
        return tree_gain(self.boosters, schema)

    def nodes(self, graph: Graph, ports: Ports) -> str:
        """Add the probabilities, float64 [n, k], to the graph."""
        matrix = tree_ports(graph, ports)
        total = ""
        for booster in self.boosters:
            attributes = tree_attributes(booster_document(booster), self.k)
            score = graph.double(graph.add("TreeEnsembleRegressor", matrix, domain="ai.onnx.ml", **attributes))
            shares = self.softmax.nodes(graph, score)
            total = graph.add("Add", total, shares) if total else shares
        return graph.add("Div", total, graph.constant(len(self.boosters), np.float64))

    def as_json(self) -> JsonObject:
        boosters = [booster_document(booster) for booster in self.boosters]
        return {"softmax": self.softmax.as_json(), "shares": self.shares.tolist(), "boosters": boosters}

    @classmethod
    def from_json(cls, data: dict[str, Any], numbers: int, sizes: list[int]) -> ClassTrees:
        shares = reading.numbers(data["shares"])
        if not FEWEST <= len(shares) <= MOST or np.any(shares <= 0.0) or abs(float(shares.sum()) - 1.0) > 1e-9:
            raise ValueError("the class shares are no distribution")
        codes = [0] * numbers + [size - 1 for size in sizes]
        kinds, documents = TreeInput.kinds_of(numbers, sizes), reading.listed(data["boosters"])
        if not 1 <= len(documents) <= BAGS:
            raise ValueError("there are more boosters than are trained here, or none")
        boosters = [load_booster(checked_document(one, kinds, codes, len(shares))) for one in documents]
        return cls(tuple(boosters), Softmax.from_json(data["softmax"], len(shares)), shares)


def fit_classes(sample: Sample, task: Task, told: ClassLikelihood, progress: Progress, *, averaged: bool) -> Fit:
    """Fit several boosters, straightened by others that did not see the row, if `averaged`; else one, unchanged.

    With too few rows none are held out.
    """
    sample = _contrasted(sample, task, told)
    if averaged and sample.apart >= SMALLEST:
        return _averaged(sample, task, told, progress)
    model_input, effects = sample.seen(task)
    booster = _booster(TreeInput.of(model_input), told, task, seed(sample.draws, "trees 0"), progress)
    return Fit(ClassTrees((booster,), Softmax(1.0, tuple(told.start.tolist())), told.shares), effects)


def _averaged(sample: Sample, task: Task, likelihood: ClassLikelihood, progress: Progress) -> Fit:
    fold = assign_folds(sample.draws)
    if likelihood.k > MANY:
        fold = fold % 2
    count, bags = int(fold.max()) + 1, BAGS if likelihood.k <= MANY else 1
    width = 1.0 / (count + bags)
    scores, constants = np.empty((len(fold), likelihood.k)), np.empty((len(fold), likelihood.k))
    for at in range(count):
        train, test = np.flatnonzero(fold != at), np.flatnonzero(fold == at)
        part_told, later = likelihood.take(train), sample.encoded.take(test)
        rest = _contrasted(sample.take(train), task, part_told)
        model_input, effects = rest.seen(task)
        booster = _booster(
            TreeInput.of(model_input), part_told, task, seed(rest.draws, "trees 0"), part(progress, at * width, width)
        )
        unseen = TreeInput.of(ModelInput(later, effects.apply(later.codes), task.sizes))
        scores[test], constants[test] = class_scores(booster, unseen, likelihood.k, task.threads), part_told.shares
    softmax = straightened(likelihood, scores)
    model_input, effects = sample.seen(task)
    rows, boosters = TreeInput.of(model_input), []
    for bag in range(bags if softmax.slope > 0.0 else 1):
        report = part(progress, (count + bag) * width, width)
        tree_seed = seed(sample.draws, f"trees {bag}")
        boosters.append(_booster(rows, likelihood, task, tree_seed, report, rounds=None if softmax.slope > 0.0 else 0))
    notes = () if softmax.slope > 0.0 else (NOTHING,)
    predictions = np.empty_like(scores)
    for at in range(count):  # k shifts can overfit the rows they are judged on
        others, test = np.flatnonzero(fold != at), np.flatnonzero(fold == at)
        predictions[test] = straightened(likelihood.take(others), scores[others]).shares(scores[test])
    cross = CrossFit(predictions, constants, fold)
    return Fit(ClassTrees(tuple(boosters), softmax, likelihood.shares), effects, cross, notes)


def _contrasted(sample: Sample, task: Task, likelihood: ClassLikelihood) -> Sample:
    """Replace the labels by those of which large categories have effects."""
    large = np.flatnonzero(np.array(task.sizes) > ONE_HOT)
    return replace(sample, labels=contrast(likelihood, sample.encoded.codes[:, large])) if large.size else sample


def _booster(
    inputs: TreeInput,
    likelihood: ClassLikelihood,
    task: Task,
    tree_seed: int,
    progress: Progress,
    rounds: int | None = None,
) -> Any:
    """Grow a booster with the seed `tree_seed`. Its scores start at 0, which predicts the class shares."""
    start = likelihood.start.astype(np.float32)

    def objective(score: npt.NDArray[np.float32], _: Any) -> tuple[Any, Any]:
        return likelihood(score.reshape(-1, likelihood.k) + start)

    settings = {
        "objective": "multi:softprob",
        "num_class": likelihood.k,
        "base_score": 0.0,
        "max_delta_step": LARGEST_STEP,
    }
    data = inputs.to_train(task.threads, task.capacity.max_bins, np.zeros(len(inputs)))
    return boosted(data, task, task.capacity, settings | {"seed": tree_seed}, objective, progress, rounds)
