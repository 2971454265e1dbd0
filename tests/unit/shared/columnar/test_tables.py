"""Reading users' tables: what is read exactly, and refusals that never quote a cell."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from label_dp.columnar.tables import MAX_ID_BYTES, canonical_ids, duplicate_rows, read_table, refuse_duplicates
from label_dp.errors import InvalidFile, InvalidInput, InvalidRows, InvalidTable, LabelDPError

COLUMNS = ["id", "label"]
SECRET = "73194.625"


def csv(data: bytes, text: tuple[str, ...] = ("id", "label"), columns: list[str] | None = COLUMNS) -> pa.Table:
    return read_table(io.BytesIO(data), text_columns=text, columns=columns)


def parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def refusal(data: bytes, columns: list[str] | None = COLUMNS) -> LabelDPError:
    with pytest.raises(InvalidInput) as caught:
        read_table(io.BytesIO(data), text_columns=["id", "label"], columns=columns)
    assert caught.value.detail.endswith(".")
    assert SECRET not in caught.value.detail + str(caught.value.extras())
    assert caught.value.__cause__ is None  # Arrow's own text quotes cells
    return caught.value


# --- CSV ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"id,label\n007,1.50\nx,2\n",
        b"\xef\xbb\xbfid,label\n007,1.50\nx,2\n",
        b"id,label\r\n007,1.50\r\nx,2\r\n",
        b"id,label\n007,1.50\nx,2",
        b'"id","label"\n"007","1.50"\n"x","2"\n',
        b"other,label,id\n9,1.50,007\n9,2,x\n",
    ],
)
def test_csv_text_is_kept_as_it_is_written(data: bytes) -> None:
    table = csv(data)
    assert table.column_names == COLUMNS
    assert table.to_pydict() == {"id": ["007", "x"], "label": ["1.50", "2"]}


def test_quoted_newlines_commas_and_quotes() -> None:
    assert csv(b'id,label\n"a,b\nc ""d""",1\n')["id"].to_pylist() == ['a,b\nc "d"']


@pytest.mark.parametrize("word", ["NA", "null", "NULL", "nan", "N/A", "#N/A", "NaN", "-nan", "n/a"])
def test_words_that_other_tools_take_for_missing_are_ids(word: str) -> None:
    table = csv(f"id,label\n{word},1\n".encode())
    assert canonical_ids(table["id"], "id").to_pylist() == [word]


def test_missing_cells_of_other_columns_stay_missing() -> None:
    table = csv(b"id,age\na,NA\nb,3\n", text=("id",), columns=["id", "age"])
    assert table["age"].to_pylist() == [None, 3]


def test_a_header_alone_is_a_table_without_rows() -> None:
    assert csv(b"id,label\n").num_rows == 0


def test_an_empty_file_is_refused() -> None:
    assert refusal(b"").code == "invalid-file"
    assert "empty" in refusal(b"").detail


@pytest.mark.parametrize(
    "data",
    [
        b"\n\n",
        f"id,label\na,{SECRET},9\n".encode(),
        f"id,label\na\n{SECRET}\n".encode(),
        f"id,label\n\xff{SECRET},1\n".encode("latin-1"),
        f"id,label\na,{SECRET}\n".encode("utf-16"),
        f'id,label\n"a,{SECRET}\n'.encode(),
        b"\x00\x01\x02\x03" * 50,
        b"\x89PNG\r\n\x1a\n" + SECRET.encode(),
    ],
)
def test_what_is_no_csv_is_refused_without_a_cell(data: bytes) -> None:
    assert refusal(data).code in ("invalid-file", "invalid-table")


def test_a_missing_column_is_named_with_those_there_are() -> None:
    error = refusal(f"id,labell\na,{SECRET}\n".encode())
    assert isinstance(error, InvalidTable)
    assert "no column 'label'" in error.detail
    assert "'labell'" in error.detail


def test_a_column_that_is_there_twice_is_refused() -> None:
    assert "more than one column 'label'" in refusal(f"id,label,label\na,1,{SECRET}\n".encode()).detail


def test_case_and_spaces_of_column_names_count() -> None:
    assert isinstance(refusal(b"ID,label\na,1\n"), InvalidTable)
    assert isinstance(refusal(b"id ,label\na,1\n"), InvalidTable)


# --- Parquet -----------------------------------------------------------------------------------------------


def test_parquet_is_told_by_its_content_not_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    path.write_bytes(parquet(pa.table({"id": [1], "label": [0.5], "more": ["x"]})))
    assert read_table(path, columns=COLUMNS).to_pydict() == {"id": [1], "label": [0.5]}


def test_truncated_parquet_is_refused_at_every_length() -> None:
    whole = parquet(pa.table({"id": ["a"] * 50, "label": [float(SECRET)] * 50}))
    for length in range(0, len(whole), 7):
        assert refusal(whole[:length]).code in ("invalid-file", "invalid-table")


