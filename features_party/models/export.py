"""Models for other stacks: XGBoost's own format with its encoding as JSON, or the whole pipeline as one ONNX file."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from features_party.models.card_reading import reading_card
from features_party.models.card_text import card_markdown
from features_party.models.folder import CARD_FILE, CARD_TEXT, SavedModel
from features_party.training.classes import class_names
from features_party.training.crossings import Crossing
from features_party.training.encoding import PARTS, FeatureSchema
from features_party.training.learners.class_trees import ClassTrees
from features_party.training.learners.trees import ONE_HOT, Trees
from features_party.training.model import TrainedModel
from label_dp.errors import InvalidInput
from label_dp.installing import pip_install
from label_dp.schemas.json_types import JsonObject

BOOSTER_FILE, ENCODING_FILE = "booster.json", "encoding.json"
EPOCH = (1980, 1, 1, 0, 0, 0)  # the same model gives the same bytes


def as_xgboost(saved: SavedModel) -> bytes:
    """Build a zip: `booster.json` for `xgboost.Booster(model_file=…)`, `encoding.json`, and the card.

    Raises InvalidInput for a model without trees, of several boosters, and for a calibrated one.
    """
    body = saved.model.body
    if saved.model.calibration is not None:
        raise InvalidInput(
            "A calibrated model has a map behind its predictions, which XGBoost's format does not hold; export it with "
            "format onnx, or export the model it was made from and apply the signed map to its predictions."
        )
    boosters = (body.booster,) if isinstance(body, Trees) else body.boosters if isinstance(body, ClassTrees) else ()
    if not boosters:
        raise InvalidInput(
            "This model has no trees alone, which is what XGBoost's format holds; export it with format onnx, or train "
            "model trees."
        )
    if len(boosters) > 1:
        raise InvalidInput(
            "This model averages several boosters, and XGBoost's format holds one; export it with format onnx, or "
            "train model trees."
        )
    files = {
        BOOSTER_FILE: bytes(boosters[0].save_raw("json")),
        ENCODING_FILE: _json(encoding_guide(saved.model)),
        CARD_FILE: _json(saved.card),
        CARD_TEXT: card_markdown(saved.card).encode(),
    }
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            info = zipfile.ZipInfo(name, EPOCH)
            info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(info, data)
    return sink.getvalue()


def as_onnx(saved: SavedModel) -> bytes:
    """Build an ONNX file from raw columns to predictions inside the domain, through the map of a calibrated model.

    Raises InvalidInput if `onnx` is missing.
    """
    try:
        from features_party.models.onnx_graph import onnx_model
    except ModuleNotFoundError:
        raise InvalidInput(f"ONNX export needs the package onnx: {pip_install('onnx')}.") from None
    return onnx_model(saved)


def _json(data: Any) -> bytes:
    return json.dumps(data, ensure_ascii=False, allow_nan=False, indent=1).encode()


# by name: its function, its media type, its file suffix
FORMATS: dict[str, tuple[Callable[[SavedModel], bytes], str, str]] = {
    "xgboost": (as_xgboost, "application/zip", ".xgboost.zip"),
    "onnx": (as_onnx, "application/vnd.onnx", ".onnx"),
}


@reading_card()
def export(saved: SavedModel, form: str) -> bytes:
    """Return the bytes of one of FORMATS. Raises InvalidInput; InvalidFile for a damaged card."""
    if form not in FORMATS:
        raise InvalidInput(f"There is no export format '{form}'; choose one of {', '.join(FORMATS)}.")
    return FORMATS[form][0](saved)


FloatArray = npt.NDArray[np.float64]

FORMAT, VERSION = "label-dp-encoding", 1

RULES = [
    "The trees see one float32 matrix with the inputs in the order of `inputs`; their DMatrix needs "
    "enable_categorical=True and the `feature_types` given here.",
    "value: the number as float32; true is 1, false is 0; missing, NaN and infinity are NaN.",
    "days: days since 1970-01-01, of a timestamp with its fraction of a day; month 1 to 12; weekday 0 (Monday) to 6; "
    "hour 0 to 23. Timestamps with a time zone are read in UTC. Missing is NaN.",
    "code: the position of the value in the column's `vocabulary`; NaN where it is missing or not in it.",
    "effect: the entry of `effects` at that position; `missing_effect` where the value is missing or not in it.",
    "statistic: an entry of the `table` of `statistics` at the position `statistic` (0 is the first). The first entry "
    "is for a value that is missing or not in the `vocabulary` of its `column`, the others are for the vocabulary in "
    "its order. Where it has `less`, the number that this names by column and part, minus the entry, both float32 "
    "(NaN where the number is missing).",
    "crossed effect: the entry of `effects` of the entry `crossing` of `crossings` at the group of the row; "
    "`missing_effect` where it is none of `groups`. A group is a list of places, one for each of the `sides`: 0 where "
    "its value is missing or unknown, 1 for the first of its `values` (numbers, as float32) or of the `vocabulary` of "
    "its column, and so on. A statistic with `crossing` goes by the groups of that crossing instead of a vocabulary.",
    "Categories are compared as text: whole numbers in decimal digits, without a point, booleans as true and false; an "
    "empty text is missing. `holds` says what a column held in training: where that is not text, words such as NA are "
    "missing too, and 3.0 or the text 3 is the whole number 3. Times with a zone are no values of a column of times "
    "without one.",
    "The booster's output is a score (output_margin). With the link `exp` it is clipped to low and high, then its "
    "exponential is taken; with the link `logistic` it is clipped alike, and the prediction is first + (second − "
    "first)/(1 + exp(−x)), x = slope·score + shift clipped to ±30. Every prediction is clipped to `clip` in the end.",
    "With the link `softmax` the booster has one score f_c for each of `classes`, in their order. The probability of a "
    "class is exp(x_c)/(the sum of exp(x) over the classes), x_c = slope·f_c + shifts_c with f_c clipped to ±30.",
]


def input_parts(model: TrainedModel) -> list[dict[str, Any]]:
    """List column and part of each input of the trees, in order: numbers, statistics, categories, crossings."""
    schema = model.schema
    numbers, categories = number_parts(schema), schema.categories
    statistics = [
        {"column": schema.category_names[statistic.category], "part": "statistic", "statistic": at}
        for at, statistic in enumerate(schema.statistics)
    ]
    small = [len(column.vocabulary) + 1 <= ONE_HOT for column in categories]
    parts = [{"column": c.name, "part": "code" if s else "effect"} for c, s in zip(categories, small, strict=True)]
    crossed = [{"column": c.name, "part": "crossed effect", "crossing": at} for at, c in enumerate(schema.crossings)]
    return [*numbers, *statistics, *parts, *crossed]


def number_parts(schema: FeatureSchema) -> list[dict[str, Any]]:
    """List column and part of each number that comes straight from a column."""
    return [{"column": c.name, "part": part or "value"} for c in schema.columns for part in PARTS[c.kind]]


def encoding_guide(model: TrainedModel) -> JsonObject:
    """Return everything besides the trees that a prediction needs, including RULES."""
    assert isinstance(model.body, Trees | ClassTrees)
    schema = model.schema
    effects = iter(model.effects.tables)
    columns: list[dict[str, Any]] = []
    for column in schema.columns:
        shown: dict[str, Any] = column.as_json()
        columns.append(shown | _effects(next(effects)) if column.kind == "category" else shown)
    numbers, inputs, plain = number_parts(schema), input_parts(model), len(schema.categories)
    statistics = [
        {
            "name": s.name,
            "column": schema.category_names[s.category],
            "crossing": s.category - plain if s.category >= plain else None,
            "table": s.table.tolist(),
            "less": None if s.less is None else numbers[s.less],
        }
        for s in schema.statistics
    ]
    return {
        "format": FORMAT,
        "version": VERSION,
        "rules": RULES,
        "columns": columns,
        "crossings": [_crossing(crossing, schema) | _effects(next(effects)) for crossing in schema.crossings],
        "statistics": statistics,
        "inputs": [{"index": at} | one for at, one in enumerate(inputs)],
        "feature_types": ["c" if one["part"] == "code" else "q" for one in inputs],
        "link": _link(model),
        "clip": list(model.bounds) if model.bounds is not None and model.classes is None else None,
    }


def _link(model: TrainedModel) -> JsonObject:
    if isinstance(model.body, ClassTrees) and model.classes is not None:
        return {"kind": "softmax", "classes": class_names(model.classes), **model.body.softmax.as_json()}
    link = model.body.link
    return {"kind": "identity"} if link is None else {"kind": link.kind, **link.as_json()}


def _effects(table: FloatArray) -> JsonObject:
    return {"effects": [float(v) for v in table[1:]], "missing_effect": float(table[0])}


def _crossing(crossing: Crossing, schema: FeatureSchema) -> JsonObject:
    """Return the sides of a crossing, and its groups as the places of each side."""
    numbers, sides = number_parts(schema), []
    for side in crossing.sides:
        if side.values is None:
            sides.append({"column": schema.categories[side.at].name, "part": "code", "values": None})
        else:
            sides.append(numbers[side.at] | {"values": side.values.tolist()})
    places = np.stack(np.unravel_index(crossing.groups, [side.size for side in crossing.sides]), axis=1)
    return {"name": crossing.name, "sides": sides, "groups": places.tolist()}
