"""The members of an ensemble as ONNX nodes: levels by comparison with edges, tables by Gather."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto

from features_party.training.additive import Additive
from features_party.training.gaussian import Gaussian
from features_party.training.levels import Feature


def additive_score(graph: Any, body: Additive, numbers: list[str], index: list[str], effects: list[str]) -> str:
    """float64 [n, 1] before the link; `numbers`, `index`, `effects` name [n, 1] values, by column."""
    levels = [_level(graph, feature, numbers, index, effects) for feature in body.features]
    score = str(graph.constant([[body.intercept]], np.float64))
    for table, level in zip(body.main, levels, strict=True):
        score = graph.add("Add", score, graph.add("Gather", graph.constant(table, np.float64), level))
    for pair in body.pairs:
        row = graph.add("Gather", graph.constant(pair.rows, np.int64), levels[pair.first])
        column = graph.add("Gather", graph.constant(pair.columns, np.int64), levels[pair.second])
        cell = graph.add("Add", graph.whole("Mul", row, pair.table.shape[1]), column)
        score = graph.add("Add", score, graph.add("Gather", graph.constant(pair.table.ravel(), np.float64), cell))
    return score


def gaussian_score(graph: Any, body: Gaussian, numbers: list[str], index: list[str], effects: list[str]) -> str:
    """float64 [n, 1]: one table of factors per feature, their product over features against the landmarks."""
    product = ""
    for at, feature in enumerate(body.kernel.features):
        table = body.kernel.factor(at)[:, body.landmarks[:, at]]
        level = _level(graph, feature, numbers, index, effects)
        rows = graph.add("Gather", graph.constant(table, np.float64), level)
        factor = graph.add("Squeeze", rows, graph.constant([1], np.int64))
        product = graph.add("Mul", product, factor) if product else factor
    kernel = graph.add("Sub", product, graph.constant(1.0, np.float64))
    sums = graph.add("MatMul", kernel, graph.constant(body.weights[:, None], np.float64))
    return str(graph.add("Add", sums, graph.constant(body.offset, np.float64)))


def _level(graph: Any, feature: Feature, numbers: list[str], index: list[str], effects: list[str]) -> str:
    if not feature.ordered:
        return index[feature.at]
    value = (numbers if feature.source == "number" else effects)[feature.at]
    missing = graph.add("IsNaN", value)
    nothing = graph.constant(0, np.int64)
    if not feature.edges:
        return str(graph.add("Where", missing, nothing, graph.constant(1, np.int64)))
    above = graph.add("GreaterOrEqual", value, graph.constant([feature.edges], np.float32))
    passed = graph.add("ReduceSum", graph.cast(above, TensorProto.INT64), graph.constant([1], np.int64), keepdims=1)
    return str(graph.add("Where", missing, nothing, graph.whole("Add", passed, 1)))


def member_prediction(graph: Any, score: str, link: Any, bounds: tuple[float, float]) -> str:
    """float64 [n, 1] inside of `bounds`."""
    if link is not None:
        score = graph.add("Exp", graph.clip(score, link.low, link.high))
    return str(graph.clip(score, *bounds))
