"""A model as an ONNX graph, with encoding, clipping and calibration map: one input [n, 1] per column, one output [n,
1]; for classes the likeliest, and the output `probabilities` [n, k].

Built by hand: converters take the booster alone, and the encoding is where two stacks differ. Numbers enter as float32
(NaN missing), categories as text (missing: any text outside the vocabulary), dates as int64 days and timestamps as
int64 microseconds since 1970 (missing: the smallest int64, numpy's NaT). Operators of opset 17 and ai.onnx.ml 3 only.
"""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from features_party.models.folder import SavedModel
from features_party.training.classes import class_names
from features_party.training.crossings import Crossing
from features_party.training.encoding import PARTS, Column
from features_party.training.learner import Ports
from features_party.training.links import Link
from features_party.training.model import TrainedModel
from label_dp.domain import Domain
from label_dp.named_modules import installed

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

    def double(self, value: str) -> str:
        return self.cast(value, TensorProto.DOUBLE)

    def single(self, value: str) -> str:
        return self.cast(value, TensorProto.FLOAT)

    def int64(self, value: str) -> str:
        return self.cast(value, TensorProto.INT64)

    def clip(self, value: str, low: float, high: float) -> str:
        return self.add("Clip", value, self.constant(low, np.float64), self.constant(high, np.float64))

    def looked_up(self, index: str, table: npt.NDArray[Any], kind: Any) -> str:
        return self.add("Gather", self.constant(table, kind), index)

    def linked(self, score: str, link: Link | None) -> str:
        """Add the prediction of a score."""
        return score if link is None else link.nodes(self, score)

    def standardised(
        self, numbers: list[str], mean: npt.NDArray[Any], scale: npt.NDArray[Any], most: float
    ) -> tuple[str, str]:
        """Return columns in standard deviations, 0 if missing, and which are missing."""
        values = self.double(self.add("Concat", *numbers, axis=1))
        missing = self.add("IsNaN", values)
        centred = self.add("Sub", values, self.constant(mean, np.float64))
        standard = self.clip(self.add("Div", centred, self.constant(scale, np.float64)), -most, most)
        return self.add("Where", missing, self.constant(0.0, np.float64), standard), missing


def onnx_model(saved: SavedModel) -> bytes:
    """Serialize the graph; onnx itself checks it."""
    model = saved.model
    names = [column.name for column in model.schema.columns]
    graph = _Graph(names)
    ports = {name: name or f"{graph.prefix}column" for name in names}
    score = model.body.nodes(graph, _inputs(graph, model, ports))
    outputs = []
    if model.classes is not None:
        found, score = score, _likeliest(graph, score, model.classes)
        outputs.append(_output(graph, "probabilities", names, found, model.classes.k))
    else:
        score = graph.linked(score, model.body.link)
        if model.bounds is not None:
            score = graph.clip(score, *model.bounds)
        if model.calibration is not None:
            score = installed("features_party.companions.onnx_map").mapped(graph, score, model.calibration)
    kind = TensorProto.STRING if model.classes is not None and model.classes.names else TensorProto.FLOAT
    outputs.insert(0, _output(graph, "prediction", names, score, 1, kind))
    inputs = [
        helper.make_tensor_value_info(ports[c.name], TYPES.get(c.kind, TensorProto.INT64), ["n", 1])
        for c in model.schema.columns
    ]
    model_proto = helper.make_model(
        helper.make_graph(graph.nodes, "label-dp-model", inputs, outputs, graph.constants),
        opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", ML_OPSET)],
        producer_name="label-dp-service",
        ir_version=IR_VERSION,
    )
    helper.set_model_props(model_proto, _properties(saved))
    onnx.checker.check_model(model_proto)
    data: bytes = model_proto.SerializeToString(deterministic=True)
    return data


def _output(
    graph: _Graph, name: str, names_taken: list[str], value: str, width: int, kind: int = TensorProto.FLOAT
) -> Any:
    """Add an output [n, width] under that name, unless a column has it."""
    output = name if name not in names_taken else f"{graph.prefix}{name}"
    graph.add("Cast", value, output=output, to=kind)
    return helper.make_tensor_value_info(output, kind, ["n", width])


def _likeliest(graph: _Graph, shares: str, classes: Domain) -> str:
    """Return the class of the largest probability, [n, 1], the first of equal ones; a text if classes have names."""
    place = graph.add("ArgMax", shares, axis=1, keepdims=1)
    if not classes.names:
        return graph.looked_up(place, classes.values, np.float64)
    codes, names = list(range(classes.k)), list(classes.names)
    return graph.add("LabelEncoder", place, domain="ai.onnx.ml", keys_int64s=codes, values_strings=names)


