"""`-` as the address of a table: an Arrow stream of another program, whole or not at all."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from label_dp.columnar.parts import TableParts, read_rows
from label_dp.errors import InvalidFile, InvalidTable
from label_dp.store.table_files import commit, require_place, table_at, target_at
from labels_party.labels.label_file import LabelFile

ROWS = pa.table({"click": [f"c{i}" for i in range(10)], "eur": [float(i) for i in range(10)]})


class Terminal(io.BytesIO):
    """Standard input or output: bytes, from a pipe or typed by somebody."""

    def __init__(self, data: bytes = b"", *, typed: bool = False) -> None:
        super().__init__(data)
        self.buffer, self.isatty = self, lambda: typed


def sent(table: pa.Table = ROWS, rows: int = 3) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=rows)
    return bytes(sink.getvalue())


@pytest.fixture
def piped(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], TableParts]:
    def piped(data: bytes, typed: bool = False) -> TableParts:
        monkeypatch.setattr("sys.stdin", Terminal(data, typed=typed))
        table = table_at("-")
        assert isinstance(table, TableParts)
        return table

    return piped


def test_rows_of_a_stream_are_read_as_often_as_needed(piped: Callable[[bytes], TableParts]) -> None:
    table = piped(sent())
    assert (str(table), table.rows, table.source) == ("standard input", 10, {})
    assert [read_rows(table) for _ in range(2)] == [ROWS, ROWS]
    labels = LabelFile.open(table, ["eur"])
    assert pa.concat_tables(labels.chunks()) == ROWS.select(["eur"])
    with pytest.raises(InvalidTable, match="'standard input' has no column 'revenue'"):
        LabelFile.open(table, ["revenue"])
    assert piped(sent(ROWS.slice(0, 0))).rows == 0
    views = ROWS.set_column(0, "click", ROWS["click"].cast(pa.string_view()))
    assert piped(sent(views)).schema.field("click").type == pa.large_string()


def test_what_a_killed_program_left_is_refused(piped: Callable[[bytes], TableParts]) -> None:
    """Arrow itself takes a stream that ends between two batches for a whole one."""
    data = sent()
    assert pa.ipc.open_stream(data[:-8]).read_all() == ROWS  # so the mark of the end is all that tells
    for cut in (*range(0, len(data), 8), len(data) - 1):
        with pytest.raises(InvalidFile, match="no whole Arrow IPC stream"):
            piped(data[:cut])


@pytest.mark.parametrize("data", [b"", b"click,eur\nc1,2\n", sent()[8:], b"PAR1" + sent()[4:]], ids=str)
def test_other_input_is_refused_without_its_text(data: bytes, piped: Callable[[bytes], TableParts]) -> None:
    with pytest.raises(InvalidFile, match="no whole Arrow IPC stream") as refused:
        piped(data)
    assert "c1" not in str(refused.value)


def test_a_terminal_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(sent(), typed=True))
    with pytest.raises(InvalidFile, match="Standard input is a terminal"):
        table_at("-")


def test_a_stream_is_written_once_all_rows_are_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    out: Any = Terminal()
    monkeypatch.setattr("sys.stdout", out)
    target = target_at("-")
    assert isinstance(target, type(target_at("s3://bucket/key")))
    require_place(target, ROWS.schema, {}, force=False)
    pq.write_table(ROWS, tmp_path / "rows.parquet", row_group_size=4)
    commit(target, tmp_path / "rows.parquet", {}, force=False)
    assert pa.ipc.open_stream(out.getvalue()).read_all() == ROWS


def test_a_file_of_that_name_is_reached_by_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pq.write_table(ROWS, "-")
    assert table_at("./-") == Path("./-")
