"""Digests of a file wait in memory only where its rows do too, by what the file says of itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from labels_party.labels.label_file import LabelFile
from labels_party.labels.sorting import LabelSort

NOTHING: Any = None


@pytest.mark.parametrize(
    ("rows", "id_bytes", "waiting"),
    [
        (10_000_000, 200_000_000, 10_000_000),
        (10_000_000, 300_000_000, None),  # ids so long that the sort needs the disk
        (12_000_000, 60_000_000, 12_000_000),
        (11_000_000, 200_000_000, None),  # the rows fit, but not with their digests beside them
        (None, None, None),
        (5, None, None),
    ],
)
def test_all_of_them_or_as_many_as_of_any_upload(rows: int | None, id_bytes: int | None, waiting: int | None) -> None:
    assert LabelSort(NOTHING, Path(), 1024).digests(rows, id_bytes) == waiting


def test_a_file_says_how_many_bytes_its_ids_take(tmp_path: Path) -> None:
    table = pa.table({"revenue": [1.0] * 4096, "click": [f"{i:016d}" for i in range(4096)]})
    pq.write_table(table, path := tmp_path / "labels.parquet", row_group_size=1000, use_dictionary=False)
    found = LabelFile.open(path, ("click", "revenue"))
    assert found.rows == 4096
    assert found.id_bytes == pytest.approx(20 * 4096, rel=0.05)  # a length before each id, and heads of pages
    (csv := tmp_path / "labels.csv").write_text("click,revenue\na,1\n")
    assert LabelFile.open(csv, ("click", "revenue")).id_bytes is None
