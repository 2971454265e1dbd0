"""Evaluating and predicting on files. Evaluation needs true labels: it exists on files only, never as a call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from features_party.feature_tables import read_features
from features_party.output import write_table
from features_party.registry.folder import SavedModel
from shared.errors import InvalidRows, InvalidTable, RowProblem
from shared.losses import get_loss
from shared.service.cli import writable
from shared.tables import read_table, require_columns

FloatArray = npt.NDArray[np.float64]


def evaluate(
    saved: SavedModel, examples: Path, label_column: str, *, clip: bool = False, threads: int = 1
) -> dict[str, Any]:
    """rows, mse, mae, poisson (None where a label is negative) and constant_mse, over a file with true labels.

    Labels are compared as they are in the file; with `clip` they are first clipped to the model's domain. constant_mse
    is the error of predicting the corrected training mean for everybody. Raises InvalidTable, InvalidRows.
    """
    table = read_table(examples, text_columns=_categories(saved))
    require_columns(table.column_names, [label_column], str(examples))
    if table.num_rows == 0:
        raise InvalidTable(f"'{examples}' has a header but no rows.")
    labels = _labels(table[label_column], label_column)
    if clip and saved.model.bounds is not None:
        labels = np.clip(labels, *saved.model.bounds)
    predictions = saved.model.predict(table, threads=threads)
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
        "labels_clipped": clip,
    }


def _categories(saved: SavedModel) -> list[str]:
    return [column.name for column in saved.model.schema.categories]


def _labels(column: Any, name: str) -> FloatArray:
    import pyarrow as pa

    try:
        labels = np.asarray(column.cast(pa.float64(), safe=False).to_numpy(), dtype=np.float64)
    except pa.ArrowException:
        raise InvalidTable(f"The label column '{name}' does not hold numbers.") from None
    bad = np.flatnonzero(~np.isfinite(labels))
    if len(bad):
        rule = "a true label must be a finite number"
        raise InvalidRows([RowProblem(int(row), name, rule) for row in bad[: InvalidRows.shown]], len(bad))
    return labels


def predict_file(
    saved: SavedModel, features: Path, id_column: str, out: Path, *, threads: int = 1, force: bool = False
) -> int:
    """Write id and `prediction` for every row of a feature file, in its order; returns the rows."""
    import pyarrow as pa

    writable(out, force)
    table = read_features(features, id_column, text=_categories(saved))
    predictions = saved.model.predict(table.features, threads=threads)
    name = "prediction" if id_column != "prediction" else "predicted_label"
    write_table(pa.table({id_column: table.ids, name: predictions}), out, force=force)
    return table.rows
