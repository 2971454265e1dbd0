"""Ids as numbers for a large sort, which then takes less memory and time: 8 bytes to a column, the length in the last.

Zeros fill the last bytes, and of ids that differ in zeros at the end alone the shorter is the smaller: ordering by the
columns is ordering bytewise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from labels_party.labels.batches import StaleBatch
from labels_party.labels.digests import LOADED_AFTER, id_buffers

if TYPE_CHECKING:
    import pyarrow as pa

MOST_WORDS = 5  # a UUID with its hyphens
LENGTH, MASKED = "length", "masked"


def words_for(first: pa.RecordBatch, rows: int | None) -> int:
    """How many columns of 8 bytes are worth it for `rows` like the `first`; 0 where text is as good."""
    if rows is None or rows < LOADED_AFTER or not first.num_rows:
        return 0
    offsets, _ = id_buffers(first.column(0))
    words = -(-int(np.diff(offsets).max()) // 8)
    return words if words <= MOST_WORDS else 0


def order_of(words: int) -> list[str]:
    """The columns to order by."""
    return [*(f"w{i}" for i in range(words)), LENGTH]


def packed_schema(words: int) -> pa.Schema:
    import pyarrow as pa

    numbers = [pa.field(f"w{i}", pa.uint64()) for i in range(words)]
    return pa.schema([*numbers, pa.field(LENGTH, pa.uint16()), pa.field(MASKED, pa.uint32())])


def packed(batches: Iterable[pa.RecordBatch], words: int) -> Iterator[pa.RecordBatch]:
    """(id, masked label) as numbers. Raises StaleBatch for an id that is longer than `words`."""
    import pyarrow as pa

    from labels_party.labels.kernels import pack_rows

    schema = packed_schema(words)
    for batch in batches:
        offsets, data = id_buffers(batch.column(0))
        if batch.num_rows and int(np.diff(offsets).max()) > 8 * words:
            raise StaleBatch("An id is longer than the first ones were.")
        columns, lengths = np.empty((words, batch.num_rows), np.uint64), np.empty(batch.num_rows, np.uint16)
        pack_rows(offsets, data, columns, lengths)
        yield pa.record_batch([*map(pa.array, columns), pa.array(lengths), batch.column(1)], schema=schema)


def unpacked(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Inverse of `packed`."""
    import pyarrow as pa

    from labels_party.labels.kernels import unpack_rows

    for batch in batches:
        *numbers, lengths, masked = batch.columns
        words: Any = np.stack([c.to_numpy(zero_copy_only=False) for c in numbers])
        offsets = np.zeros(batch.num_rows + 1, np.int32)
        np.cumsum(lengths.to_numpy(zero_copy_only=False), dtype=np.int32, out=offsets[1:])
        data = np.empty(int(offsets[-1]), np.uint8)
        unpack_rows(words, offsets, data)
        ids = pa.StringArray.from_buffers(batch.num_rows, pa.py_buffer(offsets), pa.py_buffer(data))
        yield pa.record_batch([ids, masked], schema=schema)
