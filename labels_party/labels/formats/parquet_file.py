"""Parquet, whose table of contents comes last: spooled, then decoded some rows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from labels_party.labels.chunks import Chunk
from labels_party.labels.formats.columns import SHOWN, check_schema
from labels_party.labels.formats.parquet_guard import check_claims
from labels_party.labels.formats.source import BLOCK, Source
from labels_party.labels.formats.spool import Spool
from labels_party.labels.parsing import NUMERIC
from shared.errors import InvalidFile, TooLarge, Unavailable
from shared.message.thrift import LyingFile

ROWS_AT_ONCE = 1 << 13  # a dictionary page makes many long values of a few bytes
CHUNK_BYTES = 1 << 22
DECODED_FLOOR, DECODED_RATIO = 1 << 26, 16  # ids differ, so an honest file hardly shrinks by more than this
BAD = f"{SHOWN.capitalize()} is not a complete, undamaged Parquet file."


def read_parquet(
    source: Source, fields: tuple[str, ...], folder: Path, *, nulls: bool = False, numeric: tuple[str, ...] = NUMERIC
) -> Iterator[Chunk]:
    """Chunks of the rows; a large file waits in `folder`, encrypted. Raises InvalidFile, InvalidTable, TooLarge,
    Unavailable (no room to spool)."""
    del nulls
    with Spool(folder) as spool:
        try:
            while more := source.read():
                spool.add(more)
        except OSError as error:
            raise Unavailable(f"The upload cannot be kept meanwhile ({error.strerror}); nothing was stored.") from None
        if not spool.size():
            raise InvalidFile(f"{SHOWN.capitalize()} is empty; expected a Parquet file.")
        yield from _decoded(spool, fields, numeric)


def _decoded(spool: Spool, fields: tuple[str, ...], numeric: tuple[str, ...]) -> Iterator[Chunk]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    most, decoded = DECODED_FLOOR + DECODED_RATIO * spool.size(), 0
    try:
        check_claims(cast("BinaryIO", spool), most)
        file = pq.ParquetFile(spool, buffer_size=BLOCK, pre_buffer=False)
        check_schema(file.schema_arrow, fields, numeric)
        waiting: list[pa.RecordBatch] = []
        for found in file.iter_batches(batch_size=ROWS_AT_ONCE, columns=list(fields), use_threads=False):
            found.validate(full=True)  # Parquet readers take any bytes for text
            waiting.append(found)
            decoded += sum(_plain_bytes(column) for column in found.columns)
            if decoded > most:
                raise TooLarge(f"{SHOWN.capitalize()} decodes to more than {most} bytes; send it in smaller parts.")
            if sum(batch.nbytes for batch in waiting) >= CHUNK_BYTES:
                yield _chunk(waiting)
                waiting = []
        if waiting:
            yield _chunk(waiting)
    except (pa.ArrowException, OSError, UnicodeDecodeError, LyingFile):
        raise InvalidFile(BAD) from None


def _plain_bytes(column: Any) -> int:
    """How large a column is without its dictionary."""
    import pyarrow as pa
    import pyarrow.compute as pc

    values = getattr(column, "dictionary", None)
    if values is None or not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
        return int(column.nbytes)
    return int(pc.sum(pc.take(pc.binary_length(values), column.indices)).as_py() or 0)


def _chunk(batches: list[object]) -> Chunk:
    import pyarrow as pa

    table = pa.Table.from_batches(batches).unify_dictionaries().combine_chunks()
    return Chunk(table, table.num_rows)