def _properties(saved: SavedModel) -> dict[str, str]:
    card = saved.card
    members = {
        "label": card.get("label", ""),
        "releases": [m["release"] for m in card.get("messages", [])],
        "epsilon": card.get("epsilon", []),
        "model_sha256": card.get("model_sha256", ""),
        "missing": {c.name: _missing(c) for c in saved.model.schema.columns},
    }
    if saved.model.classes is not None:
        members["classes"] = class_names(saved.model.classes)
    if card.get("calibration") is not None:
        members["calibration"] = {name: card["calibration"][name] for name in ("answer", "document_digest", "key_id")}
    return {key: v if isinstance(v, str) else json.dumps(v, ensure_ascii=False) for key, v in members.items()}


def _missing(column: Column) -> str | int:
    """Return the value to send for a missing cell."""
    if column.kind == "number":
        return "NaN"
    if column.kind == "category":
        return next(text for n in itertools.count() if (text := "?" * n) not in column.vocabulary)
    return int(MISSING_TIME)


def _inputs(graph: _Graph, model: TrainedModel, ports: dict[str, str]) -> Ports:
    schema = model.schema
    index = [_index(graph, c, ports[c.name]) for c in schema.categories]
    numbers: list[str] = []
    for column in schema.columns:
        parts = {} if column.kind == "category" else _parts(graph, column, ports[column.name])
        numbers += [parts[part] for part in PARTS[column.kind]]
    index += [_crossed(graph, crossing, numbers, list(index)) for crossing in schema.crossings]
    tables: dict[tuple[int, bytes], str] = {}  # a mean, and a number less that mean, share a table
    statistics = []
    for s in schema.statistics:
        key = (s.category, s.table.tobytes())
        if key not in tables:
            tables[key] = graph.looked_up(index[s.category], s.table, np.float32)
        statistics.append(tables[key] if s.less is None else graph.add("Sub", numbers[s.less], tables[key]))
    return Ports(numbers + statistics, index, model.effects.tables)


def _index(graph: _Graph, column: Column, port: str) -> str:
    vocabulary = list(column.vocabulary) or ["?"]
    codes = range(1, len(vocabulary) + 1) if column.vocabulary else [0]
    return _encoded(graph, port, keys_strings=vocabulary, values_int64s=list(codes))


def _crossed(graph: _Graph, crossing: Crossing, numbers: list[str], index: list[str]) -> str:
    """Return the place of each row's group, int64 [n, 1], 0 for none."""
    places = []
    for side in crossing.sides:
        if side.values is None:
            places.append(index[side.at])
        else:
            table = {"keys_floats": side.values.tolist(), "values_int64s": list(range(1, side.size))}
            places.append(_encoded(graph, numbers[side.at], **table))
    whole = places[0]
    for side, place in zip(crossing.sides[1:], places[1:], strict=True):
        whole = graph.add("Add", graph.whole("Mul", whole, side.size), place)
    groups = crossing.groups.tolist()
    return _encoded(graph, whole, keys_int64s=groups, values_int64s=list(range(1, len(groups) + 1)))


def _encoded(graph: _Graph, value: str, **known: Any) -> str:
    return graph.add("LabelEncoder", value, domain="ai.onnx.ml", default_int64=0, **known)


def _parts(graph: _Graph, column: Column, port: str) -> dict[str, str]:
    """Return the float32 parts of a non-category column, by their names in PARTS."""
    nothing = graph.constant(np.nan, np.float32)
    if column.kind == "number":
        return {"": graph.add("Where", graph.add("IsInf", port), nothing, port)}
    missing = graph.add("Equal", port, graph.constant(MISSING_TIME, np.int64))
    if column.kind == "date":
        day, parts = port, {"days": graph.cast(port, TensorProto.FLOAT)}
    else:
        rest = graph.whole("Mod", port, DAY)
        day = graph.whole("Div", graph.add("Sub", port, rest), DAY)
        exact = graph.add("Div", graph.cast(port, TensorProto.DOUBLE), graph.constant(DAY, np.float64))
        hour = graph.whole("Div", rest, DAY // 24)
        parts = {"days": graph.cast(exact, TensorProto.FLOAT), "hour": graph.cast(hour, TensorProto.FLOAT)}
    weekday = graph.whole("Mod", graph.whole("Add", day, 3), 7)  # 1970-01-01 was a Thursday
    parts |= {
        "month": graph.cast(_month(graph, day), TensorProto.FLOAT),
        "weekday": graph.cast(weekday, TensorProto.FLOAT),
    }
    return {name: graph.add("Where", missing, nothing, value) for name, value in parts.items()}


def _month(graph: _Graph, day: str) -> str:
    """Compute 1 to 12 from days since 1970, by Hinnant's civil_from_days (years that begin in March, eras of 400
    years)."""
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
