"""A model as an ONNX graph, encoding, clipping and map included: one input [n, 1] per column, one output [n, 1].

Built by hand: converters take the booster alone, and the encoding is where two stacks differ. Numbers come as float32
(NaN missing), categories as text (missing: any text that is no category), dates as int64 days and timestamps as int64
microseconds since 1970 (missing: the smallest int64, numpy's NaT). Operators of opset 17 and ai.onnx.ml 3 only.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from features_party.registry.folder import SavedModel
from features_party.registry.onnx_ensemble import additive_score, gaussian_score, member_prediction
from features_party.registry.onnx_map import mapped
from features_party.registry.onnx_trees import tree_attributes
from features_party.training.additive import Additive
from features_party.training.encoding import PARTS, Column, FeatureSchema
from features_party.training.ensemble import Ensemble
from features_party.training.gaussian import Gaussian
from features_party.training.gbdt import ONE_HOT, Trees
from features_party.training.linear import Linear
from features_party.training.mlp import EMBEDDING, LARGEST_NUMBER, Network
from features_party.training.model import TrainedModel

OPSET, ML_OPSET, IR_VERSION = 17, 3, 8
MISSING_TIME = np.iinfo(np.int64).min
DAY = 86_400_000_000  # microseconds
TYPES = {"number": TensorProto.FLOAT, "category": TensorProto.STRING}


class _Graph:
    """Nodes and constants, with names that no column has."""

    def __init__(self, columns: list[str]) -> None:
        self.prefix = next(p for n in itertools.count(1) if not any(c.startswith(p := "/" * n) for c in columns))
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def fresh(self) -> str:
        return f"{self.prefix}{len(self.nodes)}.{len(self.constants)}"

    def constant(self, value: Any, kind: Any) -> str:
        name = self.fresh()
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype=kind), name))
        return name

    def add(self, operator: str, *inputs: str, output: str | None = None, domain: str = "", **attributes: Any) -> str:
        name = output or self.fresh()
        self.nodes.append(helper.make_node(operator, list(inputs), [name], domain=domain, **attributes))
        return name

    def whole(self, operator: str, left: str, right: int) -> str:
        return self.add(operator, left, self.constant(right, np.int64))

    def cast(self, value: str, kind: int) -> str:
        return self.add("Cast", value, to=kind)

    def clip(self, value: str, low: float, high: float) -> str:
        return self.add("Clip", value, self.constant(low, np.float64), self.constant(high, np.float64))


@dataclass(frozen=True)
class _Inputs:
    """[n, 1] values by name, in the order of Encoded: float32 numbers with the statistics, int64 places of categories,
    0 for missing, then the vocabulary."""

    numbers: list[str]
    index: list[str]


def onnx_model(saved: SavedModel) -> bytes:
    """The serialized graph; checked by onnx itself."""
    model = saved.model
    names = [column.name for column in model.schema.columns]
    graph = _Graph(names)
    ports = {name: name or f"{graph.prefix}column" for name in names}
    score = SCORES[type(model.body)](graph, model, _inputs(graph, model.schema, ports))
    score = graph.cast(score, TensorProto.DOUBLE)
    if not isinstance(model.body, Ensemble) and model.body.link is not None:
        score = graph.add("Exp", graph.clip(score, model.body.link.low, model.body.link.high))
    if model.bounds is not None:
        score = graph.clip(score, *model.bounds)
    if model.calibration is not None:
        score = mapped(graph, score, model.calibration)
    output = "prediction" if "prediction" not in names else f"{graph.prefix}prediction"
    graph.add("Cast", score, output=output, to=TensorProto.FLOAT)
    inputs = [
        helper.make_tensor_value_info(ports[c.name], TYPES.get(c.kind, TensorProto.INT64), ["n", 1])
        for c in model.schema.columns
    ]
    outputs = [helper.make_tensor_value_info(output, TensorProto.FLOAT, ["n", 1])]
    made = helper.make_model(
        helper.make_graph(graph.nodes, "label-dp-model", inputs, outputs, graph.constants),
        opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", ML_OPSET)],
        producer_name="label-dp-service",
        ir_version=IR_VERSION,
    )
    helper.set_model_props(made, _properties(saved))
    onnx.checker.check_model(made)
    data: bytes = made.SerializeToString(deterministic=True)
    return data


def _properties(saved: SavedModel) -> dict[str, str]:
    card = saved.card
    told = {
        "label": card.get("label", ""),
        "releases": [m["release"] for m in card.get("messages", [])],
        "epsilon": card.get("epsilon", []),
        "model_sha256": card.get("model_sha256", ""),
        "missing": {c.name: _missing(c) for c in saved.model.schema.columns},
    }
    if "calibration" in card:
        told["calibration"] = {name: card["calibration"][name] for name in ("answer", "document_digest", "key_id")}
    return {key: v if isinstance(v, str) else json.dumps(v, ensure_ascii=False) for key, v in told.items()}


def _missing(column: Column) -> str | int:
    """What to send where a value is missing."""
    if column.kind == "number":
        return "NaN"
    if column.kind == "category":
        return next(text for n in itertools.count() if (text := "?" * n) not in column.vocabulary)
    return int(MISSING_TIME)


def _inputs(graph: _Graph, schema: FeatureSchema, ports: dict[str, str]) -> _Inputs:
    index = [_index(graph, c, ports[c.name]) for c in schema.categories]
    numbers: list[str] = []
    for column in schema.columns:
        parts = {} if column.kind == "category" else _parts(graph, column, ports[column.name])
        numbers += [parts[part] for part in PARTS[column.kind]]
    found: dict[tuple[int, bytes], str] = {}  # a mean, and a number less that mean, share a table
    statistics = []
    for s in schema.statistics:
        key = (s.category, s.table.tobytes())
        if key not in found:
            found[key] = _looked_up(graph, index[s.category], s.table, np.float32)
        statistics.append(found[key] if s.less is None else graph.add("Sub", numbers[s.less], found[key]))
    return _Inputs(numbers + statistics, index)


def _index(graph: _Graph, column: Column, port: str) -> str:
    known = list(column.vocabulary) or ["?"]
    codes = range(1, len(known) + 1) if column.vocabulary else [0]
    return graph.add(
        "LabelEncoder", port, domain="ai.onnx.ml", keys_strings=known, values_int64s=list(codes), default_int64=0
    )


def _parts(graph: _Graph, column: Column, port: str) -> dict[str, str]:
    """The float32 parts of a column that is no category, by their names in PARTS."""
    nothing = graph.constant(np.nan, np.float32)
    if column.kind == "number":
        return {"": graph.add("Where", graph.add("IsInf", port), nothing, port)}
    missing = graph.add("Equal", port, graph.constant(MISSING_TIME, np.int64))
    if column.kind == "date":
        day, found = port, {"days": graph.cast(port, TensorProto.FLOAT)}
    else:
        rest = graph.whole("Mod", port, DAY)
        day = graph.whole("Div", graph.add("Sub", port, rest), DAY)
        exact = graph.add("Div", graph.cast(port, TensorProto.DOUBLE), graph.constant(DAY, np.float64))
        hour = graph.whole("Div", rest, DAY // 24)
        found = {"days": graph.cast(exact, TensorProto.FLOAT), "hour": graph.cast(hour, TensorProto.FLOAT)}
    weekday = graph.whole("Mod", graph.whole("Add", day, 3), 7)  # 1970-01-01 was a Thursday
    found |= {
        "month": graph.cast(_month(graph, day), TensorProto.FLOAT),
        "weekday": graph.cast(weekday, TensorProto.FLOAT),
    }
    return {name: graph.add("Where", missing, nothing, value) for name, value in found.items()}


def _month(graph: _Graph, day: str) -> str:
    """1 to 12 from days since 1970, by Hinnant's civil_from_days (years that begin in March, eras of 400 years)."""
    in_era = graph.whole("Mod", graph.whole("Add", day, 719_468), 146_097)
    leap = graph.add("Sub", in_era, graph.whole("Div", in_era, 1460))
    leap = graph.add("Add", leap, graph.whole("Div", in_era, 36_524))
    leap = graph.add("Sub", leap, graph.whole("Div", in_era, 146_096))
    year = graph.whole("Div", leap, 365)
    before = graph.add("Add", graph.whole("Mul", year, 365), graph.whole("Div", year, 4))
    before = graph.add("Sub", before, graph.whole("Div", year, 100))
    in_year = graph.add("Sub", in_era, before)
    from_march = graph.whole("Div", graph.whole("Add", graph.whole("Mul", in_year, 5), 2), 153)
    return graph.whole("Add", graph.whole("Mod", graph.whole("Add", from_march, 2), 12), 1)


