"""Parquet, whose table of contents comes last: spooled, then decoded some rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from label_dp.columnar.budget import needs
from label_dp.columnar.rows import Expands, ParquetRows
from label_dp.columnar.thrift import FineParts, LyingFile
from label_dp.errors import InvalidFile, TooLarge, Unavailable
from labels_party.labels.chunks import Chunk
from labels_party.labels.formats.columns import SHOWN, check_schema
from labels_party.labels.formats.source import ColumnSelection, Source, table_need
from labels_party.labels.spool import Spool

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_AT_ONCE = 1 << 13
MOST_AT_ONCE = 1 << 27  # bytes that the fewest rows may take, with their pages
DECODED_FLOOR, DECODED_RATIO = 1 << 26, 16  # ids differ, so an honest file hardly shrinks by more than this
BAD = f"{SHOWN.capitalize()} is not a complete, undamaged Parquet file."


def read_parquet(source: Source, selection: ColumnSelection) -> Iterator[Chunk]:
    """Yield chunks of the rows; a large file is spooled to the folder, encrypted. Raises InvalidFile, InvalidTable,
    TooLarge, Unavailable (no room to spool)."""

    def columns(schema: pa.Schema) -> Sequence[str]:
        among = selection.among(schema.names)
        check_schema(schema, among)
        return among.fields

    for table in read_tables(source, selection.folder, columns):
        yield Chunk(table, table.num_rows)


def read_tables(source: Source, folder: Path, columns: Callable[[pa.Schema], Sequence[str]]) -> Iterator[pa.Table]:
    """Yield the rows some at a time, of the columns that `columns` selects of the file's. Raises as `read_parquet`, and
    errors of `columns`."""
    with Spool(folder) as spool:
        try:
            while more := source.read():
                spool.add(more)
        except OSError as error:
            raise Unavailable(f"The upload cannot be kept meanwhile ({error.strerror}); nothing was stored.") from None
        if not spool.size():
            raise InvalidFile(f"{SHOWN.capitalize()} is empty; expected a Parquet file.")
        yield from _decoded(spool, columns)


def _decoded(spool: Spool, columns: Callable[[pa.Schema], Sequence[str]]) -> Iterator[pa.Table]:
    import pyarrow as pa

    most = DECODED_FLOOR + DECODED_RATIO * spool.size()
    try:
        with ParquetRows.open(cast("BinaryIO", spool), once=MOST_AT_ONCE) as rows:
            names = columns(rows.schema)
            needs(table_need(rows.most(names)))
            yield from rows.tables(names, most=most, most_rows=ROWS_AT_ONCE)
    except Expands as error:
        raise TooLarge(f"{SHOWN.capitalize()} is too large: {error}. Send it in smaller parts.") from None
    except FineParts as error:
        raise InvalidFile(f"{SHOWN.capitalize()} cannot be read: {error}.") from None
    except (pa.ArrowException, OSError, UnicodeDecodeError, LyingFile):
        raise InvalidFile(BAD) from None
