"""Parquet files of a few kilobytes that would become gigabytes: refused, or read in the memory that is stated."""

from __future__ import annotations

import io
import itertools
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from label_dp.columnar.rows import FLOOR, RATIO, ParquetRows
from label_dp.columnar.tables import read_table
from label_dp.errors import InvalidFile, InvalidTable, TooLarge
from labels_party.labels.formats import json_document
from labels_party.labels.formats.arrow_stream import read_arrow
from labels_party.labels.formats.formats import JSON
from labels_party.labels.formats.source import ColumnSelection
from tests.support.hostile_parquet import LONG, written
from tests.support.swelling import COLUMN, ID, MIB, READERS, ids, swelling, told
from tests.support.upload_formats import BytesSource

pytestmark = pytest.mark.extended

FINE = ("taken", "too-large", "invalid-file", "invalid-rows", "invalid-table")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("swelling") / "files"
    folder.mkdir()
    for name, data in swelling():
        (folder / f"{name}.parquet").write_bytes(data)
    return folder


@pytest.mark.processes
@pytest.mark.parametrize("reader", READERS)
def test_no_reader_takes_more_than_it_states(reader: str, files: Path) -> None:
    """All rows, a piece of as many bytes, and what their ids are checked with: three times what a file may become."""
    status, found = told(files, reader)
    assert status == 0
    assert len(found) == len(list(files.iterdir())) >= 15
    for one in found:
        assert one.outcome in FINE, one
        assert one.grown * MIB <= 3 * (FLOOR + RATIO * min(one.size, MIB)) + 64 * MIB, one
    assert sum(one.outcome != "taken" for one in found) > len(found) // 2


@pytest.mark.processes
def test_a_reader_without_the_guard_is_caught(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    one = pa.DictionaryArray.from_arrays(pa.array(np.zeros(1024, np.int32)), pa.array(["1" * LONG]))
    made = pa.table({ID: ids(1024), COLUMN: one})
    data = written(made, use_dictionary=[COLUMN], dictionary_pagesize_limit=1 << 30, store_schema=False)
    (folder / "a.parquet").write_bytes(data)
    (free,) = told(folder, "feature table", planted=True)[1]
    assert (free.outcome, free.grown > 900) == ("taken", True)
    (guarded,) = told(folder, "feature table")[1]
    assert (guarded.outcome, guarded.grown < 320) == ("too-large", True)


ENCODINGS: list[dict[str, str]] = [
    {},
    {"id": "DELTA_BYTE_ARRAY", "text": "DELTA_BYTE_ARRAY", "whole": "DELTA_BINARY_PACKED", "real": "BYTE_STREAM_SPLIT"},
    {"id": "DELTA_LENGTH_BYTE_ARRAY", "text": "DELTA_LENGTH_BYTE_ARRAY"},
]


def honest(rows: int = 9000) -> pa.Table:
    rng, numbers = np.random.default_rng(7), range(rows)
    return pa.table(
        {
            "id": [f"row-{i}" for i in numbers],
            "text": pa.array([None if i % 17 == 0 else "abcdefg"[: i % 7 + 1] * (i % 3 + 1) for i in numbers]),
            "whole": rng.integers(0, 1 << 40, rows),
            "real": rng.normal(size=rows),
            "bit": pa.array([bool(i & 1) for i in numbers]),
            "day": pa.array(rng.integers(0, 20_000, rows).astype("int32"), pa.date32()),
            "time": pa.array(rng.integers(0, 10**15, rows), pa.timestamp("us")),
            "money": pa.array(numbers, pa.int64()).cast(pa.decimal128(22, 2)),
            "list": pa.array([[1, 2, 3][: i % 4] for i in numbers]),
            "pair": pa.StructArray.from_arrays([pa.array(["q"] * rows), pa.array([1.0] * rows)], ["a", "b"]),
            "nothing": pa.nulls(rows),
        }
    )


def columns_of(table: pa.Table) -> dict[str, pa.Array]:
    return {name: table[name].combine_chunks() for name in table.column_names}


@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "brotli", "zstd", "lz4"])
def test_honest_files_of_any_encoding_are_read_as_arrow_reads_them(codec: str) -> None:
    made = honest()
    for encoding, version in itertools.product(ENCODINGS, ("1.0", "2.0")):
        sink = io.BytesIO()
        pq.write_table(
            made, sink, compression=codec, use_dictionary=not encoding, column_encoding=encoding or None,
            data_page_version=version, data_page_size=1 << 12, row_group_size=4000,
        )  # fmt: skip
        sink.seek(0)
        with ParquetRows.open(sink) as rows:
            assert columns_of(rows.table()) == columns_of(pq.read_table(io.BytesIO(sink.getvalue())))
            assert rows.claims.rows == made.num_rows
            assert rows.table(["text", "id"]).column_names == ["text", "id"]


