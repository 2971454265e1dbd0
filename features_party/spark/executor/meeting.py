"""Two steps of a join: the ids of one part meet, and the features of one piece are written with the outputs that their
ids met."""

from __future__ import annotations

import json
import secrets
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from features_party.spark.executor import blocks
from features_party.tables.buckets import IdHash
from features_party.tables.label_columns import LabelColumns
from features_party.tables.output import TableWriter
from label_dp.columnar.tables import canonical_ids
from label_dp.spark.task import as_batch, attempt, rows_of

if TYPE_CHECKING:
    import pyarrow as pa

# of a training: the output by `LabelColumns.index`, the example's number in its file, whether it is its first row, and
# the draw of its id
OUTPUT, EXAMPLE, FIRST, HASH = "label_dp_output", "label_dp_example", "label_dp_first", "label_dp_hash"
DRAW_BITS = 62
OUTPUT_BITS = 32  # of a match in its piece; the upper ones are the row
ROWS, OUTPUTS = (1 << blocks.ROW_BITS) - 1, (1 << OUTPUT_BITS) - 1
IntArray = npt.NDArray[np.int64]


def read_blocks(batches: Iterator[pa.RecordBatch]) -> tuple[int, dict[int, list[bytes]]]:
    """Read a part's number, -1 if nothing came, and its blocks by kind."""
    got = defaultdict[int, list[bytes]](list)
    parts = {-1}
    for part, kind, block in rows_of(batches):
        got[kind].append(block)
        parts.add(part)
    return max(parts), got


