"""A pass over sealed labels, whole or in part, holds some row groups of them, however many there are."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from label_dp.store.objects.folder import FolderObjects
from labels_party.labels.columns import label_schema
from labels_party.labels.vault import ROW_GROUP, LabelVault, read_object

GROUPS, KEY = 12, "batch/sealed.parquet"
ROWS = GROUPS * ROW_GROUP + 5
ROW_BYTES = 16 + 4 + 4


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> LabelVault:
    found = LabelVault(FolderObjects(tmp_path_factory.mktemp("vault")), lambda _: bytes(32))

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, ROWS, ROW_GROUP):
            n = min(ROW_GROUP, ROWS - start)
            text = "".join(f"{start + i:016d}" for i in range(n)).encode()
            ids = pa.StringArray.from_buffers(
                n, pa.py_buffer(np.arange(n + 1, dtype=np.int32) * 16), pa.py_buffer(text)
            )
            positions = pa.array(np.arange(start, start + n, dtype=np.uint32))
            yield pa.record_batch([ids, positions], schema=label_schema())

    assert found.put(KEY, batches(), label_schema()) == ROWS
    return found


def held(batches: Iterator[pa.RecordBatch]) -> float:
    """The most that Arrow and Python held during a pass, in row groups."""
    tracemalloc.start()
    before, most = pa.total_allocated_bytes(), 0
    for _ in batches:
        most = max(most, pa.total_allocated_bytes() - before + tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    return most / (ROW_GROUP * ROW_BYTES)


def test_a_pass_holds_a_few_row_groups(vault: LabelVault) -> None:
    assert held(vault.scan(KEY)) < 4


def test_arrows_read_ahead_would_hold_all_of_them(vault: LabelVault, tmp_path: Path) -> None:
    """The control: what the pass did before."""
    with (
        read_object((vault.objects.room / KEY), bytes(32), KEY) as source,
        pq.ParquetFile(source, pre_buffer=True) as file,
    ):
        assert held(file.iter_batches(batch_size=ROW_GROUP)) > GROUPS / 2


@pytest.mark.parametrize(
    ("start", "rows"), [(0, 5), (ROW_GROUP - 2, 4), (3, 2 * ROW_GROUP), (ROWS - 5, 5), (ROWS - 1, None), (7, 0)]
)
def test_a_part_is_what_was_put_there(vault: LabelVault, start: int, rows: int | None) -> None:
    end = ROWS if rows is None else start + rows
    found = [batch.column(1).to_numpy() for batch in vault.scan(KEY, start, rows)]
    np.testing.assert_array_equal(np.concatenate([np.zeros(0, np.uint32), *found]), np.arange(start, end))
