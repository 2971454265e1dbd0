"""Tables and cells as requests carry them."""

from __future__ import annotations

import datetime
import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from label_dp import errors
from label_dp.client.tables import as_arrow, as_parquet, as_row, as_rows, renamed
from tests.support.cases import cases

TABLE = pa.table({"click": ["a", "b"], "euro": [1.5, None], "more": [1, 2]})


def as_given(kind: str) -> Any:
    if kind == "arrow":
        return TABLE
    return pytest.importorskip(kind).DataFrame(TABLE.to_pydict())


@pytest.mark.parametrize("kind", cases(["arrow", "pandas", "polars"], lambda kind: kind == "arrow"))
def test_columns_go_under_the_names_of_the_wire(kind: str) -> None:
    table = renamed(as_given(kind), {"example_id": "click", "label": "euro", "unit": None})
    request = as_arrow("POST", "/v1/x", table, mode="upsert")
    with pa.ipc.open_stream(request.content) as stream:
        sent = stream.read_all()
    assert sent.to_pydict() == {"example_id": ["a", "b"], "label": [1.5, None]}
    assert request.options()["headers"]["Content-Type"] == "application/vnd.apache.arrow.stream"
    assert request.options()["params"] == {"mode": "upsert"}


@pytest.mark.parametrize("kind", cases(["arrow", "pandas", "polars"], lambda kind: kind == "arrow"))
def test_a_frame_goes_as_one_parquet_file(kind: str) -> None:
    request = as_parquet("PUT", "/v1/x", as_given(kind), id_column="click", name=None)
    assert pq.read_table(io.BytesIO(request.content)).column_names == ["click", "euro", "more"]
    assert request.options()["headers"]["Content-Type"] == "application/vnd.apache.parquet"
    assert request.options()["params"] == {"id_column": "click"}


def test_a_column_that_is_missing_or_there_twice_is_named() -> None:
    with pytest.raises(errors.InvalidTable, match="exactly one column 'id'; it has 'click', 'euro', 'more'"):
        renamed(TABLE, {"example_id": "id"})
    with pytest.raises(errors.InvalidTable, match="exactly one column 'a'"):
        renamed(pa.table([[1], [2]], names=["a", "a"]), {"example_id": "a"})


def test_cells_of_frames_are_json() -> None:
    day = datetime.date(2026, 11, 1)
    given = {"i": np.int64(3), "f": np.float32(0.5), "n": float("nan"), "d": day, "t": "x", "z": None}
    assert as_row(given) == {"i": 3, "f": 0.5, "n": None, "d": "2026-11-01", "t": "x", "z": None}
    assert as_row({"x": float("inf")}) == {"x": float("inf")}  # a query is not silently another one
    frame = pa.table({"x": [float("inf"), 2.0], "d": [day, None]})
    assert as_rows(frame) == [{"x": None, "d": "2026-11-01"}, {"x": 2.0, "d": None}]
    assert as_rows({"x": n} for n in (1, 2)) == as_rows([{"x": 1}, {"x": 2}]) == [{"x": 1}, {"x": 2}]
