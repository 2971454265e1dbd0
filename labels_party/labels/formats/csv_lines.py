"""CSV with a header, in blocks of whole records."""

from __future__ import annotations

import csv
import io
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from typing import TYPE_CHECKING

from label_dp.columnar.csv_text import rows_with_lines
from label_dp.columnar.tables import require_columns
from label_dp.errors import InvalidFile, InvalidTable
from labels_party.labels.chunks import Chunk
from labels_party.labels.formats.source import BLOCK, ColumnSelection, Source

if TYPE_CHECKING:
    import pyarrow as pa

MOST_RECORD = 1 << 16
SHOWN = "the upload"


def read_csv(source: Source, selection: ColumnSelection) -> Iterator[Chunk]:
    """Yield chunks of the records, every column as text; the caller interprets empty fields. Raises InvalidFile,
    InvalidTable."""
    buffer = (source.read()).removeprefix(BOM_UTF8)
    end = _records_end(buffer, at_end=False)
    while not end and len(buffer) <= MOST_RECORD and (more := source.read()):
        buffer += more
        end = _records_end(buffer, at_end=False)
    if not buffer:
        raise InvalidFile(f"{SHOWN.capitalize()} is empty; expected CSV with a header.")
    first = _first_record_end(buffer)
    header, line = buffer[:first], 1 + buffer.count(b"\n", 0, first)
    names = _names(header)
    fields = selection.among(names).fields
    require_columns(names, fields, SHOWN, public=False)
    buffer = buffer[first:]
    while True:
        more = source.read()
        buffer += more
        end = _records_end(buffer, at_end=not more)
        if end:
            yield _block(buffer[:end], names, fields, line)
            line += buffer.count(b"\n", 0, end)
            buffer = buffer[end:]
        if not more:
            return
        if len(buffer) > BLOCK + MOST_RECORD:
            raise InvalidFile(f"The record on line {line} is longer than {MOST_RECORD} bytes, or its quote never ends.")


def _records_end(buffer: bytes, *, at_end: bool) -> int:
    """Return the position behind the last line break outside quotes."""
    if at_end:
        return len(buffer)
    end = len(buffer)
    quotes = buffer.count(b'"')
    while (newline := buffer.rfind(b"\n", 0, end)) >= 0:
        quotes -= buffer.count(b'"', newline, end)
        if quotes % 2 == 0:
            return newline + 1
        end = newline
    return 0


def _first_record_end(buffer: bytes) -> int:
    begun, quotes, at = 0, 0, buffer.find(b"\n")
    while at >= 0 and (quotes := quotes + buffer.count(b'"', begun, at)) % 2:
        begun, at = at, buffer.find(b"\n", at + 1)
    return at + 1 if at >= 0 else len(buffer)


def _names(header: bytes) -> list[str]:
    try:
        rows = list(csv.reader(io.StringIO(header.decode("utf-8"), newline="")))
    except (UnicodeDecodeError, csv.Error):
        raise InvalidFile("The first line is not the header of a CSV file in UTF-8.") from None
    if len(rows) != 1:
        raise InvalidTable("The first line of a CSV file must name its columns, and end as the others do.")
    return rows[0]


def _block(text: bytes, names: list[str], fields: tuple[str, ...], line: int) -> Chunk:
    table = _table(text, names, fields, line)
    return Chunk(table, table.num_rows, line=_lines(text, table.num_rows, line))


def _table(text: bytes, names: list[str], fields: tuple[str, ...], line: int) -> pa.Table:
    import pyarrow as pa
    import pyarrow.csv

    if not text.strip():
        return pa.table({name: pa.array([], pa.string()) for name in fields})
    columns = [f"c{names.index(name)}" for name in fields]
    try:
        table = pyarrow.csv.read_csv(
            pa.BufferReader(BOM_UTF8 + text),  # Arrow strips one, which may belong to an id
            # a block is read at once, so that row numbers are known
            read_options=pyarrow.csv.ReadOptions(
                use_threads=False, block_size=len(text) + 4, column_names=[f"c{i}" for i in range(len(names))]
            ),
            # newlines inside quotes are legal in CSV
            parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(columns, pa.string()), include_columns=columns, strings_can_be_null=False
            ),
        )
    except pa.ArrowException:
        # Arrow quotes cell values in its texts, so they are not passed on
        raise _malformed(text, names, line) from None
    return table.rename_columns(list(fields))


def _malformed(text: bytes, names: list[str], line: int) -> InvalidFile:
    with suppress(csv.Error), closing(rows_with_lines(io.BytesIO(text))) as rows:
        for begins, record in rows:
            if record is not None and len(record) != len(names):
                return InvalidFile(
                    f"Line {line + begins - 1} has {len(record)} fields where the header has {len(names)}."
                )
    return InvalidFile(f"The upload is not well-formed CSV in UTF-8 somewhere from line {line} on.")


def _lines(text: bytes, rows: int, line: int) -> Callable[[int], int]:
    """Map rows of the block to their lines; they differ if quotes hold line breaks."""
    if text.count(b"\n") + (not text.endswith(b"\n")) == rows:
        return lambda row: line + row

    return lambda row: _line_of(text, line, row)


def _line_of(text: bytes, line: int, row: int) -> int:
    begins = 1
    # a field longer than the reader takes ends it: the line before it is near enough
    with suppress(csv.Error), closing(rows_with_lines(io.BytesIO(text))) as rows:
        for number, (at, _) in enumerate(rows):
            begins = at
            if number == row:
                break
    return line + begins - 1
