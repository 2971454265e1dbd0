"""File of features read piece by piece, in memory independent of its size, without changing a cell. Parquet keeps its
Arrow types. The cells of a CSV file are text, or get types that print as the same text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from label_dp.columnar import tables
from label_dp.columnar.csv_text import header_of
from label_dp.columnar.csv_types import as_text, exact_types, with_types
from label_dp.columnar.parts import TableParts, TablePath
from label_dp.columnar.rows import Expands, ParquetRows, table_bytes
from label_dp.columnar.thrift import LyingFile
from label_dp.errors import InvalidFile, InvalidRows, InvalidTable

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 1 << 16
CSV_BLOCK = 1 << 23


@dataclass(frozen=True)
class FeatureFile:
    """File of n rows, or a table in parts, with an id column; `schema` has all columns in file order."""

    path: TablePath
    id_column: str
    schema: pa.Schema
    csv: bool

    @classmethod
    def open(cls, path: TablePath, id_column: str, *, typed: bool = False) -> FeatureFile:
        """Read the columns. `typed`: those of a CSV besides the ids get the `exact_types` of all rows. Raises
        InvalidFile, InvalidTable."""
        import pyarrow as pa

        schema, csv = (path.schema, path.csv) if isinstance(path, TableParts) else _head(path)
        tables.require_columns(schema.names, [id_column], str(path))
        twice = next((name for name, times in Counter(schema.names).items() if times > 1), None)
        if twice is not None:
            raise InvalidTable(f"'{path}' has more than one column '{twice}'; rename or drop one.")
        feature_file = cls(path, id_column, schema, csv)
        if not (csv and typed):
            return feature_file
        texts = [field.name for field in schema if field.name != id_column and pa.types.is_string(field.type)]
        types = exact_types(feature_file.batches(), texts)
        fields = [(f.name, types.get(f.name, f.type)) for f in schema]
        return replace(feature_file, schema=pa.schema(fields))

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield the rows in file order, some 10⁵ at a time. Raises InvalidFile."""
        if isinstance(self.path, TableParts):
            for batch in self.path.tables(columns, most_rows=BATCH_ROWS):
                if batch.num_rows:
                    yield self._with_types(batch) if self.csv else batch
            return
        with _readable(self.path):
            for batch in self._csv_batches(self.path, columns) if self.csv else _parquet_batches(self.path, columns):
                if batch.num_rows:
                    yield batch

    def ids(self) -> Iterator[pa.Array]:
        """Yield the canonical ids, batch by batch. Raises InvalidTable, and InvalidRows for null, empty or overlong
        ones."""
        start = 0
        for batch in self.batches([self.id_column]):
            with rows_from(start):
                ids = tables.canonical_ids(batch[self.id_column], self.id_column)
            yield ids
            start += batch.num_rows

    def id_bytes(self) -> int:
        """Return about how many bytes the ids take in memory. Raises InvalidFile."""
        if isinstance(self.path, TableParts):
            return self.path.size
        if self.csv:
            return self.path.stat().st_size
        with _readable(self.path), ParquetRows.open(self.path) as rows:
            return rows.decoded([self.id_column])

    def _csv_batches(self, path: Path, columns: Sequence[str] | None) -> Iterator[pa.Table]:
        import pyarrow as pa

        for batch in _open_csv(path, self.schema.names, columns):
            yield self._with_types(pa.Table.from_batches([batch]))

    def _with_types(self, table: pa.Table) -> pa.Table:
        return with_types(table, {name: self.schema.field(name).type for name in table.column_names})


@contextmanager
def rows_from(start: int) -> Iterator[None]:
    """Shift the rows of errors by `start`, the first row of a piece in its file."""
    try:
        yield
    except InvalidRows as error:
        raise InvalidRows([replace(p, row=p.row + start) for p in error.problems], error.total) from None


def first_column(path: TablePath) -> str:
    """Return the name of a table's first column. Raises InvalidFile."""
    if isinstance(path, TableParts):
        return str(path.schema.names[0])
    with _readable(path):
        with path.open("rb") as file:
            if file.read(4) == tables.PARQUET_MAGIC:
                return str(_parquet_schema(path).names[0])
        with _open_csv(path, ()) as reader:
            return str(reader.schema.names[0])


def decoded_bytes(path: TablePath) -> int:
    """Return about how many bytes the table takes in memory: for Parquet by its pages, for CSV its size."""
    if isinstance(path, TableParts):
        return path.decoded()
    with _readable(path):
        with path.open("rb") as file:
            if file.read(4) != tables.PARQUET_MAGIC:
                return path.stat().st_size
        with ParquetRows.open(path) as rows:
            return rows.decoded()


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    import pyarrow as pa

    tables.refuse_pipe(path)
    try:
        yield
    except (pa.ArrowException, UnicodeDecodeError) as error:
        # Arrow quotes cell values in its texts, so they are not passed on
        raise tables.unreadable(path, error) from None
    except Expands as error:
        raise InvalidFile(f"'{path}' is too large: {error}. Write it in smaller parts.") from None
    except OSError as error:
        reason = error.strerror or "it is truncated or damaged"
        raise InvalidFile(f"'{path}' cannot be read ({reason}).") from None
    except LyingFile as error:
        raise tables.damaged(str(path), error) from None


def _head(path: Path) -> tuple[pa.Schema, bool]:
    """Return the columns of a file, and whether it is CSV. Raises InvalidFile, InvalidTable."""
    with _readable(path):
        with path.open("rb") as file:
            magic = file.read(4)
            if not magic:
                raise InvalidFile(f"'{path}' is empty; expected a Parquet or CSV file with a header.")
            csv, names = magic != tables.PARQUET_MAGIC, list[str]()
            if csv:
                tables.refuse_wide(file, str(path))
                names = header_of(file)
        return (_csv_schema(path, names) if csv else _parquet_schema(path)), csv


def _parquet_batches(path: Path, columns: Sequence[str] | None) -> Iterator[pa.Table]:
    with ParquetRows.open(path) as rows:
        yield from rows.tables(columns, most=table_bytes(rows.claims.size), most_rows=BATCH_ROWS)


def _parquet_schema(path: Path) -> pa.Schema:
    with ParquetRows.open(path) as rows:
        return rows.schema.remove_metadata()


def _csv_schema(path: Path, names: Sequence[str]) -> pa.Schema:
    with _open_csv(path, names) as reader:
        return reader.schema


def _open_csv(path: Path, names: Sequence[str], columns: Sequence[str] | None = None) -> Any:
    """Open batches of text columns, of `columns` only if given."""
    from pyarrow import csv

    convert = as_text(names)
    convert.include_columns = list(columns or ())
    return csv.open_csv(
        path,
        read_options=csv.ReadOptions(block_size=CSV_BLOCK),
        parse_options=csv.ParseOptions(newlines_in_values=True),
        convert_options=convert,
    )
