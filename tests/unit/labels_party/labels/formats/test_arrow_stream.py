"""Limits of one record batch of an Arrow stream."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from label_dp.errors import TooLarge
from labels_party.labels.formats.arrow_stream import MOST_ROWS, read_arrow
from labels_party.labels.formats.source import ColumnSelection
from tests.support.upload_formats import BytesSource


def rows_read(rows: int, folder: Path) -> int:
    """Rows of a stream of one record batch, which is small however many it has."""
    ids = pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(bytes(4 * (rows + 1))), pa.py_buffer(b"")])
    batch = pa.record_batch([ids, pa.array(np.zeros(rows, np.int8))], names=["example_id", "label"])
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    source = BytesSource(sink.getvalue())
    return sum(chunk.rows for chunk in read_arrow(source, ColumnSelection(("example_id", "label"), folder)))


def test_a_record_batch_has_so_many_rows_and_no_more(tmp_path: Path) -> None:
    assert rows_read(MOST_ROWS, tmp_path) == MOST_ROWS
    with pytest.raises(TooLarge, match=f"{MOST_ROWS:,} rows"):
        rows_read(MOST_ROWS + 1, tmp_path)
