"""Rows on their way to those of the same id: cut into parts by the hash of their id, each part one block of bytes.

An engine that moves blocks moves few rows, so a row costs it next to nothing, however many columns it has.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from label_dp.columnar.tables import canonical_ids
from label_dp.errors import InvalidRows
from label_dp.spark.task import TaskFailed

if TYPE_CHECKING:
    import pyarrow as pa

FEATURES, MESSAGES, REFUSED = 0, 1, 2  # kinds of blocks
BLOCK = {"part": "int", "kind": "int", "block": "binary"}
HASH, ID = "label_dp_hash", "label_dp_id"  # int64, and the id in its one spelling, beside the columns of a row
WAITING_BYTES = 1 << 26


@dataclass(frozen=True)
class Blocks:
    """Picklable. Batches have HASH last; `id_column` is turned into ID. Rows of a refused id become a count of them."""

    kind: int
    id_column: str
    parts: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Raises TaskFailed, whose text names the type of an error alone: others quote what was read."""
        waiting: list[pa.RecordBatch] = []
        refused = 0
        try:
            for batch in batches:
                try:
                    ids = canonical_ids(batch.column(self.id_column), self.id_column)
                except InvalidRows as error:
                    refused += error.total
                    continue
                if batch.num_rows:
                    waiting.append(batch.append_column(ID, ids))
                if sum(one.nbytes for one in waiting) > WAITING_BYTES:
                    yield self._cut(waiting)
                    waiting = []
            if waiting:
                yield self._cut(waiting)
        except Exception as error:
            raise TaskFailed(type(error).__name__) from None
        if refused:
            yield _rows([0], [REFUSED], [np.array([refused], "<i8").tobytes()])

    def _cut(self, waiting: list[pa.RecordBatch]) -> pa.RecordBatch:
        import pyarrow as pa

        rows = pa.Table.from_batches(waiting)
        part = part_of(rows[HASH].to_numpy(), self.parts)
        order = np.argsort(part, kind="stable")
        rows = rows.take(pa.array(order)).combine_chunks()
        present, first = np.unique(part[order], return_index=True)
        ends = [*first[1:].tolist(), len(order)]
        pieces = [rows.slice(a, b - a) for a, b in zip(first.tolist(), ends, strict=True)]
        return _rows(present.tolist(), [self.kind] * len(pieces), [packed(piece) for piece in pieces])


def part_of(hashes: npt.NDArray[np.int64], parts: int) -> npt.NDArray[np.int64]:
    """int64[n] from 0 to parts − 1."""
    return np.asarray(hashes % parts, np.int64)


def unpacked(blocks: list[bytes]) -> pa.Table:
    """The rows of blocks of one kind, one after the other."""
    import pyarrow as pa

    return pa.concat_tables([pa.ipc.open_stream(pa.py_buffer(block)).read_all() for block in blocks])


def packed(rows: pa.Table) -> bytes:
    """Inverse of `unpacked`, of one block."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())


def _rows(*columns: list[object]) -> pa.RecordBatch:
    import pyarrow as pa

    kinds = {"int": pa.int32(), "binary": pa.binary()}
    fields = [pa.field(name, kinds[kind]) for name, kind in BLOCK.items()]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, fields, strict=True)]
    return pa.record_batch(arrays, schema=pa.schema(fields))