@dataclass(frozen=True)
class Meeting:
    """Picklable; from the blocks of one part to blocks of MATCHES for the `pieces` of the features, and one of
    COUNTS."""

    pieces: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with attempt():
            number, got = read_blocks(batches)
            if number >= 0:
                yield from self._match(number, got)

    def _match(self, number: int, got: dict[int, list[bytes]]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        import pyarrow.compute as pc

        empty = pa.table({blocks.ID: pa.array([], pa.large_string()), blocks.AT: pa.array([], pa.int64())})
        features, messages = (
            blocks.unpacked(got[kind]) if got[kind] else empty for kind in (blocks.FEATURES, blocks.MESSAGES)
        )
        ids, others = features[blocks.ID].combine_chunks(), messages[blocks.ID].combine_chunks()
        place = features[blocks.AT].to_numpy()
        position = pc.index_in(others, value_set=ids)
        here = np.asarray(pc.is_valid(position).to_numpy(zero_copy_only=False), bool)
        alone = pc.count_distinct(others.filter(pa.array(~here))).as_py()
        counts = {"feature_rows": len(ids), "message_rows": len(others), "alone": alone}
        if pc.count_distinct(ids).as_py() < len(ids):
            often = ids.value_counts()
            twice = often.field("values").filter(pc.greater(often.field("counts"), 1))
            rows = place[pc.is_in(ids, value_set=twice).to_numpy(zero_copy_only=False)]
            counts |= {"repeated": len(rows), "repeated_at": int(rows.min())}
        count_blocks = [*got[blocks.COUNTS], json.dumps(counts).encode()]
        yield blocks.block_rows([number % self.pieces] * len(count_blocks), blocks.COUNTS, count_blocks)
        matches = place[position.drop_null().to_numpy()]
        piece = matches >> blocks.ROW_BITS
        order = np.argsort(piece, kind="stable")
        present, pieces = blocks.runs(piece[order])
        keys = ((matches & ROWS) << OUTPUT_BITS | messages[blocks.AT].to_numpy()[here])[order].astype("<i8")
        yield blocks.block_rows(present.tolist(), blocks.MATCHES, [keys[a:b].tobytes() for a, b in pieces])


@dataclass(frozen=True)
class Writing:
    """Picklable; from the matches of one piece of the features to files of their rows, each of at most `most` rows of
    the piece. They hold the features' columns and those of `labels` or, with the hash of a training's `draws`, OUTPUT,
    EXAMPLE, FIRST and HASH in place of these and the id. Rows lie in the order of the features, outputs of one example
    in that of the messages."""

    pieces: tuple[blocks.Piece, ...]
    schema: pa.Schema
    names: tuple[str, ...]
    id_column: str
    labels: LabelColumns
    folder: str
    most: int
    draws: IdHash | None = None
    columns: ClassVar[dict[str, str]] = {"name": "string", "outputs": "binary", "counts": "binary"} | dict.fromkeys(
        ("piece", "row", "matched", "examples", "several"), "long"
    )

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with attempt():
            number, got = read_blocks(batches)
            if got[blocks.COUNTS]:
                yield as_batch({"counts": json.dumps(blocks.sum_counts(got[blocks.COUNTS])).encode()}, self.columns)
            if got[blocks.MATCHES]:
                keys = np.sort(np.frombuffer(b"".join(got[blocks.MATCHES]), "<i8"))
                yield from self._files(number, keys >> OUTPUT_BITS, keys & OUTPUTS)

    def _files(self, number: int, row: IntArray, index: IntArray) -> Iterator[pa.RecordBatch]:
        """Write the matches of rising rows of the piece; yields a record of each file."""
        for begin, slices in groupby(self._slices(number), key=lambda one: one[0] // self.most * self.most):
            a, b = np.searchsorted(row, (begin, begin + self.most))
            if a < b:
                yield as_batch(self.file(number, begin, slices, row[a:b], index[a:b]), self.columns)

    def file(
        self, number: int, begin: int, slices: Iterator[tuple[int, pa.Table]], row: IntArray, index: IntArray
    ) -> dict[str, Any]:
        """Write one file of the `slices` from the row `begin` on; returns its record."""
        first = np.flatnonzero(np.diff(row, prepend=-1))
        often = np.diff(first, append=len(row))
        record: dict[str, Any] = {"piece": number, "row": begin, "matched": len(row), "examples": len(first)}
        record |= {"several": int(np.count_nonzero(often > 1)), "outputs": self._outputs(index, first, often)}
        return record | {"name": self._write(slices, row, index, begin)}

    def _slices(self, number: int) -> Iterator[tuple[int, pa.Table]]:
        """Rows of the piece, cut at the multiples of `most`."""
        start = 0
        for table in self.pieces[number].tables(self.schema, list(self.names)):
            end = start + table.num_rows
            for a, b in pairwise((start, *range(start - start % self.most + self.most, end, self.most), end)):
                yield a, table.slice(a - start, b - a)
            start = end

    def _outputs(self, index: IntArray, first: IntArray, often: IntArray) -> bytes:
        """Of a training, how often which outputs come together: int64[u, w + 1], -1 where there are fewer than w, the
        count last."""
        if self.draws is None:
            return b""
        together = np.full((len(first), int(often.max())), -1, np.int64)
        row = np.repeat(np.arange(len(first)), often)
        together[row, np.arange(len(index)) - first[row]] = index
        sets, counts = np.unique(together, axis=0, return_counts=True)
        return np.column_stack([sets, counts]).astype("<i8").tobytes() + bytes([together.shape[1]])

    def _write(self, slices: Iterator[tuple[int, pa.Table]], row: IntArray, index: IntArray, begin: int) -> str:
        name, writer = f"part-{secrets.token_hex(8)}.parquet", None
        try:
            for start, table in slices:
                a, b = np.searchsorted(row, (start, start + table.num_rows))
                if a < b:
                    rows = self._with_labels(table, row[a:b] - start, index[a:b], start - begin)
                    writer = writer or TableWriter(Path(self.folder, name), rows.schema, csv=False)
                    writer.write(rows)
        finally:
            if writer is not None:
                writer.close()
        return name

    def _with_labels(self, table: pa.Table, row: IntArray, index: IntArray, start: int) -> pa.Table:
        import pyarrow as pa

        rows = table if np.array_equal(row, np.arange(table.num_rows)) else table.take(pa.array(row))
        if self.draws is None:
            more: dict[str, Any] = self.labels.columns(self.labels.message(index), index)
        else:
            draws = self.draws.draws(canonical_ids(rows[self.id_column], self.id_column)) >> np.uint64(64 - DRAW_BITS)
            rows = rows.drop_columns([self.id_column])
            more = {OUTPUT: index.astype(np.int32), EXAMPLE: (start + row).astype(np.int32)}
            more |= {FIRST: np.diff(row, prepend=-1) != 0, HASH: draws.astype(np.int64)}
        for column, values in more.items():
            rows = rows.append_column(column, pa.array(values))
        return rows