def test_honest_files_of_another_writer(tmp_path: Path) -> None:
    path, made = tmp_path / "f.parquet", honest().select(["id", "text", "whole", "real", "bit", "day"])
    for codec, version in itertools.product(("zstd", "snappy", "lz4_raw", "gzip"), ("V1", "V2")):
        with duckdb.connect() as database:
            database.register("made", made)
            database.execute(f"copy made to '{path}' (format parquet, codec '{codec}', parquet_version '{version}')")
        with ParquetRows.open(path) as rows:
            assert columns_of(rows.table()) == columns_of(pq.read_table(path))


# --- the siblings: Arrow streams, JSON, CSV ------------------------------------------------------------------------


def stream(*columns: pa.Array, compression: str | None = None) -> bytes:
    batch = pa.record_batch(list(columns), names=[ID, COLUMN, *(f"c{i}" for i in range(len(columns) - 2))])
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def views(rows: int) -> pa.Array:
    """One text of a megabyte, viewed by every row."""
    view = np.frombuffer(np.array([LONG], np.int32).tobytes() + b"1111" + bytes(8), np.uint8)
    text = pa.py_buffer(b"1" * LONG)
    return pa.Array.from_buffers(pa.string_view(), rows, [None, pa.py_buffer(np.tile(view, rows).tobytes()), text])


def test_what_repeats_in_an_arrow_stream_counts_as_text(tmp_path: Path) -> None:
    wanted = ColumnSelection((ID, COLUMN), tmp_path)
    labels, zeros = pa.array(np.zeros(1000)), pa.array(np.zeros(1000, np.int8))
    repeated = pa.DictionaryArray.from_arrays(zeros, pa.array(["1" * LONG]))
    large = [pa.DictionaryArray.from_arrays(zeros, pa.array(["1" * (8 * MIB)])) for _ in range(9)]
    bombs = [
        stream(repeated, labels, compression="zstd"),
        stream(views(1000), labels),
        stream(pa.array([str(i) for i in range(1000)]), labels, *large, compression="zstd"),
    ]
    for bomb in bombs:
        with pytest.raises(TooLarge):
            list(read_arrow(BytesSource(bomb), wanted))
    few = stream(repeated.slice(0, 10), labels.slice(0, 10))
    assert sum(chunk.rows for chunk in read_arrow(BytesSource(few), wanted)) == 10


def test_a_document_of_empty_objects_is_refused_before_it_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bomb = b'{"example_id":[' + b"{}," * (1 << 20) + b'{}],"label":[1]}'
    monkeypatch.setattr(json_document, "_quick", lambda *_: pytest.fail("it was parsed"))
    with pytest.raises(InvalidFile, match="one list per field"):
        list(JSON.chunks(BytesSource(bomb), (ID, COLUMN), tmp_path))
    monkeypatch.undo()
    names = ",".join(f'"[{{{i}-long-enough"' for i in range(100_000))  # brackets in texts are no lists
    fine = f'{{"example_id":[{names}],"label":[{",".join("1" * 100_000)}]}}'
    assert sum(c.rows for c in JSON.chunks(BytesSource(fine.encode()), (ID, COLUMN), tmp_path)) == 100_000


def test_a_csv_of_a_million_columns_is_refused_by_its_header(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_bytes(b"," * (1 << 22) + b"\n1\n")
    with pytest.raises(InvalidTable, match="more than 10,000 columns"):
        read_table(path)
    with pytest.raises(TooLarge):
        read_table(path, most_bytes=1 << 20)
