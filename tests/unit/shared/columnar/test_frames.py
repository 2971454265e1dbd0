"""Frames of users as Arrow tables: views become texts, and what is no table is told by column and cause."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from label_dp.columnar.frames import as_table, chunked
from label_dp.errors import InvalidTable

pytestmark = pytest.mark.extended

SECRET = "73194.625"


def test_views_are_read_as_texts_and_bytes_wherever_they_are() -> None:
    cells: dict[str, tuple[list[Any], pa.DataType]] = {
        "text": (["a", None, "c"], pa.string_view()),
        "bytes": ([b"a", None, b"c"], pa.binary_view()),
        "list": ([["a"], None, []], pa.list_(pa.string_view())),
        "struct": ([{"x": "a"}, None, {"x": None}], pa.struct([("x", pa.string_view())])),
    }
    given = pa.table({name: pa.array(*pair) for name, pair in cells.items()})
    table = as_table(given)
    assert "view" not in str(table.schema)
    assert table.to_pydict() == given.to_pydict()
    taken = table.take([0, 2])  # which Arrow refuses of views
    assert taken["text"].to_pylist() == ["a", "c"]
    assert as_table(table) is table


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (pd.DataFrame({"b": [1], "a": pd.arrays.SparseArray([1])}), "column 'a' of the frame is sparse"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "more than one column 'a'"),
        (pd.DataFrame({"b": [1, 2], "a": [1, SECRET]}), "column 'a' of the frame holds objects of several types"),
        (pd.DataFrame({"a": [2**70, 1]}), "column 'a' of the frame holds objects"),
        (pd.DataFrame({"b": [1], "a": [1 + 2j]}), "column 'a' of the frame has the type complex128"),
        (pd.Series([1], name="a"), "Series of pandas is one column"),
        (pd.MultiIndex.from_tuples([(1, 2)]), "MultiIndex of pandas is one column"),
        (pl.Series("a", [1]), "Series of polars is one column"),
        (np.zeros((2, 2)), "an Arrow table, record batch or stream, a pandas or polars frame"),
    ],
)
def test_what_is_no_table_is_told_by_column_and_cause(frame: Any, said: str) -> None:
    with pytest.raises(InvalidTable) as caught:
        as_table(frame)
    assert said in caught.value.detail
    assert SECRET not in caught.value.detail
    assert caught.value.__cause__ is None


def test_control_frames_that_are_tables_are_read() -> None:
    assert as_table(pd.DataFrame({"a": [1, None], "c": pd.Categorical([1, 2])})).num_rows == 2
    assert as_table(pl.DataFrame({"a": ["x"]})).to_pydict() == {"a": ["x"]}


def test_streams_of_any_engine_are_tables() -> None:
    rows = pa.table({"a": [1, 2, 3]})
    streams: list[Any] = [rows.to_reader(), rows.to_batches()[0], duckdb.sql("SELECT * FROM rows")]
    streams += [[rows.slice(0, 2), pl.DataFrame({"a": [3]})], iter(rows.to_batches(max_chunksize=1))]
    for stream in streams:
        assert as_table(stream).to_pydict() == rows.to_pydict()
    for wrong in ([], [rows, rows.rename_columns(["b"])], [{"a": 1}], "abc", {"a": [1]}):
        with pytest.raises(InvalidTable):
            as_table(wrong)


def test_a_stream_is_read_as_it_is_taken() -> None:
    """Whoever offers a stream by Arrow's protocol may have more rows than fit in memory."""
    made: list[int] = []

    class Engine:
        def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
            schema = pa.schema([("a", pa.int64())])

            def batches() -> Iterator[pa.RecordBatch]:
                for at in range(5):
                    made.append(at)
                    yield pa.record_batch({"a": pa.array([at] * 10)})

            return pa.RecordBatchReader.from_batches(schema, batches()).__arrow_c_stream__(requested_schema)

    parts = chunked(Engine(), 10)
    assert next(parts).num_rows == 10
    assert made == [0]
    assert sum(part.num_rows for part in parts) == 40
