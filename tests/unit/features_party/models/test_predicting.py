"""Predictions on files are those of the whole table, however few rows lie in memory at once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from features_party.models.evaluation import predict_file
from features_party.models.folder import SavedModel
from features_party.training.fitting import Examples, Recipe, fit
from label_dp.errors import InvalidRows

ROWS = 400


def table(whole_numbers: bool) -> pa.Table:
    rng = np.random.default_rng(0)
    code = rng.integers(0, 5, ROWS).astype(float)
    code[-1] = 2.0 if whole_numbers else 2.5  # one row decides how all are spelled
    text = [None if i % 9 == 0 else f"word {i % 7}" for i in range(ROWS)]
    return pa.table({"id": [f"c{i}" for i in range(ROWS)], "x": rng.normal(size=ROWS), "code": code, "text": text})


@pytest.mark.parametrize("whole_numbers", [True, False])
def test_in_pieces_and_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole_numbers: bool) -> None:
    features = table(whole_numbers)
    labels = np.nan_to_num(np.asarray(features["code"])) + np.asarray(features["x"])
    model, _ = fit(Examples(features.drop_columns(["id"]), labels), Recipe("trees", categorical=["code"]))
    pq.write_table(features, tmp_path / "f.parquet", row_group_size=30)
    monkeypatch.setattr("label_dp.columnar.rows.COMBINED", 1)
    monkeypatch.setattr("features_party.training.learners.trees.AT_ONCE", 7)
    assert predict_file(SavedModel(model, {}), tmp_path / "f.parquet", "id", tmp_path / "p.parquet").rows == ROWS
    found = pq.read_table(tmp_path / "p.parquet")
    monkeypatch.undo()
    assert found["id"].equals(features["id"])
    assert np.array_equal(found["prediction"].to_numpy(), model.predict(features))
    assert len(np.unique(found["prediction"].to_numpy())) > 5


@pytest.mark.parametrize("ids", [[f"c{i % 390}" for i in range(ROWS)], ["c"] * 399 + [""]])
def test_ids_are_looked_at_first(tmp_path: Path, ids: list[str]) -> None:
    features = table(whole_numbers=True)
    model, _ = fit(Examples(features.drop_columns(["id"]), np.asarray(features["x"])), Recipe("trees"))
    pq.write_table(features.slice(0, len(ids)).set_column(0, "id", pa.array(ids, pa.string())), tmp_path / "f.parquet")
    with pytest.raises(InvalidRows):
        predict_file(SavedModel(model, {}), tmp_path / "f.parquet", "id", tmp_path / "p.parquet")
    assert not (tmp_path / "p.parquet").exists()
