"""Models: cards, gains with intervals, aliases; several side by side; a form that predicts; a report as a file."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Annotated, Any

from fastapi import Query, Response
from markupsafe import Markup

from features_party.models.card import explained
from features_party.models.card_reading import reading_card
from features_party.models.compare import compare
from features_party.models.evaluation import likeliest
from features_party.models.folder import SavedModel
from features_party.models.rows import read_rows
from features_party.pages.context import Cursor, Reader, Trainer, newest, services
from features_party.training.classes import class_names
from features_party.training.encoding import Column
from label_dp.errors import InvalidInput, InvalidRows
from label_dp.pages.pictures import bars, reliability
from label_dp.pages.report import render, write
from label_dp.pages.site import FORM, Visit, page_router

router = page_router()
SHOWN = 15
MOST_LISTED = 300  # most categories of a column in its choice
EMPTY = "Fill in a column at least: of a row that is missing whole the model knows nothing."
BY_MEANS = "each number counts as its mean in training, and each category as none of its values"
AS_GAPS = "nothing stands in for them: the model goes where gaps went in training, and guesses where it had none"
GAPS = {"linear": BY_MEANS, "mlp": BY_MEANS}  # by the kind of the model, AS_GAPS elsewhere
FIELD = "column-"  # and its number: a column's name may be anything


@router.get("/models")
def models(visit: Reader, cursor: Cursor = None) -> Response:
    """List the models."""
    return visit.page("models", found=services(visit).models.list(newest(cursor)))


@router.get("/models/compare")
def side_by_side(visit: Reader, model: Annotated[list[str] | None, Query(max_length=20)] = None) -> Response:
    """Compare models."""
    if not model or len(model) < 2:
        raise InvalidInput("Choose two models or more to compare.")
    ctx = services(visit)
    return visit.page("compare", found=compare([(name, ctx.models.open(name)) for name in model]))


@router.get("/models/{name}")
def model(name: str, visit: Reader) -> Response:
    """Show a model's card, by its id or an alias."""
    return _model(visit, name)


@router.post("/models/{name}/aliases", dependencies=[FORM])
def set_alias(name: str, visit: Trainer) -> Response:
    """Give a model an alias; a refused one stays in its field."""
    alias = visit.form.get("alias", "").strip()
    try:
        model_id = services(visit).models.set_alias(name, alias)
    except InvalidInput as error:
        return _model(visit, name, alias, error.detail)
    return visit.go(f"/models/{model_id}", "alias-set")


@router.post("/models/{name}/aliases/{alias}/remove", dependencies=[FORM])
def remove_alias(name: str, alias: str, visit: Trainer) -> Response:
    """Take an alias from a model."""
    services(visit).models.remove_alias(name, alias)
    return visit.go(f"/models/{name}", "alias-removed")


def _model(visit: Visit, name: str, alias: str = "", wrong: str = "") -> Response:
    registry = services(visit).models
    model_id, saved = registry.resolve(name)
    training = services(visit).database.read("page.model", lambda c: registry.training_of(c, model_id))
    members = described(saved.card) | {"training": training, "aliases": registry.aliases(model_id)}
    return visit.page("model", status=422 if wrong else 200, name=model_id, alias=alias, wrong=wrong, **members)


def described(card: dict[str, Any]) -> dict[str, object]:
    """Convert a card for `model_parts.html.jinja`."""
    estimate = card["report"]["error_estimate"]
    share = explained(card["report"])
    return {
        "card": card,
        "estimate": estimate,
        "explained": share,
        "importance": _importance(card),
        "diagram": _diagram(card),
    }


def _importance(card: dict[str, Any]) -> Markup:
    """Draw the features' shares of the model's gain, the largest first."""
    shares = sorted(card["importance"].items(), key=lambda pair: -pair[1])[:SHOWN]
    if not any(share for _, share in shares):
        return Markup("")
    text = "; ".join(f"{name} {share:.0%}" for name, share in shares[:5])
    return bars("Importance of features", text, "share of the model's gain", shares)


