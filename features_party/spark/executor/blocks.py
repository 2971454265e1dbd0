"""Ids on their way to the same ids of the other side: each with the place of its row, cut into parts by the hash of the
id, each part one block of bytes.

An engine that moves blocks moves few rows, and the columns of features never leave the task that reads them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from features_party.tables.buckets import IdHash
from label_dp.columnar.parts import TableParts
from label_dp.columnar.tables import canonical_ids
from label_dp.errors import InvalidRows
from label_dp.spark.task import attempt, rows_of
from label_dp.store.table_addresses import file_part
from label_dp.store.table_files import table_at

if TYPE_CHECKING:
    import pyarrow as pa

IntArray = npt.NDArray[np.int64]
FEATURES, MESSAGES, MATCHES, COUNTS = range(4)  # kinds of blocks
BLOCK = {"part": "int", "kind": "int", "block": "binary"}
ID, AT = "id", "at"
ROW_BITS = 40  # of 63 of a place among the features; the upper ones are the number of the piece
WAITING_ROWS = 1 << 20


@dataclass(frozen=True)
class Piece:
    """Picklable: row groups of a Parquet file, `rows` rows from its row `start` on; `values` of columns that the file
    lacks, `message` the number of the message whose rows they are."""

    address: str
    groups: range
    start: int
    rows: int
    values: Mapping[str, pa.Scalar] = field(default_factory=dict)
    message: int = -1

    def tables(self, schema: pa.Schema, columns: list[str]) -> Iterator[pa.Table]:
        """Yield the rows in order, some 10⁵ at a time. Raises InvalidFile, InvalidTable, Unavailable."""
        table = table_at(self.address)
        part = file_part(table) if isinstance(table, Path) else table.parts[0]
        part = replace(part, values=self.values, groups=self.groups)
        return TableParts(self.address, (part,), schema).tables(columns)


@dataclass(frozen=True)
class Blocks:
    """Picklable; from numbers of pieces to blocks of ID and AT: of features the row's place, of messages the output by
    `LabelColumns.index`, which is the bin after `starts`. Rows of a refused id become a count of them."""

    pieces: tuple[Piece, ...]
    schema: pa.Schema
    id_column: str
    starts: IntArray
    hashed: IdHash
    parts: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with attempt():
            for (number,) in rows_of(batches):
                yield from self._of(number)

    def _of(self, number: int) -> Iterator[pa.RecordBatch]:
        kind = FEATURES if self.pieces[number].message < 0 else MESSAGES
        waiting: list[tuple[pa.Array, IntArray]] = []
        for column, at in self._rows(number):
            try:
                waiting.append((canonical_ids(column, self.id_column), at))
            except InvalidRows as error:
                refusal = {"refused": error.total, "refused_at": int(at[error.problems[0].row])}
                yield block_rows([0], COUNTS, [json.dumps(refusal).encode()])
            if sum(len(one) for _, one in waiting) >= WAITING_ROWS:
                yield self._cut(kind, waiting)
                waiting = []
        if waiting:
            yield self._cut(kind, waiting)

    def _rows(self, number: int) -> Iterator[tuple[pa.ChunkedArray, IntArray]]:
        import pyarrow as pa

        piece, row = self.pieces[number], number << ROW_BITS
        if piece.message < 0:
            for table in piece.tables(self.schema, [self.id_column]):
                yield table[self.id_column], np.arange(row, row + table.num_rows)
                row += table.num_rows
            return
        schema = pa.schema([("example_id", pa.string()), ("bin", pa.int64())])
        for table in piece.tables(schema, schema.names):
            yield table["example_id"], self.starts[piece.message] + table["bin"].to_numpy()

    def _cut(self, kind: int, waiting: list[tuple[pa.Array, IntArray]]) -> pa.RecordBatch:
        import pyarrow as pa

        ids = pa.concat_arrays([ids.cast(pa.large_string()) for ids, _ in waiting])
        part = (self.hashed.draws(ids) % np.uint64(self.parts)).astype(np.uint16)
        order = np.argsort(part, kind="stable")
        rows = pa.table({ID: ids, AT: np.concatenate([at for _, at in waiting])}).take(pa.array(order))
        present, pieces = runs(part[order])
        return block_rows(present.tolist(), kind, [packed(rows.slice(a, b - a)) for a, b in pieces])


def runs(rising: npt.NDArray[np.integer]) -> tuple[npt.NDArray[np.integer], list[tuple[int, int]]]:
    """Return the values that are present, and where each begins and ends."""
    cuts = np.flatnonzero(np.diff(rising, prepend=rising[:1] - 1, append=rising[-1:] + 1))
    return rising[cuts[:-1]], list(pairwise(cuts.tolist()))


def sum_counts(blocks: list[bytes]) -> dict[str, int]:
    """Add up blocks of COUNTS; of places the first counts."""
    counts = [json.loads(block) for block in blocks]
    names = {name for one in counts for name in one}
    return {n: (min if n.endswith("_at") else sum)(one[n] for one in counts if n in one) for n in names}


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


def block_rows(parts: list[int], kind: int, blocks: list[bytes]) -> pa.RecordBatch:
    """Return blocks of one kind as rows of BLOCK."""
    import pyarrow as pa

    columns = [pa.array(parts, pa.int32()), pa.array([kind] * len(parts), pa.int32()), pa.array(blocks, pa.binary())]
    return pa.record_batch(columns, names=list(BLOCK))
