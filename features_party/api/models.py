"""Models: their cards, comparison, export, and predictions."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Query, Request, Response

from features_party.api import schemas_models
from features_party.api.context import Ctx, Reader, Trainer
from features_party.models.card_reading import reading_card
from features_party.models.card_text import card_markdown
from features_party.models.compare import MOST, compare
from features_party.models.evaluation import likeliest
from features_party.models.export import FORMATS, export
from features_party.models.rows import read_rows
from features_party.training.classes import class_names
from features_party.training.column_cells import Holds
from features_party.training.encoding import Column
from label_dp.http.calls import LARGE
from label_dp.http.filters import LINK_DOCS, PagedEitherWay, with_link
from label_dp.http.json_bodies import JsonRouter
from label_dp.http.route_docs import PROBLEM_RESPONSES, problem_responses
from label_dp.schemas.numbers import PLAIN

router = JsonRouter(prefix="/v1/models", tags=["models"], responses=PROBLEM_RESPONSES)

MARKDOWN = "text/markdown"
ACCEPTS: dict[Holds, str] = {
    "text": "a text",
    "whole": "a whole number: 3, 3.0 and the text 3 are the same",
    "number": "a number",
    "boolean": "true or false; 1 and 0, and the texts true and True, are the same",
    "date": "an ISO 8601 date, such as 2024-06-01",
    "time": "an ISO 8601 time without a zone, such as 2024-06-01T12:00:00",
    "zoned time": "an ISO 8601 time with its zone, such as 2024-06-01T12:00:00Z",
}
EXAMPLES: dict[Holds, Any] = {"date": "2024-06-01", "time": "2024-06-01T12:00:00", "zoned time": "2024-06-01T12:00:00Z"}
CARD_DOCS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The card, as JSON or, where `Accept` prefers it, as Markdown.",
        "content": {MARKDOWN: {"schema": {"type": "string"}}},
    }
}
MARKDOWN_DOCS: dict[int | str, dict[str, Any]] = {
    200: {"description": "The card for people.", "content": {MARKDOWN: {"schema": {"type": "string"}}}}
}
EXPORT_DOCS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The file.",
        "content": {kind: {"schema": {"type": "string", "format": "binary"}} for _, kind, _ in FORMATS.values()},
    }
}


@router.get("", responses=LINK_DOCS)
def list_models(
    request: Request,
    response: Response,
    ctx: Ctx,
    _: Reader,
    page: PagedEitherWay,
    training: Annotated[str | None, Query(max_length=40, description="Only the model of this training.")] = None,
) -> list[schemas_models.ModelOut]:
    """Models by the time they were made."""
    return [schemas_models.ModelOut(**row) for row in with_link(ctx.models.list(page, training), request, response)]


@router.get("/compare")
def compare_models(
    ctx: Ctx,
    _: Reader,
    model: Annotated[
        list[str], Query(min_length=2, max_length=MOST, description="Ids of models of one label and domain.")
    ],
) -> schemas_models.Comparison:
    """Side by side: mechanisms, ε and releases, rows, loss, capacity, noise, and the gain over the constant."""
    comparison = compare([(name, ctx.models.open(name)) for name in model])
    with reading_card():
        return schemas_models.Comparison(**comparison)


@router.get("/{model}", response_model_exclude_unset=True)
def get_model(model: str, ctx: Ctx, _: Reader) -> schemas_models.CardOut:
    """The card: messages, ε, corrections, capacity and why, features, training report."""
    model, saved = ctx.models.resolve(model)
    with reading_card():
        return schemas_models.CardOut(id=model, card=schemas_models.Card(**saved.card))


@router.put("/{model}/aliases/{alias}", status_code=204)
def set_alias(model: str, alias: str, ctx: Ctx, _: Trainer) -> None:
    """Give a model an alias, which every call takes in place of an id. An alias names one model at a time: another one
    that had it has it no more."""
    ctx.models.set_alias(model, alias)


@router.delete("/{model}/aliases/{alias}", status_code=204)
def remove_alias(model: str, alias: str, ctx: Ctx, _: Trainer) -> None:
    """Take an alias from a model."""
    ctx.models.remove_alias(model, alias)


@router.delete("/{model}", status_code=204)
def delete_model(model: str, ctx: Ctx, _: Trainer) -> None:
    """Remove a model, by its id, with its aliases and files. Its training and the audit store keep saying that it was
    made."""
    ctx.models.delete(model)


@router.get("/{model}/card.md", response_class=Response, responses=MARKDOWN_DOCS)
def get_card_text(model: str, ctx: Ctx, _: Reader) -> Response:
    """The card as Markdown."""
    return Response(card_markdown(ctx.models.open(model).card), media_type=MARKDOWN)


@router.get("/{model}/card", response_model=schemas_models.Card, response_model_exclude_unset=True, responses=CARD_DOCS)
def get_card(model: str, request: Request, ctx: Ctx, _: Reader) -> Any:
    """The card as it lies in the model's folder: `card.json`, or `card.md` with `Accept: text/markdown`."""
    card = ctx.models.open(model).card
    if prefers_markdown(request.headers.get("accept", "")):
        return Response(card_markdown(card), media_type=MARKDOWN, headers={"Vary": "Accept"})
    with reading_card():
        return schemas_models.Card(**card)


