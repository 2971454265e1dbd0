"""Calls about models: cards, comparisons, calibrations, predictions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from features_party.client import paths as at
from label_dp.client.conversation import Conversation, Json, Request, ask, content, delete, get, path, post
from label_dp.client.declared import call
from label_dp.client.listings import linked
from label_dp.client.tables import as_rows
from label_dp.errors import InvalidInput

if TYPE_CHECKING:
    from label_dp.columnar.frames import Frame


class ModelCalls:
    """Calls about models."""

    @call
    def models(self, training: str | None = None, limit: int | None = None) -> Conversation[list[Json]]:
        """List models, oldest first, or that of one training."""
        return linked(at.MODELS, limit=limit, training=training)

    @call
    def model(self, model_id: str) -> Conversation[Json]:
        """Return a model; `card` of the reply is its card."""
        return get(at.MODEL, model_id)

    @call
    def card_text(self, model_id: str) -> Conversation[str]:
        """Return the model's card as Markdown."""
        return (yield from content(at.CARD_TEXT, model_id)).decode("utf-8")

    @call
    def model_schema(self, model_id: str, categories: int = 1000) -> Conversation[Json]:
        """Return the form of a row for `predict`."""
        return get(at.SCHEMA, model_id, categories=categories)

    @call
    def compare(self, *model_ids: str) -> Conversation[Json]:
        """Compare two or more models of one label and domain."""
        return get(at.COMPARE, model=list(model_ids))

    @call
    def export_model(self, model_id: str, format: Literal["xgboost", "onnx"]) -> Conversation[bytes]:
        """Export the model for another stack: `xgboost` (a zip) or `onnx`."""
        return content(at.EXPORT, model_id, format=format)

    @call
    def delete_model(self, model_id: str) -> Conversation[None]:
        """Remove a model and its files."""
        return delete(at.MODEL, model_id)

    @call
    def set_alias(self, model_id: str, alias: str) -> Conversation[None]:
        """Give a model an alias such as `champion`, which all calls take in place of its id; another model that had it
        has it no more."""
        yield Request("PUT", path(at.ALIAS, model_id, alias))

    @call
    def remove_alias(self, model_id: str, alias: str) -> Conversation[None]:
        """Take an alias from a model."""
        return delete(at.ALIAS, model_id, alias)

    @call
    def ask_calibration(
        self,
        model_id: str,
        table_id: str,
        url: str,
        batch: str,
        epsilon: str,
        api_key: str | None = None,
        *,
        loss: Literal["squared", "absolute"] = "squared",
        shape: str = "auto",
        option: list[str] | None = None,
        scores: str = "float32",
        additional_release: bool = False,
    ) -> Conversation[Json]:
        """Send a model's predictions for a table to a labels party; `answer` of the reply names the charged
        calibration, for `pull_answer`. `option` are NAME=VALUE of the shape. Charged once, however often sent."""
        target = {"feature_table": table_id, "url": url, "batch": batch, "epsilon": epsilon, "api_key": api_key}
        terms = {"loss": loss, "shape": shape, "option": option or [], "scores": scores}
        body = target | terms | {"additional_release": additional_release}
        return post(at.ASK_CALIBRATION, model_id, body=body)

    @call
    def calibrate(self, model_id: str, calibration: bytes | str, *, interpolate: bool = False) -> Conversation[Json]:
        """Make a model whose predictions go through a labels party's signed map (its document, or the id of an accepted
        answer); the reply names it."""
        params = {"interpolate": "true"} if interpolate else {}
        body = {"answer": calibration} if isinstance(calibration, str) else json.loads(calibration)
        return ask(Request("POST", path(at.CALIBRATIONS, model_id), body=body, params=params))

    @call
    def predict(
        self,
        model_id: str,
        rows: Iterable[Json] | Frame,
        *,
        unknown_categories: Literal["encode", "refuse"] = "encode",
        unexpected_columns: Literal["refuse", "ignore"] = "refuse",
    ) -> Conversation[list[Any]]:
        """Predict one number per row, for classes the likeliest, by its name if it has one. `rows` are dictionaries or
        a table. By default an unknown category is encoded as missing, and an unknown column refused."""
        report = yield from _predicted(model_id, rows, unknown_categories, unexpected_columns)
        return report["predictions"]  # type: ignore[no-any-return]  # JSON

    @call
    def predict_proba(
        self,
        model_id: str,
        rows: Iterable[Json] | Frame,
        *,
        unknown_categories: Literal["encode", "refuse"] = "encode",
        unexpected_columns: Literal["refuse", "ignore"] = "refuse",
    ) -> Conversation[list[dict[str, float]]]:
        """Predict the probability of each class by its name, per row. Raises InvalidInput for a model without
        classes."""
        report = yield from _predicted(model_id, rows, unknown_categories, unexpected_columns)
        if report.get("probabilities") is None:
            raise InvalidInput("This model predicts one number for each row and no probabilities of classes.")
        return [dict(zip(report["classes"], row, strict=True)) for row in report["probabilities"]]

    @call
    def predict_quantiles(
        self,
        model_id: str,
        rows: Iterable[Json] | Frame,
        quantiles: Sequence[float],
        *,
        unknown_categories: Literal["encode", "refuse"] = "encode",
        unexpected_columns: Literal["refuse", "ignore"] = "refuse",
    ) -> Conversation[list[list[float]]]:
        """Predict the labels not exceeded with these probabilities, per row, if the model has quantiles."""
        report = yield from _predicted(model_id, rows, unknown_categories, unexpected_columns, list(quantiles))
        return report["quantiles"]  # type: ignore[no-any-return]  # JSON

    @call
    def predict_report(
        self,
        model_id: str,
        rows: Iterable[Json] | Frame,
        *,
        unknown_categories: Literal["encode", "refuse"] = "encode",
        unexpected_columns: Literal["refuse", "ignore"] = "refuse",
    ) -> Conversation[Json]:
        """Predict as `predict`, with the counts of unknown categories and missing values by column."""
        return _predicted(model_id, rows, unknown_categories, unexpected_columns)


def _predicted(
    model_id: str, rows: Any, unknown: str, unexpected: str, quantiles: list[float] | None = None
) -> Conversation[Json]:
    body: Json = {"rows": as_rows(rows), "unknown_categories": unknown, "unexpected_columns": unexpected}
    body |= {"quantiles": quantiles} if quantiles is not None else {}
    return post(at.PREDICT, model_id, body=body)
