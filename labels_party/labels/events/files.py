"""Events in files: Parquet, where nested members are those of struct columns, and local files, which are folded as they
are read. A row of a table keeps the rules of a JSON object; a column that no rule needs is not decoded."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from label_dp.columnar.parts import TableParts, TablePath, placed
from label_dp.columnar.rows import Expands, ParquetRows, table_bytes
from label_dp.columnar.tables import is_parquet, refuse_pipe
from label_dp.columnar.thrift import LyingFile
from label_dp.errors import InvalidEvents, InvalidFile, InvalidRows, RowProblem
from label_dp.label_values import shortest
from label_dp.schemas.events import DataSet
from labels_party.labels.chunks import CHUNK_ROWS
from labels_party.labels.events import bodies
from labels_party.labels.formats.columns import shown
from labels_party.labels.formats.parquet_file import read_tables
from labels_party.labels.formats.source import BLOCK, Source
from labels_party.labels.label_file import broken
from labels_party.labels.parsing import SECONDS

if TYPE_CHECKING:
    import pyarrow as pa

LINES, DOCUMENT = (".ndjson", ".jsonl"), ".json"
LEAST_BYTES = 100  # of an event as JSON, about
REQUIRED = ("data_set_id", "timestamp", "event_type")
OPTIONAL = ("custom_event", "value", "currency_code", "id", "user_data.mmt_only")
RULES = {  # what a column must hold that is no text
    "data_set_id": bodies.NO_DATA_SET,
    "timestamp": f"{SECONDS}, or a timestamp",
    "value": bodies.VALUE,
    "id": bodies.NO_ID,
    "user_data.mmt_only": bodies.BOOLEAN,
}
ENDINGS = f"{DOCUMENT} (an event, or an array of them) or {' or '.join(LINES)} (one event a line)"
TICKS = {"s": 1, "ms": 1000, "us": 10**6, "ns": 10**9}  # of a second


@dataclass(frozen=True)
class EventFile:
    """Local file, or table in parts: Parquet, or JSON by the ending of its name. `rows`: about how many events it has,
    at most if JSON."""

    path: TablePath
    rows: int

    @classmethod
    def open(cls, path: TablePath) -> EventFile:
        """Look at the file. Raises InvalidFile if it cannot be read or has another format."""
        import pyarrow as pa

        if isinstance(path, TableParts):
            if path.csv and not all(_is_json(part.name) for part in path.parts):
                raise InvalidFile(f"'{path}' has a file that is no Parquet, and whose name does not end in {ENDINGS}.")
            return cls(path, path.rows or path.size // LEAST_BYTES)
        refuse_pipe(path)
        try:
            if is_parquet(path):
                with ParquetRows.open(path) as rows:
                    return cls(path, rows.claims.rows)
            size = path.stat().st_size
        except (pa.ArrowException, OSError, UnicodeDecodeError, LyingFile, Expands) as error:
            raise broken(path, error) from None
        if not _is_json(str(path)):
            raise InvalidFile(f"'{path}' is no Parquet file, and its name does not end in {ENDINGS}.")
        return cls(path, size // LEAST_BYTES)

    def events(self, sets: Collection[DataSet]) -> Iterator[bodies.EventRows]:
        """Yield the events of the file, some at a time. Raises InvalidFile, InvalidEvents, TooLarge."""
        import pyarrow as pa

        if isinstance(self.path, TableParts):
            yield from _part_events(self.path, sets)
            return
        try:
            if not is_parquet(self.path):
                with self.path.open("rb") as file:
                    yield from bodies.event_rows(partial(file.read, BLOCK), lines=self.path.suffix in LINES)
                return
            with ParquetRows.open(self.path) as rows:
                names = event_columns(rows.schema, sets)
                tables = rows.tables(names, most=table_bytes(rows.claims.size), most_rows=CHUNK_ROWS)
                yield from event_tables(tables, sets)
        except (pa.ArrowException, OSError, UnicodeDecodeError, LyingFile, Expands) as error:
            raise broken(self.path, error) from None


def _is_json(name: str) -> bool:
    return name.endswith((*LINES, DOCUMENT))


def _part_events(table: TableParts, sets: Collection[DataSet]) -> Iterator[bodies.EventRows]:
    """Yield the events of all parts; of Parquet, whole columns with members that a rule can need. Raises as
    `EventFile.events`."""
    if not table.csv:
        roots = dict.fromkeys(name.split(".")[0] for name in event_columns(table.schema, sets))
        with placed(table):
            yield from event_tables(table.tables(list(roots), most_rows=CHUNK_ROWS), sets)
        return
    for part in table.parts:
        try:
            with part.open() as file:
                yield from bodies.event_rows(partial(file.read, BLOCK), lines=part.name.endswith(LINES))
        except InvalidRows as error:
            raise type(error)([replace(p, file=part.name) for p in error.problems], error.total) from None
        except OSError as error:
            raise InvalidFile(f"'{part.name}' cannot be read ({error.strerror}).") from None


def parquet_rows(source: Source, folder: Path, sets: Collection[DataSet]) -> Iterator[bodies.EventRows]:
    """Yield the events of a Parquet upload, some at a time; a large one is spooled to the folder, encrypted. Raises
    InvalidEvents, InvalidFile, TooLarge, Unavailable."""
    return event_tables(read_tables(source, folder, lambda schema: event_columns(schema, sets)), sets)


def event_tables(tables: Iterable[pa.Table], sets: Collection[DataSet]) -> Iterator[bodies.EventRows]:
    """Yield the rows of tables that have the columns of `event_columns`. Raises InvalidEvents."""
    start = 0
    for table in tables:
        names = event_columns(table.schema, sets)
        for first in range(0, table.num_rows, CHUNK_ROWS):
            piece = table.slice(first, CHUNK_ROWS)
            columns = {name: _member(piece, name.split(".")) for name in names}
            yield column_rows(range(start + first, start + first + piece.num_rows), columns)
        start += table.num_rows


def column_rows(numbers: Sequence[int], columns: Mapping[str, pa.Array]) -> bodies.EventRows:
    """Return columns, by the dotted names of their members, as the events of these rows."""

    def of(*path: str) -> list[Any]:
        column = columns.get(".".join(path))
        return [None] * len(numbers) if column is None else _cells(column)

    return bodies.EventRows(numbers, of)


def event_columns(schema: pa.Schema, sets: Iterable[DataSet]) -> list[str]:
    """List the columns with members that a rule can need, by dotted names: a member without a column is absent of every
    event. Raises InvalidEvents if a column cannot hold its member; the error names the first row."""
    members = member_names(sets)
    names = [name for name, example in members.items() if _has(schema, name, example)]
    for name in REQUIRED:
        if name not in names:
            raise _wrong(name, RULES.get(name, bodies.TEXT))
    return names


def member_names(sets: Iterable[DataSet]) -> dict[str, bool]:
    """Return the dotted names of the members that a rule can need, and which may hold an example id."""
    return dict.fromkeys((*REQUIRED, *OPTIONAL), False) | {".".join(one.example_path): True for one in sets}


def _has(schema: pa.Schema, name: str, example: bool) -> bool:
    """Return whether there is a column for a member. Raises InvalidEvents if there is one of another type."""
    import pyarrow as pa

    fields, path = list(schema), name.split(".")
    if len(path) > 1 and path[0] not in schema.names and name in schema.names:
        raise _wrong(name, f"must be a member of a struct column '{path[0]}'")
    for depth, part in enumerate(path, 1):
        kinds = [field.type for field in fields if field.name == part]
        if len(kinds) > 1:
            raise _wrong(".".join(path[:depth]), "must be the name of one column")
        if not kinds or pa.types.is_null(kinds[0]):
            return False
        if depth < len(path):
            if not pa.types.is_struct(kinds[0]):
                raise _wrong(".".join(path[:depth]), f"{bodies.OBJECT}: a struct column; it holds {shown(kinds[0])}")
            fields = list(kinds[0])
    if not _fits(kinds[0], name, example):
        rule = bodies.EXAMPLE_ID if example else RULES.get(name, bodies.TEXT)
        raise _wrong(name, f"{rule}; the column holds {shown(kinds[0])}")
    return True


def _fits(kind: pa.DataType, name: str, example: bool) -> bool:
    import pyarrow.types as t

    kind = kind.value_type if t.is_dictionary(kind) else kind
    if name == "timestamp":
        return bool(t.is_integer(kind) or t.is_timestamp(kind))
    if name == "value":
        return bool(t.is_integer(kind) or t.is_floating(kind) or t.is_decimal(kind))
    if name == "user_data.mmt_only":
        return bool(t.is_boolean(kind))
    text = t.is_string(kind) or t.is_large_string(kind) or t.is_string_view(kind)
    return bool(text or ((example or name == "id") and t.is_integer(kind)))


def _wrong(field: str, rule: str) -> InvalidEvents:
    return InvalidEvents([RowProblem(0, field, rule)])


def _member(table: pa.Table, path: Sequence[str]) -> pa.Array:
    """Return a member as a column; it is absent where what holds it is."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = table[path[0]]
    for name in path[1:]:
        column = pc.struct_field(column, name)
    whole = column.combine_chunks()
    return whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole


def _cells(column: pa.Array) -> list[Any]:
    """Return the cells as JSON would have them. A time loses its fraction of a second, and is UTC where no zone is
    named; a narrow float is what it prints as."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.types as t

    if t.is_dictionary(column.type):
        column = column.dictionary_decode()
    if t.is_timestamp(column.type):
        ticks = TICKS[column.type.unit]
        return [None if at is None else at // ticks for at in column.cast(pa.int64()).to_pylist()]
    if t.is_decimal(column.type):
        column = pc.cast(column, pa.float64(), safe=False)
    if t.is_floating(column.type) and not t.is_float64(column.type):
        numbers = np.asarray(pc.cast(pc.fill_null(column, float("nan")), pa.float64()))
        column = pa.array(shortest(column, numbers), mask=np.asarray(pc.is_null(column)))
    cells: list[Any] = column.to_pylist()
    return cells
