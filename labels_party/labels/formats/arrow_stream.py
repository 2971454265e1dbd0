"""The Arrow IPC streaming format, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator

from label_dp.columnar.rows import plain_bytes
from label_dp.errors import InvalidFile, TooLarge
from labels_party.labels.chunks import Chunk
from labels_party.labels.formats.arrow_guard import BAD, LARGE, MOST_BODY, GuardedStream
from labels_party.labels.formats.columns import check_schema
from labels_party.labels.formats.source import ColumnSelection, Source


def read_arrow(source: Source, wanted: ColumnSelection) -> Iterator[Chunk]:
    """Chunks of the rows. Raises InvalidFile, InvalidTable, TooLarge."""
    import pyarrow as pa

    guarded = GuardedStream(source)
    file = pa.PythonFile(guarded, mode="r")
    try:
        with pa.ipc.open_stream(file, options=pa.ipc.IpcReadOptions(use_threads=False)) as reader:
            wanted = wanted.among(reader.schema.names)
            check_schema(reader.schema, wanted)
            for found in reader:
                batch = found.select(list(wanted.fields))
                batch.validate(full=True)
                if sum(plain_bytes(column) for column in batch.columns) > MOST_BODY:  # as text without dictionaries
                    raise TooLarge(LARGE)
                yield Chunk(pa.Table.from_batches([batch]), batch.num_rows)
    except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError):
        raise InvalidFile(BAD) from None
    guarded.drain()
