"""The same rows in every format are predicted alike; what training did not see is counted."""

from __future__ import annotations

import csv
import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from features_party.models.evaluation import evaluate, predict_file
from features_party.models.folder import SavedModel
from features_party.models.rows import read_rows
from features_party.training.fitting import Examples, Recipe, fit
from features_party.training.model import TrainedModel
from label_dp.client.tables import as_rows
from label_dp.columnar.frames import as_table
from label_dp.domain import Domain
from label_dp.errors import InvalidInput

pytestmark = pytest.mark.extended

ROWS = 240
COUNTRIES = ("NA", "null", "nan", "None", "DE")
BERLIN = "Europe/Berlin"


def features() -> pa.Table:
    rng = np.random.default_rng(20240917)
    at = pa.array(1_719_800_000 + 3600 * rng.integers(0, 4000, ROWS), pa.timestamp("s"))
    return pa.table(
        {
            "id": [f"c{i}" for i in range(ROWS)],
            "country": [COUNTRIES[i] for i in rng.integers(0, 5, ROWS)],
            "store": rng.integers(1, 6, ROWS),
            "flag": rng.integers(0, 2, ROWS).astype(bool),
            "at": at.cast(pa.timestamp("us")).cast(pa.timestamp("us", BERLIN)),
            "local": at,
            "x": rng.normal(size=ROWS),
        }
    )


TABLE = features()
LABELS = (
    20.0
    + 12.0 * np.array([COUNTRIES.index(c) for c in TABLE["country"].to_pylist()])
    + 8.0 * TABLE["store"].to_numpy()
    + 30.0 * np.array(TABLE["flag"].to_pylist())
    + np.asarray(TABLE["x"])
)


@pytest.fixture(scope="module")
def model() -> TrainedModel:
    return fit(Examples(TABLE.drop_columns(["id"]), LABELS), Recipe("trees", categorical=["store", "flag"]))[0]


def written(change: Callable[[str, Any], Any], folder: Path) -> Path:
    """A CSV of the table, its cells `change`d by column."""
    path = folder / "f.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(TABLE.column_names)
        for row in TABLE.to_pylist():
            writer.writerow([change(name, cell) for name, cell in row.items()])
    return path


def pandas_cell(name: str, cell: Any) -> Any:
    """True, 3.0 as of a column with gaps, and times with their offset."""
    return float(cell) if name == "store" else cell.isoformat(" ") if name in ("at", "local") else cell


def spark_cell(name: str, cell: Any) -> Any:
    """True as 1, and times in UTC."""
    if name == "at":
        return cell.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
    return int(cell) if name == "flag" else cell.isoformat() if name == "local" else cell


@pytest.mark.parametrize("change", [pandas_cell, spark_cell])
def test_a_csv_is_predicted_as_parquet_is(tmp_path: Path, model: TrainedModel, change: Callable[..., Any]) -> None:
    found = predict_file(SavedModel(model, {}), written(change, tmp_path), "id", tmp_path / "p.parquet")
    assert (found.rows, found.unknown_categories) == (ROWS, {})
    assert np.array_equal(pq.read_table(tmp_path / "p.parquet")["prediction"].to_numpy(), model.predict(TABLE))


def retyped(**types: pa.DataType) -> pa.Table:
    schema = TABLE.schema
    for name, kind in types.items():
        schema = schema.set(schema.get_field_index(name), pa.field(name, kind))
    return TABLE.cast(schema)


@pytest.mark.parametrize(
    "frame",
    [
        retyped(store=pa.float64(), flag=pa.int8(), country=pa.string_view(), at=pa.timestamp("ns", "UTC")),
        retyped(store=pa.string(), flag=pa.string(), country=pa.large_string(), local=pa.timestamp("ns")),
        retyped(store=pa.decimal128(24, 2), at=pa.timestamp("ms", "America/New_York")),
        TABLE.set_column(2, "store", TABLE["store"].dictionary_encode()),
        TABLE.to_pandas(),
        TABLE.to_pandas().astype({"store": float, "flag": object, "country": "category"}),
        TABLE.to_pandas().astype({"store": "category"}),
        pl.DataFrame(pl.from_arrow(TABLE)),
        pl.DataFrame(pl.from_arrow(TABLE)).with_columns(pl.col("country").cast(pl.Categorical)),
    ],
    ids=lambda frame: type(frame).__module__,
)
def test_frames_and_types_are_predicted_alike(model: TrainedModel, frame: Any) -> None:
    encoded = model.schema.encode(as_table(frame))
    assert not encoded.unknown
    assert np.array_equal(model.predict_encoded(encoded), model.predict(TABLE))