def _looked_up(graph: _Graph, index: str, table: npt.NDArray[Any], kind: Any) -> str:
    return graph.add("Gather", graph.constant(table, kind), index)


def _trees(graph: _Graph, model: TrainedModel, inputs: _Inputs) -> str:
    assert isinstance(model.body, Trees)
    return _tree_score(graph, model.body, _tree_inputs(graph, model, inputs), None)


def _tree_inputs(graph: _Graph, model: TrainedModel, inputs: _Inputs) -> str:
    seen = list(inputs.numbers)
    for index, effects in zip(inputs.index, model.effects.tables, strict=True):
        table = np.array([np.nan, *range(len(effects) - 1)]) if len(effects) <= ONE_HOT else effects
        seen.append(_looked_up(graph, index, table, np.float32))
    return graph.add("Concat", *seen, axis=1)


def _tree_score(graph: _Graph, trees: Trees, matrix: str, base: str | None) -> str:
    attributes = tree_attributes(trees)
    if base is not None:
        attributes["base_values"] = [0.0]
    score = graph.add("TreeEnsembleRegressor", matrix, domain="ai.onnx.ml", **attributes)
    return score if base is None else graph.add("Add", graph.cast(score, TensorProto.DOUBLE), base)


def _ensemble(graph: _Graph, model: TrainedModel, inputs: _Inputs) -> str:
    body, numbers, index = model.body, inputs.numbers, inputs.index
    assert isinstance(body, Ensemble)
    effects = [_looked_up(graph, i, table, np.float32) for i, table in zip(index, model.effects.tables, strict=True)]
    matrix = _tree_inputs(graph, model, inputs) if any(isinstance(m.body, Trees) for m in body.members) else ""
    score = graph.add("Expand", graph.constant([[body.mean]], np.float64), graph.add("Shape", (numbers + index)[0]))
    scores: list[str] = []
    for member in body.members:
        if isinstance(member.body, Additive):
            found = additive_score(graph, member.body, numbers, index, effects)
        elif isinstance(member.body, Gaussian):
            found = gaussian_score(graph, member.body, numbers, index, effects)
        else:
            base = None
            if member.base is not None:
                under = body.members[member.base].body
                assert isinstance(under, Additive)
                base = scores[member.base]
                if member.body.link is None:
                    base = member_prediction(graph, base, under.link, body.bounds)
                else:
                    assert under.link is not None
                    base = graph.clip(base, under.link.low, under.link.high)
            found = graph.cast(_tree_score(graph, member.body, matrix, base), TensorProto.DOUBLE)
        scores.append(found)
        if member.weight > 0.0:
            link = None if isinstance(member.body, Gaussian) else member.body.link
            prediction = member_prediction(graph, found, link, body.bounds)
            moved = graph.add("Sub", prediction, graph.constant(body.mean, np.float64))
            score = graph.add("Add", score, graph.add("Mul", moved, graph.constant(member.weight, np.float64)))
    return score