def prefers_markdown(accept: str) -> bool:
    """Return whether an Accept header prefers Markdown (or any text) to JSON."""
    weights: dict[str, float] = {}
    for part in accept.split(","):
        kind, *parameters = (piece.strip().lower() for piece in part.split(";"))
        weight = next((p.removeprefix("q=") for p in parameters if p.startswith("q=")), "1")
        try:
            weights[kind] = float(weight)
        except ValueError:
            weights[kind] = 0.0
    text = max(weights.get(MARKDOWN, 0.0), weights.get("text/*", 0.0))
    return text > max(weights.get("application/json", 0.0), weights.get("application/*", 0.0))


@router.get("/{model}/schema")
def get_schema(
    model: str,
    ctx: Ctx,
    _: Reader,
    categories: Annotated[
        int, Query(ge=0, le=100_000, description="Most categories to list per column."), PLAIN
    ] = 1000,
) -> schemas_models.SchemaOut:
    """What a row for `predict` looks like: columns, kinds, categories, and what becomes of missing values."""
    model, saved = ctx.models.resolve(model)
    schema = saved.model.schema
    return schemas_models.SchemaOut(
        model=model,
        label=saved.card["label"],
        columns=[_described(column, categories) for column in schema.columns],
        left_out=[schemas_models.LeftOut(name=name, why=why) for name, why in schema.left_out],
        most_rows=schemas_models.MOST_ROWS,
        example={c.name: _example(c) for c in schema.columns},
    )


def _example(column: Column) -> Any:
    if column.kind == "category":
        return column.vocabulary[0] if column.vocabulary else None
    return EXAMPLES.get(column.holds, 1.5)


def _described(column: Column, most: int) -> schemas_models.SchemaColumn:
    described = schemas_models.SchemaColumn(
        name=column.name,
        kind=column.kind,
        holds=column.holds,
        accepts=ACCEPTS[column.holds] + ", or null",
        missing="the model treats null as a value of its own, as it did with gaps in training",
    )
    if column.kind == "category":
        described.categories = list(column.vocabulary[:most])
        described.categories_total = len(column.vocabulary)
        described.unknown = "counts as null, and is counted in the answer; refused where the request says so"
    return described


@router.get("/{model}/export", response_class=Response, responses=EXPORT_DOCS)
def export_model(
    model: str,
    ctx: Ctx,
    _: Trainer,
    form: Annotated[
        Literal["xgboost", "onnx"],
        Query(alias="format", description="xgboost: a zip of booster, encoding and card; onnx: the whole pipeline."),
    ],
) -> Response:
    """The model for another stack."""
    data = export(ctx.models.open(model), form)
    _made, kind, ending = FORMATS[form]
    return Response(data, media_type=kind, headers={"Content-Disposition": f'attachment; filename="{model}{ending}"'})


@router.post(
    "/{model}/predict", response_model_exclude_none=True, responses=problem_responses(413), dependencies=[LARGE]
)
def predict(model: str, body: schemas_models.PredictIn, ctx: Ctx, _: Trainer) -> schemas_models.PredictOut:
    """Predict JSON rows. Every column of the model must occur (null, or absent from a row, is a missing value); other
    columns and cells of the wrong kind are refused by name and row; unknown categories are counted in the answer."""
    model, saved = ctx.models.resolve(model)
    read = read_rows(
        saved.model.schema,
        body.rows,
        refuse_unknown=body.unknown_categories == "refuse",
        ignore_unexpected=body.unexpected_columns == "ignore",
    )
    predictions, classes = saved.model.predict_encoded(read.encoded), saved.model.classes
    return schemas_models.PredictOut(
        model=model,
        predictions=(predictions if classes is None else likeliest(classes, predictions)).tolist(),
        classes=None if classes is None else class_names(classes),
        probabilities=None if classes is None else predictions.tolist(),
        quantiles=saved.model.quantiles_encoded(read.encoded, body.quantiles).tolist() if body.quantiles else None,
        rows=len(body.rows),
        unknown_categories=read.unknown,
        missing_values=read.missing,
    )