def test_rows_of_json_are_predicted_alike(model: TrainedModel) -> None:
    rows = as_rows(TABLE.drop_columns(["id"]))
    for change in (
        lambda row: row,
        lambda row: row | {"store": float(row["store"]), "flag": int(row["flag"])},
        lambda row: row | {"store": f"{row['store']}.0", "flag": str(row["flag"])},
    ):
        read = read_rows(model.schema, list(map(change, rows)), refuse_unknown=True, ignore_unexpected=False)
        assert np.array_equal(model.predict_encoded(read.encoded), model.predict(TABLE))


def test_times_with_another_zone_rule_are_a_sentence(tmp_path: Path, model: TrainedModel) -> None:
    swapped = (
        TABLE.set_column(4, "at", TABLE["local"]),
        TABLE.set_column(5, "local", TABLE["at"]),
        TABLE.set_column(4, "at", pa.array([str(cell) for cell in TABLE["local"].to_pylist()])),
        TABLE.set_column(5, "local", pa.array([cell.isoformat() for cell in TABLE["at"].to_pylist()])),
    )
    for table in swapped:
        pq.write_table(table, tmp_path / "f.parquet")
        with pytest.raises(InvalidInput, match="zone"):
            predict_file(SavedModel(model, {}), tmp_path / "f.parquet", "id", tmp_path / "p.parquet")
        assert not (tmp_path / "p.parquet").exists()


def test_unknown_cells_are_counted_and_rows_are_those_of_the_file(
    tmp_path: Path, model: TrainedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved, card = model, {"domain": None}
    path = written(lambda name, cell: "ZZ" if (name, cell) == ("country", "DE") else pandas_cell(name, cell), tmp_path)
    many = TABLE["country"].to_pylist().count("DE")
    monkeypatch.setattr("features_party.tables.feature_files.CSV_BLOCK", 900)
    found = predict_file(SavedModel(saved, card), path, "id", tmp_path / "p.parquet")
    assert (found.rows, found.unknown_categories) == (ROWS, {"country": many})
    with_label = TABLE.append_column("y", pa.array(LABELS)).to_pandas().replace({"country": {"DE": "ZZ"}})
    with_label.to_csv(tmp_path / "e.csv", index=False)
    assert evaluate(SavedModel(saved, card), tmp_path / "e.csv", "y")["unknown_categories"] == {"country": many}
    lines = path.read_text(encoding="utf-8").splitlines()
    lines[201] = lines[201].rsplit(",", 1)[0] + ",one"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.raises(InvalidInput, match=r"Row 201 \(counting from 1\), field 'x': a number or null is expected"):
        predict_file(SavedModel(saved, card), path, "id", tmp_path / "q.parquet")


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_no_rows_are_no_predictions(tmp_path: Path, model: TrainedModel, ending: str) -> None:
    path, out = tmp_path / f"none.{ending}", tmp_path / f"out.{ending}"
    if ending == "csv":
        path.write_text(",".join(TABLE.column_names) + "\n")
    else:
        pq.write_table(TABLE.slice(0, 0), path)
    assert predict_file(SavedModel(model, {}), path, "id", out).rows == 0
    found = pq.read_table(out) if ending == "parquet" else pd.read_csv(out)
    assert len(found) == 0
    assert list(found.columns if ending == "csv" else found.column_names) == ["id", "prediction"]


@pytest.mark.parametrize("names", [("NA", "EMEA", "APAC"), ("false", "true")])
def test_true_labels_of_classes_are_read_as_text(tmp_path: Path, model: TrainedModel, names: tuple[str, ...]) -> None:
    from features_party.models.evaluation import true_labels

    domain = Domain.from_json({"names": list(names)})
    saved = SavedModel(model, {"domain": domain.as_json()})
    cells = [names[i % len(names)] for i in range(ROWS)]
    codes = [float(domain.names.index(cell)) for cell in cells]
    table = TABLE.append_column("y", pa.array(cells))
    pq.write_table(table, tmp_path / "e.parquet")
    table.to_pandas().to_csv(tmp_path / "e.csv", index=False)
    for name in ("e.parquet", "e.csv"):
        assert true_labels(saved, tmp_path / name, "y")[1].tolist() == codes
    if names == ("false", "true"):
        flags = TABLE.append_column("y", pa.array([cell == "true" for cell in cells]))
        pq.write_table(flags, tmp_path / "e.parquet")
        assert true_labels(saved, tmp_path / "e.parquet", "y")[1].tolist() == codes