def _linear(graph: _Graph, model: TrainedModel, inputs: _Inputs) -> str:
    assert isinstance(model.body, Linear)
    body, index = model.body, inputs.index
    design, weights = body.design, body.coefficients
    effects = [_looked_up(graph, index[at], model.effects.tables[at], np.float32) for at in design.large]
    numbers = inputs.numbers + effects
    score = graph.constant([[body.intercept]], np.float64)
    # a model of small categories only has no numbers; the shape then comes from them
    if numbers:
        standard, missing = _standardised(graph, numbers, design.mean, design.scale, 10.0)
        width = len(design.mean)
        gaps = np.zeros(width)
        gaps[list(design.gaps)] = weights[width : width + len(design.gaps)]
        for term, by in ((standard, weights[:width]), (graph.cast(missing, TensorProto.DOUBLE), gaps)):
            score = graph.add("Add", score, graph.add("MatMul", term, graph.constant(by[:, None], np.float64)))
    start = len(design.mean) + len(design.gaps)
    for at, size in design.one_hot:
        table = np.concatenate([[0.0], weights[start : start + size]])
        score = graph.add("Add", score, _looked_up(graph, index[at], table, np.float64))
        start += size
    return score


def _network(graph: _Graph, model: TrainedModel, inputs: _Inputs) -> str:
    assert isinstance(model.body, Network)
    own, seen = model.body.inputs, []
    if inputs.numbers:
        scale = np.where(own.spread > 0.0, own.spread, np.inf)
        standard, missing = _standardised(graph, inputs.numbers, own.mean, scale, LARGEST_NUMBER)
        seen.append(graph.cast(standard, TensorProto.FLOAT))
        if own.gaps:
            gaps = graph.constant(own.gaps, np.int64)
            seen.append(graph.add("Gather", graph.cast(missing, TensorProto.FLOAT), gaps, axis=1))
    for index, rows in zip(inputs.index, own.rows, strict=True):
        vectors = _looked_up(graph, index, model.body.embedding[rows], np.float32)
        seen.append(graph.add("Reshape", vectors, graph.constant([-1, EMBEDDING], np.int64)))
    values = graph.add("Concat", *seen, axis=1)
    for at, (weights, bias) in enumerate(model.body.layers):
        values = values if at == 0 else graph.add("Relu", values)
        product = graph.add("MatMul", values, graph.constant(weights, np.float32))
        values = graph.add("Add", product, graph.constant(bias, np.float32))
    scaled = graph.add("Mul", graph.cast(values, TensorProto.DOUBLE), graph.constant(model.body.scale, np.float64))
    return graph.add("Add", scaled, graph.constant(model.body.offset, np.float64))


SCORES: dict[type, Callable[[_Graph, TrainedModel, _Inputs], str]] = {
    Trees: _trees,
    Linear: _linear,
    Network: _network,
    Ensemble: _ensemble,
}


def _standardised(
    graph: _Graph, numbers: list[str], mean: npt.NDArray[Any], scale: npt.NDArray[Any], most: float
) -> tuple[str, str]:
    """Columns in standard deviations, 0 where missing, and which are missing."""
    values = graph.cast(graph.add("Concat", *numbers, axis=1), TensorProto.DOUBLE)
    missing = graph.add("IsNaN", values)
    centred = graph.add("Sub", values, graph.constant(mean, np.float64))
    standard = graph.add("Div", centred, graph.constant(scale, np.float64))
    return graph.add("Where", missing, graph.constant(0.0, np.float64), graph.clip(standard, -most, most)), missing
