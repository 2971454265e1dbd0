"""Trees on top of an additive model that predict the distribution of a label, boosted through the channel.

A curve maps the additive model's prediction to the distribution of the label (`cells.py`). The trees add to its two
scores so that the observed outputs become more likely. A prediction is the distribution's mean. If labels are spread
less around some predictions than around others, an output is more informative there, which squared errors on corrected
labels cannot use. Stacking decides on the weight.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from features_party.training.capacity import Capacity, choose_capacity
from features_party.training.cells import SCORES, CellLikelihood, LabelCells
from features_party.training.encoding import FeatureSchema
from features_party.training.learner import FittedModel, Graph, ModelInput, Ports, Task
from features_party.training.learners.onnx_trees import tree_attributes
from features_party.training.learners.tree_document import checked_document
from features_party.training.learners.trees import (
    TreeInput,
    boosted,
    booster_document,
    class_scores,
    load_booster,
    tree_gain,
    tree_ports,
)
from features_party.training.spread import ScoreCurve, fit_curve
from label_dp.progress import Progress
from label_dp.schemas.json_types import JsonObject

FloatArray = npt.NDArray[np.float64]

LARGEST_STEP = 2.0  # of a score in one leaf
MOST_ROWS = 100_000  # with more, squares on corrected labels do as well, and a round takes too long
FARTHER = 2.0  # factor on the rule's rounds times steps: two scores have farther to go than one mean
FASTER = 3.0  # factor on steps, with so many fewer rounds: a round takes two trees and a softmax
SHALLOWER = 1  # level less than the rule's: the additive model has the main effects
LEAF_ROWS, LEAF_PENALTY = 10.0, 7.0  # as in the rule, in units of a true label's information


@dataclass(frozen=True)
class Forward(FittedModel):
    """Booster of two trees a round, on top of `curve` at the prediction of its base member."""

    booster: Any
    curve: ScoreCurve
    cells: LabelCells

    link = None

    @property
    def count(self) -> int:
        return SCORES * int(self.booster.num_boosted_rounds())

    def predict(self, inputs: ModelInput, threads: int = 1) -> FloatArray:
        """Predict rows whose base predicts nothing: its curve begins at its first knot."""
        return self.outputs(inputs.once(TreeInput.of), threads, np.full(len(inputs), self.curve.knots[0]))

    def outputs(self, inputs: TreeInput, threads: int, base: FloatArray) -> FloatArray:
        """Predict float64[n] on top of the predictions `base` float64[n]."""
        score = self.curve(base) + class_scores(self.booster, inputs, SCORES, threads)
        return np.asarray(self.cells.probabilities(score) @ self.cells.means, np.float64)

    def importance(self, schema: FeatureSchema) -> dict[str, float]:
        return tree_gain((self.booster,), schema)

    def nodes(self, graph: Graph, ports: Ports) -> str:
        first = graph.constant([[float(self.curve.knots[0])]], np.float64)
        return self.node(graph, tree_ports(graph, ports), first)

    def node(self, graph: Graph, matrix: str, base: str) -> str:
        """Add predictions on top of `base` to the graph, from existing tree inputs."""
        attributes = tree_attributes(booster_document(self.booster), SCORES)
        trees = graph.double(graph.add("TreeEnsembleRegressor", matrix, domain="ai.onnx.ml", **attributes))
        knots, scores = self.curve.knots, self.curve.scores
        inside = graph.clip(base, float(knots[0]), float(knots[-1]))
        past = graph.add("Relu", graph.add("Sub", inside, graph.constant(knots[None, :-1], np.float64)))
        slopes = np.diff(scores, axis=0) / np.diff(knots)[:, None]
        turns = np.diff(slopes, axis=0, prepend=np.zeros((1, SCORES)))
        curve = graph.add("MatMul", past, graph.constant(turns, np.float64))
        curve = graph.add("Add", curve, graph.constant(scores[:1], np.float64))
        logits = graph.add("MatMul", graph.add("Add", trees, curve), graph.constant(self.cells.basis.T, np.float64))
        shares = graph.add(
            "Softmax", graph.add("Add", logits, graph.constant(np.log(self.cells.mass)[None], np.float64))
        )
        return graph.add("MatMul", shares, graph.constant(self.cells.means[:, None], np.float64))

    def as_json(self) -> JsonObject:
        document = booster_document(self.booster)
        return {"xgboost": document, "curve": self.curve.as_json(), "cells": self.cells.as_json()}

    @classmethod
    def from_json(cls, data: dict[str, Any], numbers: int, sizes: list[int]) -> Forward:
        codes, kinds = [0] * numbers + [size - 1 for size in sizes], TreeInput.kinds_of(numbers, sizes)
        booster = load_booster(checked_document(data["xgboost"], kinds, codes, SCORES))
        return cls(booster, ScoreCurve.from_json(data["curve"]), LabelCells.from_json(data["cells"]))


def forward_capacity(told: CellLikelihood, rows: int) -> Capacity:
    """Choose the capacity by the rule, with the information of an output in its best identified direction."""
    share = max(float(told.directions[0]), 1e-9)
    ruled = choose_capacity(rows, 1.0 / share, 1.0 / share - 1.0)
    return ruled.model_copy(
        update={
            "depth": max(ruled.depth - SHALLOWER, 2),
            "rounds": max(round(FARTHER / FASTER * ruled.rounds), 1),
            "learning_rate": FASTER * ruled.learning_rate,
            "rows_per_leaf": LEAF_ROWS,
            "leaf_penalty": LEAF_PENALTY,
        }
    )


def fit_forward(
    inputs: TreeInput, told: CellLikelihood, base: FloatArray, task: Task, progress: Progress, seed: int = 0
) -> Forward:
    """Fit on top of the predictions `base` float64[n] of the base member. Deterministic."""
    curve = fit_curve(told, base)
    start = curve(base).astype(np.float32)

    def objective(score: npt.NDArray[np.float32], _: Any) -> tuple[Any, Any]:
        return told(score.reshape(-1, SCORES) + start)

    settings = {"objective": "multi:softprob", "num_class": SCORES, "base_score": 0.0, "max_delta_step": LARGEST_STEP}
    settings |= {"seed": seed}
    capacity = forward_capacity(told, len(base))
    data = inputs.to_train(task.threads, capacity.max_bins, np.zeros(len(base)))
    data.set_base_margin(np.zeros((len(base), SCORES), np.float32))
    return Forward(boosted(data, task, capacity, settings, objective, progress), curve, told.cells)