def test_flipped_bytes_never_escape_as_another_error() -> None:
    whole = parquet(pa.table({"id": [f"id-{i}" for i in range(200)], "label": np.arange(200.0)}))
    rng = np.random.default_rng(11)
    refused = 0
    for _ in range(1500):
        data = bytearray(whole)
        for _ in range(rng.integers(1, 4)):
            data[rng.integers(4, len(data))] ^= rng.integers(1, 256)
        try:
            read_table(io.BytesIO(bytes(data)), columns=COLUMNS)
        except InvalidInput:
            refused += 1
    assert refused > 100


def _not_utf8() -> pa.Array:
    offsets = np.array([0, 1, 3], np.int32).tobytes()
    return pa.StringArray.from_buffers(2, pa.py_buffer(offsets), pa.py_buffer(b"\xff\xed\xa0"))


@pytest.mark.parametrize("column", COLUMNS)
def test_text_that_is_not_utf8_is_refused(column: str) -> None:
    table = pa.table({"id": ["a", "b"], "label": ["1", "2"]}).set_column(COLUMNS.index(column), column, _not_utf8())
    assert isinstance(refusal(parquet(table)), InvalidFile)


def test_wrong_and_double_columns_of_parquet() -> None:
    assert isinstance(refusal(parquet(pa.table({"id": [1], "y": [float(SECRET)]}))), InvalidTable)
    double = pa.Table.from_arrays([pa.array([1])] * 3, names=["id", "label", "label"])
    assert "more than one" in refusal(parquet(double)).detail


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.parquet", tmp_path):
        with pytest.raises(InvalidFile):
            read_table(path)


# --- ids ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "ids"),
    [
        (pa.array(["b", "007", " a ", "é"]), ["b", "007", " a ", "é"]),
        (pa.array([7, -3, 0], pa.int64()), ["7", "-3", "0"]),
        (pa.array([2**64 - 1], pa.uint64()), ["18446744073709551615"]),
        (pa.array([-(2**63)], pa.int64()), ["-9223372036854775808"]),
        (pa.array([5], pa.int8()), ["5"]),
        (pa.array(["x", "y"], pa.large_string()), ["x", "y"]),
        (pa.array(["x", "y"], pa.string_view()), ["x", "y"]),
        (pa.array(["x", "y", "x"]).dictionary_encode(), ["x", "y", "x"]),
        (pa.chunked_array([["x"], ["y"]]), ["x", "y"]),
        (pa.chunked_array([pa.array(["x"]).dictionary_encode(), pa.array(["y"]).dictionary_encode()]), ["x", "y"]),
        (pa.array(["x" * MAX_ID_BYTES]), ["x" * MAX_ID_BYTES]),
    ],
)
def test_ids_have_one_spelling(column: Any, ids: list[str]) -> None:
    assert canonical_ids(column, "id").to_pylist() == ids


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1.0, 2.0]),
        pa.array([1.5], pa.float32()),
        pa.array([True]),
        pa.array([b"a"]),
        pa.array([[1]]),
        pa.array([{"a": 1}]),
        pa.array([1], pa.int64()).cast(pa.timestamp("s")),
        pa.array([1]).cast(pa.decimal128(20, 0)),
    ],
)
def test_other_types_are_no_ids(column: pa.Array) -> None:
    with pytest.raises(InvalidTable, match="text or whole numbers"):
        canonical_ids(column, "id")


@pytest.mark.parametrize(
    ("column", "rows"),
    [
        (pa.array(["a", None, "b", ""]), [1, 3]),
        (pa.array([1, None]), [1]),
        (pa.nulls(2), [0, 1]),
        (pa.array(["ok", "x" * (MAX_ID_BYTES + 1)]), [1]),
        (pa.array(["é" * (MAX_ID_BYTES // 2), "é" * (MAX_ID_BYTES // 2) + "x"]), [1]),
    ],
)
def test_null_empty_and_overlong_ids_are_refused_by_row(column: pa.Array, rows: list[int]) -> None:
    with pytest.raises(InvalidRows) as caught:
        canonical_ids(column, "id")
    assert [p.row for p in caught.value.problems] == rows
    assert "x" * 20 not in str(caught.value.extras())


def test_duplicates_are_named_by_their_later_rows() -> None:
    ids = pa.array(["a", "b", "a", "c", "b", "a"])
    assert duplicate_rows(ids) == [2, 4, 5]
    assert duplicate_rows(pa.array(["a", "b"])) == []
    with pytest.raises(InvalidRows) as caught:
        refuse_duplicates(ids, "id")
    assert caught.value.total == 3


def test_a_number_and_its_text_are_the_same_id() -> None:
    assert canonical_ids(pa.array([7]), "id").to_pylist() == canonical_ids(pa.array(["7"]), "id").to_pylist()
