"""Tables as files, Parquet or CSV by suffix: complete or absent, never over another file without --force."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from label_dp.errors import InvalidFile
from label_dp.store.output_files import replacing, writable
from label_dp.store.table_addresses import TableAddress
from label_dp.store.table_files import commit, require_place

if TYPE_CHECKING:
    import pyarrow as pa

ROW_GROUP = 1 << 17


class TableWriter:
    """Writer of a table of one `schema`, piece by piece; dictionary columns are written out in a CSV."""

    def __init__(self, path: Path, schema: pa.Schema, *, csv: bool) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq
        from pyarrow import csv as arrow_csv

        self._csv = csv
        self._schema = schema
        self._file = path.open("wb")
        try:
            if csv:
                self._schema = pa.schema([field.with_type(_plain(field.type)) for field in schema])
                self._writer: Any = arrow_csv.CSVWriter(self._file, self._schema)
            else:
                # looking for repeated numbers costs four times as much as writing them
                texts = [f.name for f in schema if pa.types.is_dictionary(f.type) or _is_text(f.type)]
                self._writer = pq.ParquetWriter(self._file, schema, compression="zstd", use_dictionary=texts)
        except BaseException:
            self._file.close()
            raise

    def write(self, table: pa.Table) -> None:
        if self._csv:
            self._writer.write_table(table.cast(self._schema))
        else:
            self._writer.write_table(table, row_group_size=ROW_GROUP)

    def close(self) -> None:
        try:
            self._writer.close()
        finally:
            self._file.close()


@contextmanager
def writing(
    path: Path | TableAddress,
    schema: pa.Schema,
    *,
    force: bool = False,
    properties: Mapping[str, str] = MappingProxyType({}),
    spill: Path | None = None,
) -> Iterator[TableWriter]:
    """Yield a writer to a temporary file that is renamed to `path` if the body succeeds; for a place that is no file
    here, one in `spill`, whose rows are one commit there, with `properties`.

    Raises InvalidInput (`path` exists and not `force`, or has no folder), InvalidFile (it cannot be written, or a CSV
    cannot hold a column), Conflict (a lake table has the rows) and Unavailable (the store fails)."""
    import pyarrow as pa

    if isinstance(path, TableAddress):
        require_place(path, schema, properties, force)
        with TemporaryDirectory(dir=spill) as folder:
            file = Path(folder) / "rows.parquet"
            with writing(file, schema, properties=properties) as writer:
                yield writer
            commit(path, file, properties, force)
        return
    with replacing(path, force) as temporary:
        try:
            described = schema.with_metadata(dict(properties)) if properties else schema
            writer = TableWriter(temporary, described, csv=is_csv(path))
            try:
                yield writer
            finally:
                writer.close()
        except pa.ArrowException:
            raise _cannot_hold(path, schema) from None


def is_csv(path: Path | TableAddress) -> bool:
    """Return whether a table is written as CSV."""
    return isinstance(path, Path) and path.suffix.lower() == ".csv"


def writable_table(path: Path | TableAddress, force: bool) -> None:
    """Refuse a place that is taken, before long work. Raises as `writing`."""
    if isinstance(path, Path):
        writable(path, force)
    else:
        require_place(path, None, {}, force)


def _cannot_hold(path: Path, schema: pa.Schema) -> InvalidFile:
    """Return the error for columns that this kind of file cannot hold, by name and type."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyarrow import csv as arrow_csv

    csv, odd = path.suffix.lower() == ".csv", []
    for field in schema:
        table = pa.schema([field.with_type(_plain(field.type)) if csv else field]).empty_table()
        try:
            (arrow_csv.write_csv if csv else pq.write_table)(table, pa.BufferOutputStream())
        except pa.ArrowException:
            odd.append(f"'{field.name}' ({field.type})")
    named = f"the column{'s' * (len(odd) > 1)} {', '.join(odd[:20])}" if odd else "these columns"
    what = "write to a .parquet file instead" if csv else "leave them out, or give them another type"
    return InvalidFile(f"'{path}' cannot hold {named}; {what}.")


def write_table(table: pa.Table, path: Path, *, force: bool = False) -> None:
    """Write a whole table. Raises as `writing`."""
    with writing(path, table.schema, force=force) as writer:
        writer.write(table)


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _plain(kind: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    return kind.value_type if pa.types.is_dictionary(kind) else kind
