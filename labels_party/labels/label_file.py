"""Ids, labels or units, read in chunks: a local file, Parquet or CSV, recognised by content, or a table in parts or in
memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from label_dp.ahead import ahead
from label_dp.columnar.csv_text import with_lines
from label_dp.columnar.parts import TableParts, TablePath
from label_dp.columnar.rows import Expands, ParquetRows, table_bytes
from label_dp.columnar.tables import PARQUET_MAGIC, damaged, refuse_pipe, require_columns, unreadable
from label_dp.columnar.thrift import LyingFile
from label_dp.errors import InvalidFile, InvalidRows
from labels_party.labels.chunks import CHUNK_ROWS

if TYPE_CHECKING:
    import pyarrow as pa

CSV_BLOCK = 1 << 22


@dataclass(frozen=True)
class LabelFile:
    """File to read: `columns` in order, ids first; every column of a CSV stays text. `rows` and `id_bytes`
    (approximate size of the ids) are known for Parquet only. `table`: rows in memory, in place of a file."""

    path: TablePath
    columns: tuple[str, ...]
    rows: int | None
    id_bytes: int | None
    csv: bool
    table: pa.Table | None = None

    @classmethod
    def open(cls, path: TablePath, columns: Iterable[str], *, names_are_public: bool = False) -> LabelFile:
        """Read the file's head. Raises InvalidFile (unreadable, empty), InvalidTable (a column is missing).

        Without `names_are_public` an error names the file's columns only if a requested one is there: without a header
        they are its first row.
        """
        import pyarrow as pa

        requested = tuple(dict.fromkeys(columns))
        if isinstance(path, TableParts):
            require_columns(path.schema.names, requested, str(path), names_are_public or not path.csv, csv=path.csv)
            return cls(path, requested, path.rows, None if path.rows is None else path.size, path.csv)
        refuse_pipe(path)
        try:
            with path.open("rb") as file:
                magic = file.read(4)
            if not magic:
                raise InvalidFile(f"'{path}' is empty; expected a Parquet or CSV file with a header.")
            csv = magic != PARQUET_MAGIC
            rows, size, names = (None, None, _csv_names(path)) if csv else _parquet_head(path, requested[0])
        except (pa.ArrowException, UnicodeDecodeError) as error:
            raise unreadable(path, error) from None
        except (OSError, LyingFile, Expands) as error:
            raise broken(path, error) from None
        require_columns(names, requested, str(path), names_are_public, csv=csv)
        return cls(path, requested, rows, size, csv)

    @classmethod
    def of(cls, source: TablePath | pa.Table, columns: Iterable[str], *, names_are_public: bool = False) -> LabelFile:
        """Open a file or parts, or take a table in memory. Raises as `open`."""
        if isinstance(source, Path | TableParts):
            return cls.open(source, columns, names_are_public=names_are_public)
        requested = tuple(dict.fromkeys(columns))
        require_columns(source.column_names, requested, "the table", True)
        rows = source.select(requested)
        return cls(Path("the table"), requested, rows.num_rows, rows[requested[0]].nbytes, False, rows)

    def chunks(self) -> Iterator[pa.Table]:
        """Yield the rows in file order, read ahead by a thread. Raises InvalidFile."""
        import pyarrow as pa

        if self.table is not None:
            yield from (self.table.slice(at, CHUNK_ROWS) for at in range(0, self.table.num_rows, CHUNK_ROWS))
            return
        if isinstance(self.path, TableParts):
            yield from ahead(self.path.tables(self.columns, most_rows=CHUNK_ROWS, nulls=False))
            return
        try:
            yield from ahead(self._csv_chunks(self.path) if self.csv else self._parquet_chunks(self.path))
        except (pa.ArrowException, UnicodeDecodeError) as error:
            raise unreadable(self.path, error) from None
        except (OSError, LyingFile, Expands) as error:
            raise broken(self.path, error) from None

    def with_places(self, error: InvalidRows) -> InvalidRows:
        """Add to refused rows their lines, or their files."""
        return self.path.placed(error) if isinstance(self.path, TableParts) else with_lines(error, self.path)

    def _parquet_chunks(self, path: Path) -> Iterator[pa.Table]:
        with ParquetRows.open(path) as rows:
            yield from rows.tables(self.columns, most=table_bytes(rows.claims.size), most_rows=CHUNK_ROWS)

    def _csv_chunks(self, path: Path) -> Iterator[pa.Table]:
        import pyarrow as pa
        from pyarrow import csv

        # only text is wanted, so "NA" and "null" are text: an id may be spelled so
        convert = csv.ConvertOptions(
            column_types={name: pa.string() for name in self.columns},
            include_columns=list(self.columns),
            strings_can_be_null=False,
            quoted_strings_can_be_null=False,
        )
        with csv.open_csv(
            path,
            read_options=csv.ReadOptions(block_size=CSV_BLOCK),
            parse_options=csv.ParseOptions(newlines_in_values=True),
            convert_options=convert,
        ) as reader:
            for batch in reader:
                yield pa.Table.from_batches([batch])


def broken(path: Path, error: Exception) -> InvalidFile:
    """Return the error for a Parquet file that cannot be read to its end."""
    if isinstance(error, Expands):
        return InvalidFile(f"'{path}' is too large: {error}. Write it in smaller parts.")
    if isinstance(error, OSError) and error.errno is not None:
        return InvalidFile(f"'{path}' cannot be read ({error.strerror}).")
    return damaged(str(path), error)


def _parquet_head(path: Path, ids: str) -> tuple[int, int | None, list[str]]:
    """Return rows, size of the column `ids` in bytes according to the file, and column names."""
    with ParquetRows.open(path) as rows:
        about = rows.file.metadata
        place = next((i for i in range(about.num_columns) if about.schema.column(i).path == ids), None)
        groups = [] if place is None else [about.row_group(i).column(place) for i in range(about.num_row_groups)]
        size = None if place is None else sum(group.total_uncompressed_size for group in groups)
        return rows.claims.rows, size, list(rows.schema.names)


def _csv_names(path: Path) -> list[str]:
    from pyarrow import csv

    with csv.open_csv(path, parse_options=csv.ParseOptions(newlines_in_values=True)) as reader:
        return list(reader.schema.names)
