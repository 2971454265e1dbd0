"""How a model turns columns into the inputs of its trees, as data: for whoever predicts in another stack."""

from __future__ import annotations

from typing import Any

from features_party.training.classes import class_names
from features_party.training.encoding import PARTS, FeatureSchema
from features_party.training.learners.class_trees import ClassTrees
from features_party.training.learners.trees import ONE_HOT, Trees
from features_party.training.model import TrainedModel

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
    "Categories are compared as text: whole numbers in decimal digits, booleans as true and false.",
    "The booster's output is a score (output_margin). With the link `exp` it is clipped to low and high, then its "
    "exponential is taken; with the link `logistic` it is clipped alike, and the prediction is first + (second − "
    "first)/(1 + exp(−x)), x = slope·score + shift clipped to ±30. Every prediction is clipped to `clip` in the end.",
    "With the link `softmax` the booster has one score f_c for each of `classes`, in their order. The probability of a "
    "class is exp(x_c)/(the sum of exp(x) over the classes), x_c = slope·f_c + shifts_c with f_c clipped to ±30.",
]


def input_parts(model: TrainedModel) -> list[dict[str, Any]]:
    """Column and part (what of it) of each input of the trees, in order: numbers, statistics, categories."""
    schema = model.schema
    numbers, categories = number_parts(schema), schema.categories
    statistics = [
        {"column": categories[statistic.category].name, "part": "statistic", "statistic": at}
        for at, statistic in enumerate(schema.statistics)
    ]
    small = [len(column.vocabulary) + 1 <= ONE_HOT for column in categories]
    shown = [{"column": c.name, "part": "code" if s else "effect"} for c, s in zip(categories, small, strict=True)]
    return [*numbers, *statistics, *shown]


def number_parts(schema: FeatureSchema) -> list[dict[str, Any]]:
    """Column and part of each number that comes straight from a column."""
    return [{"column": c.name, "part": part or "value"} for c in schema.columns for part in PARTS[c.kind]]


def encoding_guide(model: TrainedModel) -> dict[str, Any]:
    """Everything besides the trees that a prediction needs; see RULES, which are part of it."""
    assert isinstance(model.body, Trees | ClassTrees)
    effects = iter(model.effects.tables)
    columns: list[dict[str, Any]] = []
    for column in model.schema.columns:
        shown: dict[str, Any] = column.as_json()
        if column.kind == "category":
            table = next(effects)
            shown |= {"effects": [float(v) for v in table[1:]], "missing_effect": float(table[0])}
        columns.append(shown)
    numbers, inputs = number_parts(model.schema), input_parts(model)
    statistics = [
        {
            "name": s.name,
            "column": model.schema.categories[s.category].name,
            "table": s.table.tolist(),
            "less": None if s.less is None else numbers[s.less],
        }
        for s in model.schema.statistics
    ]
    return {
        "format": FORMAT,
        "version": VERSION,
        "rules": RULES,
        "columns": columns,
        "statistics": statistics,
        "inputs": [{"index": at} | one for at, one in enumerate(inputs)],
        "feature_types": ["c" if one["part"] == "code" else "q" for one in inputs],
        "link": _link(model),
        "clip": list(model.bounds) if model.bounds is not None and model.classes is None else None,
    }


def _link(model: TrainedModel) -> dict[str, Any]:
    if isinstance(model.body, ClassTrees) and model.classes is not None:
        return {"kind": "softmax", "classes": class_names(model.classes), **model.body.softmax.as_json()}
    link = model.body.link
    return {"kind": "identity"} if link is None else {"kind": link.kind, **link.as_json()}
