"""Predict: a form from the model's own schema, for one row."""

from __future__ import annotations

from typing import Any

from fastapi import Response

from features_party.models.evaluation import likeliest
from features_party.models.rows import read_rows
from features_party.pages.context import Trainer, services
from features_party.training.classes import class_names
from features_party.training.encoding import Column
from label_dp.errors import InvalidInput, InvalidRows
from label_dp.pages.site import FORM, Visit, page_router

router = page_router()
MOST_LISTED = 300  # most categories of a column in its choice
EMPTY = "Fill in a column at least: of a row that is missing whole the model knows nothing."
BY_MEANS = "each number counts as its mean in training, and each category as none of its values"
AS_GAPS = "nothing stands in for them: the model goes where gaps went in training, and guesses where it had none"
GAPS = {"linear": BY_MEANS, "mlp": BY_MEANS}  # by the kind of the model, AS_GAPS elsewhere
FIELD = "column-"  # and its number: a column's name may be anything


@router.get("/models/{name}/predict")
def ask(name: str, visit: Trainer) -> Response:
    """Show the form for a prediction."""
    return _page(name, visit, {}, None)


@router.post("/models/{name}/predict", dependencies=[FORM])
def predict(name: str, visit: Trainer) -> Response:
    """Predict a row; an invalid one is refused by column, as over REST."""
    saved = services(visit).models.open(name)
    columns = saved.model.schema.columns
    entries = {c.name: visit.form.get(f"{FIELD}{at}", "").strip() for at, c in enumerate(columns)}
    if not any(entries.values()):
        return _page(name, visit, entries, None, wrong=EMPTY)
    try:
        row = {c.name: _cell(c, entries[c.name]) for c in columns}
        read = read_rows(saved.model.schema, [row], refuse_unknown=False, ignore_unexpected=False)
    except InvalidRows as error:
        first = error.problems[0]
        return _page(name, visit, entries, None, status=422, wrong=f"Column '{first.field}': {first.rule}.")
    except InvalidInput as error:
        return _page(name, visit, entries, None, status=422, wrong=error.detail)
    predictions, classes = saved.model.predict_encoded(read.encoded), saved.model.classes
    predicted: dict[str, Any] = {"value": predictions[0], "classes": None, "unknown": list(read.unknown)}
    predicted |= {"missing": list(read.missing), "gaps": GAPS.get(saved.model.kind, AS_GAPS)}
    if classes is not None:
        chances = zip(class_names(classes), predictions[0].tolist(), strict=True)
        best = sorted(chances, key=lambda pair: -pair[1])[:20]
        predicted |= {"value": likeliest(classes, predictions)[0], "classes": best}
    return _page(name, visit, entries, predicted)


def _cell(column: Column, text: str) -> str | float | None:
    if not text:
        return None
    if column.kind != "number":
        return text
    try:
        return float(text)
    except ValueError:
        raise InvalidInput(f"Column '{column.name}' takes a number, or nothing.") from None


def _page(
    name: str,
    visit: Visit,
    entries: dict[str, str],
    predicted: dict[str, Any] | None,
    status: int = 200,
    wrong: str = "",
) -> Response:
    """Show the form with its entries; `wrong`: why nothing was predicted."""
    saved = services(visit).models.open(name)
    fields = [
        {
            "field": f"{FIELD}{at}",
            "name": c.name,
            "kind": c.kind,
            "value": entries.get(c.name, ""),
            "options": list(c.vocabulary[:MOST_LISTED]) if c.kind == "category" else [],
            "more": c.kind == "category" and len(c.vocabulary) > MOST_LISTED,
        }
        for at, c in enumerate(saved.model.schema.columns)
    ]
    mean = saved.model.mean if saved.model.classes is None else None
    values = {"name": name, "label": saved.card["label"], "fields": fields, "predicted": predicted, "wrong": wrong}
    return visit.page("predict", status=status, mean=mean, **values)
