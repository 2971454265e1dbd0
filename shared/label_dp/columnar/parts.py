"""A table in parts: files of one schema one after the other, those of a folder or of a snapshot of a lake table.

Each part is read as a file alone is: its claims are checked before a decoder believes them, in bounded memory.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias

from label_dp.columnar.csv_text import header_of, refuse_other_files, with_lines
from label_dp.columnar.csv_types import as_text
from label_dp.columnar.rows import MOST_ROWS, Expands, ParquetRows, table_bytes
from label_dp.columnar.tables import (
    PARQUET_MAGIC,
    columns_of_csv,
    damaged,
    read_csv,
    read_table,
    refuse_wide,
    require_columns,
    unreadable,
)
from label_dp.columnar.thrift import LyingFile
from label_dp.errors import InvalidFile, InvalidRows, InvalidTable

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

CSV_BLOCK = 1 << 22
JSON = (".json", ".ndjson", ".jsonl")


@dataclass(frozen=True)
class TablePart:
    """File of a table. `open` gives its bytes for random access; `rows` where known without reading it; `address` if
    `table_at` finds it again; `groups`: the row groups that count, None for all.

    Of a lake table: `values` of columns that the file lacks, `names` from the table's columns to the file's by its
    schema, `mask` says which rows were not deleted; `read` in place of all that, where only its library can.
    """

    name: str
    open: Callable[[], BinaryIO]
    size: int
    rows: int | None = None
    values: Mapping[str, pa.Scalar] = field(default_factory=dict)
    names: Callable[[pa.Schema], Mapping[str, str]] | None = None
    mask: npt.NDArray[np.bool_] | None = None
    read: Callable[[Sequence[str]], Iterator[pa.Table]] | None = None
    address: str = ""
    groups: range | None = None


@dataclass(frozen=True)
class TableParts:
    """Table of parts in a fixed order, Parquet or CSV. `address` has no credentials.

    Of a lake table: its kind and own id (`table`), the version that is read (`snapshot`) and, if only appended rows
    are, the one before them (`since`).
    """

    address: str
    parts: tuple[TablePart, ...]
    schema: pa.Schema
    csv: bool = False
    table: str | None = None
    snapshot: str | None = None
    since: str | None = None
    starts: list[int] = field(default_factory=list, compare=False)  # first row of each part, as far as it was read

    def __str__(self) -> str:
        return self.address

    @classmethod
    def of(cls, address: str, parts: Sequence[TablePart]) -> TableParts:
        """Take files whose schema is that of the first. Raises InvalidFile, InvalidTable."""
        import pyarrow as pa

        first = parts[0]
        if first.name.endswith(JSON):  # records without columns, such as events
            return cls(address, tuple(parts), pa.schema([]), True)
        with _reading(first), first.open() as file:
            magic = file.read(4)
            if not magic:
                raise InvalidFile(f"'{first.name}' is empty; expected a Parquet or CSV file with a header.")
            if magic != PARQUET_MAGIC:
                refuse_other_files(magic, first.name)
                refuse_wide(file, first.name)
                own = columns_of_csv(file)
            else:
                with ParquetRows.open(file) as rows:
                    own = pa.schema([pa.field(one.name, one.type) for one in rows.schema])
        beside = [pa.field(name, value.type) for name, value in first.values.items() if name not in own.names]
        return cls(address, tuple(parts), pa.schema([*own, *beside]), magic != PARQUET_MAGIC)

    @property
    def source(self) -> dict[str, str]:
        """Table and version as the event of a seal notes them; empty where there is no version. No place is named: the
        audit store is shown to others."""
        members = {"table": self.table, "snapshot": self.snapshot, "since": self.since}
        return {name: value for name, value in members.items() if value is not None}

    @property
    def rows(self) -> int | None:
        """Rows, where they are known of each part."""
        counts = [part.rows for part in self.parts]
        return None if None in counts else sum(count or 0 for count in counts)

    @property
    def size(self) -> int:
        """Bytes of the files."""
        return sum(part.size for part in self.parts)

    def decoded(self) -> int:
        """Return about how many bytes all rows take in memory; for CSV the size of the files. Raises InvalidFile."""
        total = 0
        for part in self.parts:
            if self.csv or part.read is not None:
                total += part.size
                continue
            with _reading(part), part.open() as file, ParquetRows.open(file) as rows:
                total += rows.decoded()
        return total

    def tables(
        self, columns: Sequence[str] | None = None, *, most_rows: int = MOST_ROWS, nulls: bool = True
    ) -> Iterator[pa.Table]:
        """Yield the rows of all parts in order, some at a time. Cells of a CSV are text, of which an empty one is
        missing if `nulls`. Raises InvalidFile, InvalidTable."""
        names, start = self.schema.names if columns is None else list(columns), 0
        self.starts.clear()
        for part in self.parts:
            self.starts.append(start)
            with _reading(part):
                for table in self._csv(part, names, nulls) if self.csv else self._parquet(part, names, most_rows):
                    start += table.num_rows
                    yield table

    def whole(
        self,
        text_columns: Sequence[str] | None,
        columns: Sequence[str] | None,
        each: Callable[[pa.Table], pa.Table],
        most: int | None,
    ) -> pa.Table:
        """Read all rows; the arguments are those of `read_table`. Raises InvalidFile, InvalidTable."""
        import pyarrow as pa

        if columns is not None:
            require_columns(self.schema.names, columns, self.address, csv=self.csv)
        if self.csv:
            return each(self._typed(text_columns, columns))
        names, pieces, decoded = self.schema.names if columns is None else columns, [], 0
        for table in self.tables(names):
            decoded += table.nbytes
            if most is not None and decoded > most:
                raise InvalidFile(f"'{self.address}' is too large: it decodes to more than {most} bytes.")
            pieces.append(each(table))
        empty = pa.schema([self.schema.field(name) for name in names]).empty_table()
        return pa.concat_tables(pieces or [each(empty)])

    def placed(self, error: InvalidRows) -> InvalidRows:
        """Name the file of each row of an error, and the row and line in it."""
        problems = []
        for problem in error.problems:
            at = bisect_right(self.starts, problem.row) - 1
            if at < 0 or problem.file is not None:
                return error
            here = replace(problem, row=problem.row - self.starts[at], file=self.parts[at].name)
            if self.csv:
                with self.parts[at].open() as file:
                    here = with_lines(InvalidRows([here]), file).problems[0]
            problems.append(here)
        return type(error)(problems, error.total)

    def _parquet(self, part: TablePart, names: Sequence[str], most_rows: int) -> Iterator[pa.Table]:
        """Yield the rows that count with the types of the table; a column that a lake table got later has no value."""
        import pyarrow as pa

        if part.read is not None:
            yield from part.read(names)
            return
        with self._opened(part) as file, ParquetRows.open(file) as whole_file:
            rows = replace(whole_file, groups=part.groups)
            present = rows.schema.names
            of = {name: name for name in present} if part.names is None else part.names(rows.schema)
            if self.table is None:
                require_columns([*present, *part.values], names, part.name, csv=False)
            # a name with a dot would be read as the path of a member
            own = [name for name in names if name not in part.values and of.get(name, name) in present]
            start = 0
            for table in rows.tables(
                [of.get(name, name) for name in own] or present[:1],
                most=table_bytes(rows.claims.size),
                most_rows=most_rows,
            ):
                rows_here = table.num_rows
                columns = {name: table[of.get(name, name)] for name in own}
                whole = pa.table([self._column(part, name, columns, rows_here) for name in names], names=list(names))
                if part.mask is not None:
                    mask = part.mask[start : start + rows_here].tolist()  # it may end at the last deleted row
                    whole = whole.filter(pa.array(mask + [True] * (rows_here - len(mask))))
                start += rows_here
                yield whole

    @contextmanager
    def _opened(self, part: TablePart) -> Iterator[BinaryIO]:
        """Open a file of the kind of the others. Raises InvalidFile."""
        with part.open() as file:
            if self.csv == (file.read(len(PARQUET_MAGIC)) == PARQUET_MAGIC):
                kind = "is Parquet" if self.csv else "is no Parquet file"
                raise InvalidFile(f"'{part.name}' {kind}, unlike '{self.parts[0].name}'. All files are of one kind.")
            file.seek(0)
            yield file

    def _column(self, part: TablePart, name: str, columns: Mapping[str, Any], rows: int) -> Any:
        """Return a column with the type of the table. Raises InvalidTable."""
        import pyarrow as pa

        kind = self.schema.field(name).type
        if name not in columns:
            return pa.repeat(part.values[name] if name in part.values else pa.scalar(None, kind), rows).cast(kind)
        column = columns[name]
        if column.type == kind:
            return column
        try:
            if pa.types.is_floating(kind) and pa.types.is_floating(column.type):
                raise pa.ArrowInvalid("a number of one width is printed otherwise in another")
            return column.dictionary_encode().cast(kind) if pa.types.is_dictionary(kind) else column.cast(kind)
        except pa.ArrowException:  # its text quotes values
            raise InvalidTable(
                f"The column '{name}' of '{part.name}' holds {column.type}; in '{self.parts[0].name}' it holds {kind}."
            ) from None

    def _csv(self, part: TablePart, names: Sequence[str], nulls: bool) -> Iterator[pa.Table]:
        import pyarrow as pa
        from pyarrow import csv

        with self._opened(part) as file:
            header = header_of(file)
            require_columns([*header, *part.values], names, part.name)
            own = [name for name in names if name not in part.values]
            convert = as_text(header)
            if not nulls:
                convert.strings_can_be_null = False
            convert.include_columns = own or header[:1]
            with csv.open_csv(
                file,
                read_options=csv.ReadOptions(block_size=CSV_BLOCK),
                parse_options=csv.ParseOptions(newlines_in_values=True),
                convert_options=convert,
            ) as reader:
                for batch in reader:
                    columns = {name: batch.column(name) for name in own}
                    yield pa.table([self._column(part, n, columns, batch.num_rows) for n in names], names=list(names))

    def _typed(self, text_columns: Sequence[str] | None, columns: Sequence[str] | None) -> pa.Table:
        """Read all rows of CSV files; a column has the type of all its cells in all files."""
        import pyarrow as pa

        def read(part: TablePart, text: Sequence[str] | None, types: Mapping[str, pa.DataType]) -> pa.Table:
            with _reading(part), self._opened(part) as file:
                table = read_csv(file, text, columns, part.name, True, types)
            for name, value in part.values.items():
                if columns is None or name in columns:
                    table = table.append_column(name, pa.repeat(value, table.num_rows))
            missing = [name for name in self.schema.names if columns is None and name not in table.column_names]
            if missing or len(table.column_names) != len(columns or self.schema.names):
                raise InvalidTable(f"'{part.name}' has not the columns of '{self.parts[0].name}'.")
            return table.select(list(columns or self.schema.names))

        tables = [read(part, text_columns, {}) for part in self.parts]
        kinds: dict[str, set[pa.DataType]] = {
            name: {table.schema.field(name).type for table in tables} - {pa.null()} for name in tables[0].column_names
        }
        types = {n: _common(of) for n, of in kinds.items() if len({t.schema.field(n).type for t in tables}) > 1}
        if types:
            tables = [read(part, text_columns, types) for part in self.parts]
        self.starts[:] = [sum(table.num_rows for table in tables[:at]) for at in range(len(tables))]
        return pa.concat_tables(tables)


TablePath: TypeAlias = Path | TableParts


def read_rows(
    source: TablePath,
    *,
    text_columns: Sequence[str] | None = (),
    columns: Sequence[str] | None = None,
    name: str = "",
    names_are_public: bool = True,
    most_bytes: int | None = None,
    each: Callable[[pa.Table], pa.Table] = lambda table: table,
) -> pa.Table:
    """Read a whole table as `read_table` does, from a file or from parts."""
    if isinstance(source, TableParts):
        return source.whole(text_columns, columns, each, most_bytes)
    return read_table(
        source,
        text_columns=text_columns,
        columns=columns,
        name=name,
        names_are_public=names_are_public,
        most_bytes=most_bytes,
        each=each,
    )


def _common(kinds: set[pa.DataType]) -> pa.DataType:
    """Return the type that holds cells of several files: numbers together are floats, other mixtures are text."""
    import pyarrow as pa

    if len(kinds) == 1:
        return next(iter(kinds))
    return pa.float64() if kinds == {pa.int64(), pa.float64()} else pa.string()


@contextmanager
def placed(source: TablePath) -> Iterator[None]:
    """Name the file of a refused row, and the row and line in it, if `source` is a table in parts."""
    try:
        yield
    except InvalidRows as error:
        if isinstance(source, TableParts):
            raise source.placed(error) from None
        raise


@contextmanager
def _reading(part: TablePart) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, UnicodeDecodeError) as error:  # Arrow quotes cell values in its texts
        with part.open() as file:
            raise unreadable(file, error, part.name) from None
    except Expands as error:
        raise InvalidFile(f"'{part.name}' is too large: {error}. Write it in smaller parts.") from None
    except LyingFile as error:
        raise damaged(part.name, error) from None
    except OSError as error:
        reason = error.strerror or "it is truncated or damaged"
        raise InvalidFile(f"'{part.name}' cannot be read ({reason}).") from None
