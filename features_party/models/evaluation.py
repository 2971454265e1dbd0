"""Evaluation and prediction on files. Evaluation on true labels exists on files only, never as a call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from features_party.models.folder import SavedModel
from features_party.models.trainer import check_one_label
from features_party.receive.accepted import AcceptedMessage
from features_party.tables.feature_files import FeatureFile, rows_from
from features_party.tables.feature_tables import FeatureTable
from features_party.tables.join import join
from features_party.tables.output import writable_table, writing
from features_party.training.class_metrics import class_members, judge_classes, told_indicators
from features_party.training.classes import class_names, named_or_numbers
from features_party.training.column_cells import categories, numbers
from features_party.training.holdout import estimate_on_rows, identify
from features_party.training.model import TrainedModel
from features_party.training.probabilities import judge, probability_members
from label_dp.columnar.parts import TablePath, placed, read_rows
from label_dp.columnar.tables import canonical_ids, refuse_duplicates, require_columns
from label_dp.domain import Domain
from label_dp.errors import InvalidInput, InvalidRows, InvalidTable, RowProblem
from label_dp.label_values import value_positions
from label_dp.losses import get_loss
from label_dp.store.table_addresses import TableAddress

if TYPE_CHECKING:
    import pyarrow as pa

FloatArray = npt.NDArray[np.float64]
MIN_ROWS = 30  # below it a normal interval is not valid


def evaluate(
    saved: SavedModel, examples: TablePath, label_column: str, *, clip: bool = False, threads: int = 1
) -> dict[str, Any]:
    """Compute rows, mse, mae, poisson (None if any label is negative) and constant_mse over a file with true labels.

    Labels are compared as they are in the file; with `clip` they are first clipped to the model's domain. constant_mse
    is the error of predicting the corrected training mean for every row. A domain of two values adds the members of
    `training.probabilities`. A model of classes has those of `training.class_metrics` instead. Raises InvalidTable,
    InvalidRows.
    """
    table, labels = true_labels(saved, examples, label_column)
    notes = []
    if saved.model.bounds is not None and saved.model.classes is None:
        clipped = np.clip(labels, *saved.model.bounds)
        beyond = int(np.count_nonzero(clipped != labels))
        if clip:
            labels = clipped
        elif beyond:
            where = "are outside of the model's domain, where no prediction is"
            notes = [f"{beyond:,} true labels {where}; --clip clips them"]
    encoded = saved.model.schema.encode(table)
    predictions = saved.model.predict_encoded(encoded, threads=threads)
    about = {"labels_clipped": clip, "unknown_categories": encoded.unknown_cells, "notes": notes}
    if saved.model.classes is not None:
        members = _class_metrics(saved.model, saved.model.classes, predictions, labels)
        return members | {"rows": len(labels), **about}
    constant = saved.model.mean
    poisson = None
    if labels.min() >= 0:
        poisson = float(get_loss("poisson").pointwise(predictions, labels).mean())
    return {
        "rows": len(labels),
        "mse": float(np.mean((predictions - labels) ** 2)),
        "mae": float(np.mean(np.abs(predictions - labels))),
        "poisson": poisson,
        "constant_mse": float(np.mean((constant - labels) ** 2)),
        **about,
        **_probability_metrics(saved, predictions, labels),
    }


def _probability_metrics(saved: SavedModel, predictions: FloatArray, labels: FloatArray) -> dict[str, object]:
    """Return the metrics of probabilities; none for a domain of more than two values, or without a domain."""
    domain = _domain(saved)
    if domain is None or domain.k != 2:
        return {}
    if not np.all(np.isin(labels, domain.ends)):
        low, high = (domain.text(at) for at in (0, 1))
        return probability_members(f"not estimated: labels of the file are other than {low} and {high}")
    return probability_members(judge(predictions, saved.model.mean, labels, np.arange(len(labels)), domain.ends))


def _domain(saved: SavedModel) -> Domain | None:
    return None if saved.card.get("domain") is None else Domain.from_json(saved.card["domain"])


def _class_metrics(
    model: TrainedModel, classes: Domain, predictions: FloatArray, labels: FloatArray
) -> dict[str, object]:
    place, outside = classes.index(labels)
    others = int(np.count_nonzero(outside | (classes.values[place] != labels)))
    if others:
        return class_members(f"not estimated: {others} labels of the file are none of the {classes.k} classes")
    metrics = judge_classes(predictions, np.asarray(model.constant), np.eye(classes.k)[place], np.arange(len(labels)))
    return class_members(metrics)


def evaluate_on_messages(
    saved: SavedModel, messages: list[AcceptedMessage], table: FeatureTable, *, threads: int = 1
) -> dict[str, Any]:
    """Estimate the error on accepted hold-out messages without true labels (see `training.holdout`), with joined
    counts.

    Raises InvalidInput (another label or domain than the model's), InvalidMechanism (no estimate from such a channel),
    InvalidTable (too few rows joined).
    """
    check_one_label(messages)
    population, domain = messages[0].manifest.population, messages[0].manifest.domain.as_json()
    card = saved.card
    if (population.label, domain) != (card["label"], card["domain"]):
        raise InvalidInput("The message has another label or label domain than the model was trained on.")
    channels, classes = [m.manifest.read_channel() for m in messages], saved.model.classes
    if classes is None:
        priors = [message.prior() for message in messages]
        for channel, prior, message in zip(channels, priors, messages, strict=True):
            identify(channel, prior, message.manifest.n)  # refuses before any work
    elif any(channel.domain != classes for channel in channels):
        raise InvalidInput("The message clipped its labels to a part of the label domain, so it has other classes.")
    matches = join(messages, table)
    if matches.counts.matched < MIN_ROWS:
        raise InvalidTable(
            f"Only {matches.counts.matched} rows of features and messages met; an estimate needs {MIN_ROWS} or more."
        )
    encoded = saved.model.schema.encode(matches.features())
    predictions = saved.model.predict_encoded(encoded, threads=threads)
    if classes is None:
        rows = matches.message, matches.bins, matches.position
        members = estimate_on_rows(predictions, saved.model.mean, channels, *rows, priors=priors).as_json()
    else:
        indicators = told_indicators(channels, matches.message, matches.bins)
        shares = np.asarray(saved.model.constant)
        metrics = (
            indicators
            if isinstance(indicators, str)
            else judge_classes(predictions, shares, indicators, matches.position)
        )
        members = {"rows": matches.counts.matched} | class_members(metrics)
    trained_on = {(m["population"], m["batch"]) for m in card["messages"]}
    notes = [
        f"the model was trained on a message of the same examples as '{m.release}': this is its error on new examples "
        "only if none of these rows was among the features it was trained on"
        for m in messages
        if (m.manifest.population.id, m.manifest.batch) in trained_on
    ]
    about = {"messages": [m.release for m in messages], "unknown_categories": encoded.unknown_cells, "notes": notes}
    return members | matches.counts.model_dump() | about


def true_labels(saved: SavedModel, examples: TablePath, label_column: str) -> tuple[pa.Table, FloatArray]:
    """Read the rows of a file and their true labels float64[n], of named classes their codes (−1: another name).

    Raises InvalidTable, InvalidRows.
    """
    table = read_rows(examples, text_columns=None)
    require_columns(table.column_names, [label_column], str(examples))
    if table.num_rows == 0:
        raise InvalidTable(f"'{examples}' has no rows.")
    domain = saved.model.classes or _domain(saved)
    if domain is not None and domain.names:
        codes = {name: float(at) for at, name in enumerate(domain.names)}
        names = categories(table[label_column], label_column, "text").to_pylist()
        return table, np.array([codes.get(name, -1.0) for name in names])
    labels = finite(table[label_column], label_column, "true label")
    if domain is None:
        return table, labels
    place = value_positions(table[label_column], labels, domain)
    return table, np.where(place < 0, labels, domain.values[place])


def finite(column: Any, name: str, what: str) -> FloatArray:
    """Read a column of finite numbers float64[n]. Raises InvalidTable, InvalidRows."""
    rule = f"a {what} must be a finite number"
    values = np.asarray(numbers(column, name, rule).to_numpy(zero_copy_only=False), dtype=np.float64)
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        raise InvalidRows([RowProblem(int(row), name, rule) for row in bad[: InvalidRows.shown]], len(bad))
    return values


@dataclass(frozen=True)
class Predicted:
    """Number of predicted rows, and by column the number of cells with a category that training did not see."""

    rows: int
    unknown_categories: dict[str, int]


def unknown_text(column: str, cells: int, rows: int) -> str:
    """Describe the unknown categories of a column in a sentence."""
    hold = "cell holds a category" if cells == 1 else "cells hold categories"
    return f"column '{column}': {cells:,} of {rows:,} {hold} that training did not see; they count as missing."


def predict_file(
    saved: SavedModel,
    features: TablePath,
    id_column: str,
    out: Path | TableAddress,
    *,
    quantiles: Sequence[float] = (),
    threads: int = 1,
    force: bool = False,
) -> Predicted:
    """Write id and `prediction` for every row of a feature file, in its order.

    For classes the prediction is the likeliest, with a column `probability_…` for each; `quantiles` adds a column
    `quantile_…` for each. Raises InvalidTable if the id column has the name of an output column, InvalidInput for a
    model without quantiles.
    """
    writable_table(out, force)
    file = FeatureFile.open(features, id_column)
    with placed(features):
        rows, unknown, start = _distinct_ids(file), Counter[str](), 0
    nothing = file.schema.empty_table()
    with writing(out, _predicted(saved, nothing, id_column, quantiles, threads)[0].schema, force=force) as writer:
        for piece in file.batches():
            with placed(features), rows_from(start):
                table, cells = _predicted(saved, piece, id_column, quantiles, threads)
            unknown.update(cells)
            start += piece.num_rows
            writer.write(table)
    return Predicted(rows, dict(unknown))


def _distinct_ids(file: FeatureFile) -> int:
    """Count the ids. Raises InvalidRows (one is bad, or occurs twice)."""
    import pyarrow as pa

    ids = pa.chunked_array([part.cast(pa.large_string()) for part in file.ids()], pa.large_string()).combine_chunks()
    refuse_duplicates(ids, file.id_column)
    return len(ids)


def _predicted(
    saved: SavedModel, table: pa.Table, id_column: str, quantiles: Sequence[float], threads: int
) -> tuple[pa.Table, dict[str, int]]:
    """Return the predictions, and the unknown cells by column."""
    import pyarrow as pa

    ids = canonical_ids(table[id_column], id_column)
    encoded = saved.model.schema.encode(table.drop_columns([id_column]))
    predictions = saved.model.predict_encoded(encoded, threads=threads)
    name = "prediction" if id_column != "prediction" else "predicted_label"
    columns: dict[str, Any] = {name: predictions}
    if saved.model.classes is not None:
        columns = {name: likeliest(saved.model.classes, predictions)}
        for at, one in enumerate(class_names(saved.model.classes)):
            columns[f"probability_{one}"] = predictions[:, at]
    if quantiles:
        quantile_values = saved.model.quantiles_encoded(encoded, quantiles, threads=threads)
        columns |= {f"quantile_{one:.12g}": quantile_values[:, at] for at, one in enumerate(quantiles)}
    if id_column in columns:
        raise InvalidTable(f"The id column '{id_column}' has the name of a column of predictions; rename it.")
    as_given = table[id_column] if pa.types.is_integer(table[id_column].type) else ids.cast(pa.string())
    return pa.table({id_column: as_given, **columns}), encoded.unknown_cells


def likeliest(classes: Domain, predictions: FloatArray) -> npt.NDArray[Any]:
    """Return the class, float64[n] or its name str[n], of the largest probability of each row of float64[n, k]; the
    first of equal ones."""
    labels: npt.NDArray[Any] = named_or_numbers(classes)[predictions.argmax(axis=1)]
    return labels