def _diagram(card: dict[str, Any]) -> Markup:
    """Draw the reliability, if privatized labels determine it: for probabilities of two values, and for labels."""
    told_of = card["report"]["error_estimate"] or {}
    calibration = told_of.get("calibration")
    groups = calibration.get("groups", []) if isinstance(calibration, dict) else told_of.get("reliability", [])
    if len(groups) < 2:
        return Markup("")
    x, y = [g["predicted"] for g in groups], [g["observed"]["estimate"] for g in groups]
    low, high = ([g["observed"][end] for g in groups] for end in ("low", "high"))
    text = f"The mean label against the mean prediction of {len(groups)} groups; on the dashed line both are equal."
    return reliability("Reliability", text, "mean prediction", "mean label, 95 % interval", x, y, low, high)


@router.get("/models/{name}/predict")
def ask(name: str, visit: Trainer) -> Response:
    """Show the form for a prediction."""
    return _prediction(name, visit, {}, None)


@router.post("/models/{name}/predict", dependencies=[FORM])
def predict(name: str, visit: Trainer) -> Response:
    """Predict a row; an invalid one is refused by column, as over REST."""
    saved = services(visit).models.open(name)
    columns = saved.model.schema.columns
    entries = {c.name: visit.form.get(f"{FIELD}{at}", "").strip() for at, c in enumerate(columns)}
    if not any(entries.values()):
        return _prediction(name, visit, entries, None, wrong=EMPTY)
    try:
        row = {c.name: _cell(c, entries[c.name]) for c in columns}
        read = read_rows(saved.model.schema, [row], refuse_unknown=False, ignore_unexpected=False)
    except InvalidRows as error:
        first = error.problems[0]
        return _prediction(name, visit, entries, None, status=422, wrong=f"Column '{first.field}': {first.rule}.")
    except InvalidInput as error:
        return _prediction(name, visit, entries, None, status=422, wrong=error.detail)
    predictions, classes = saved.model.predict_encoded(read.encoded), saved.model.classes
    predicted: dict[str, Any] = {"value": predictions[0], "classes": None, "unknown": list(read.unknown)}
    predicted |= {"missing": list(read.missing), "gaps": GAPS.get(saved.model.kind, AS_GAPS)}
    if classes is not None:
        chances = zip(class_names(classes), predictions[0].tolist(), strict=True)
        best = sorted(chances, key=lambda pair: -pair[1])[:20]
        predicted |= {"value": likeliest(classes, predictions)[0], "classes": best}
    return _prediction(name, visit, entries, predicted)


def _cell(column: Column, text: str) -> str | float | None:
    if not text:
        return None
    if column.kind != "number":
        return text
    try:
        return float(text)
    except ValueError:
        raise InvalidInput(f"Column '{column.name}' takes a number, or nothing.") from None


def _prediction(
    name: str,
    visit: Visit,
    entries: dict[str, str],
    predicted: dict[str, Any] | None,
    status: int = 200,
    wrong: str = "",
) -> Response:
    """Show the form with its entries; `wrong`: why nothing was predicted."""
    name, saved = services(visit).models.resolve(name)
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


def model_page(saved: SavedModel, remark: str = "") -> str:
    """Render the report. `remark`: a sentence about the model, such as why it was kept. Raises InvalidFile for an
    incomplete card."""
    with reading_card():
        return render(
            "features_party.pages",
            "model_report",
            title=f"Model of {saved.card['label']}",
            made=dt.datetime.now(dt.UTC).date().isoformat(),
            by="by the features party, from the card of the model. Errors are estimated from privatized labels alone.",
            said=remark,
            **described(saved.card),
        )


def model_report(saved: SavedModel, out: Path, *, force: bool = False, remark: str = "") -> dict[str, Any]:
    """Write `model_page`. Raises as that, and InvalidInput for `out`."""
    write(out, model_page(saved, remark), force)
    return {"report": str(out), "label": saved.card["label"], "model_sha256": saved.card["model_sha256"]}
