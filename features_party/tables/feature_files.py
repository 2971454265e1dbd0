"""A file of features read piece by piece, for what must not depend on its size. Column types are those of the file.

Parquet keeps its Arrow types. A CSV file has none: they are inferred from all of its rows, as when it is read whole.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from label_dp.columnar.rows import Expands, ParquetRows, table_bytes
from label_dp.columnar.tables import PARQUET_MAGIC, canonical_ids, refuse_wide, require_columns, unreadable
from label_dp.columnar.thrift import LyingFile
from label_dp.errors import InvalidFile, InvalidRows, InvalidTable, RowProblem

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 1 << 16
CSV_BLOCK = 1 << 23
_COLUMN = re.compile(r"In CSV column #(\d+): ")


@dataclass(frozen=True)
class FeatureFile:
    """n rows with an id column; `schema` has all columns in file order. The ids of a CSV stay text."""

    path: Path
    id_column: str
    schema: pa.Schema
    csv: bool

    @classmethod
    def open(cls, path: Path, id_column: str, *, text: Sequence[str] = ()) -> FeatureFile:
        """Look at the columns (for a CSV, at all rows). Raises InvalidFile, InvalidTable."""
        with _readable(path):
            with path.open("rb") as file:
                magic = file.read(4)
                if not magic:
                    raise InvalidFile(f"'{path}' is empty; expected a Parquet or CSV file with a header.")
                csv = magic != PARQUET_MAGIC
                if csv:
                    refuse_wide(file, str(path))
            schema = _csv_schema(path, [id_column, *text]) if csv else _parquet_schema(path)
        require_columns(schema.names, [id_column], str(path))
        twice = next((name for name, times in Counter(schema.names).items() if times > 1), None)
        if twice is not None:
            raise InvalidTable(f"'{path}' has more than one column '{twice}'; rename or drop one.")
        return cls(path, id_column, schema, csv)

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """The rows in file order, some 10⁵ at a time. Raises InvalidFile."""
        with _readable(self.path):
            for batch in self._csv_batches(columns) if self.csv else self._parquet_batches(columns):
                if batch.num_rows:
                    yield batch

    def ids(self) -> Iterator[pa.Array]:
        """Their canonical ids, batch by batch. Raises InvalidRows for null, empty or overlong ones, InvalidTable."""
        start = 0
        for batch in self.batches([self.id_column]):
            try:
                yield canonical_ids(batch[self.id_column], self.id_column)
            except InvalidRows as error:
                moved = [RowProblem(p.row + start, p.field, p.rule) for p in error.problems]
                raise InvalidRows(moved, error.total) from None
            start += batch.num_rows

    def id_bytes(self) -> int:
        """About how many the ids take in memory. Raises InvalidFile."""
        if self.csv:
            return self.path.stat().st_size
        with _readable(self.path), ParquetRows.open(self.path) as rows:
            return rows.decoded([self.id_column])

    def _parquet_batches(self, columns: Sequence[str] | None) -> Iterator[pa.Table]:
        with ParquetRows.open(self.path) as rows:
            yield from rows.tables(columns, most=table_bytes(rows.claims.size), most_rows=BATCH_ROWS)

    def _csv_batches(self, columns: Sequence[str] | None) -> Iterator[pa.Table]:
        import pyarrow as pa

        types = {field.name: field.type for field in self.schema}
        for batch in _open_csv(self.path, types, columns):
            yield pa.Table.from_batches([batch])


def first_column(path: Path) -> str:
    """The name of a file's first column. Raises InvalidFile."""
    with _readable(path):
        with path.open("rb") as file:
            if file.read(4) == PARQUET_MAGIC:
                return str(_parquet_schema(path).names[0])
        with _open_csv(path, {}) as reader:
            return str(reader.schema.names[0])


def decoded_bytes(path: Path) -> int:
    """About how much memory the whole file takes once it is read: for Parquet by its pages, for CSV its size."""
    with _readable(path):
        with path.open("rb") as file:
            if file.read(4) != PARQUET_MAGIC:
                return path.stat().st_size
        with ParquetRows.open(path) as rows:
            return rows.decoded()


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, UnicodeDecodeError) as error:
        # Arrow quotes cell values in its texts, so they are not passed on
        raise unreadable(path, error) from None
    except Expands as error:
        raise InvalidFile(f"'{path}' is too large: {error}. Write it in smaller parts.") from None
    except (OSError, LyingFile) as error:
        reason = getattr(error, "strerror", None) or "it is truncated or damaged"
        raise InvalidFile(f"'{path}' cannot be read ({reason}).") from None


def _parquet_schema(path: Path) -> pa.Schema:
    with ParquetRows.open(path) as rows:
        return rows.schema.remove_metadata()


def _csv_schema(path: Path, text: Sequence[str]) -> pa.Schema:
    """Names and types by Arrow's order of inference; a type that some later row breaks gives way to the next one."""
    import pyarrow as pa

    order = [pa.null(), pa.int64(), pa.bool_(), pa.date32(), pa.time32("s"), pa.timestamp("s"), pa.timestamp("ns")]
    order += [pa.timestamp("s", "UTC"), pa.timestamp("ns", "UTC"), pa.float64(), pa.string()]
    with _open_csv(path, dict.fromkeys(text, pa.string())) as reader:
        first = reader.schema
    types = {field.name: field.type for field in first}
    while True:
        try:
            with _open_csv(path, types) as reader:
                for _ in reader:
                    pass
                return reader.schema
        except pa.ArrowInvalid as error:
            found = _COLUMN.search(str(error))
            if found is None:
                raise
            field = first.field(int(found[1]))
            current = types[field.name]
            if pa.types.is_string(current):
                raise
            types[field.name] = order[order.index(current) + 1] if current in order else pa.string()


def _open_csv(path: Path, types: dict[str, Any], columns: Sequence[str] | None = None) -> Any:
    from pyarrow import csv

    return csv.open_csv(
        path,
        read_options=csv.ReadOptions(block_size=CSV_BLOCK),
        parse_options=csv.ParseOptions(newlines_in_values=True),
        convert_options=csv.ConvertOptions(
            column_types=types,
            include_columns=list(columns) if columns is not None else None,
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
