"""One part of a join: the rows of features and messages whose ids have hashes of that part meet, and are one file."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from features_party.spark.executor.blocks import BLOCK, FEATURES, HASH, ID, MESSAGES, REFUSED, unpacked
from features_party.tables.label_columns import LabelColumns
from features_party.tables.output import TableWriter
from label_dp.spark.task import TaskFailed, as_batch

if TYPE_CHECKING:
    import pyarrow as pa

IntArray = npt.NDArray[np.int64]
MESSAGE, BIN = "label_dp_message", "label_dp_bin"
# of a training: the output by `LabelColumns.index`, the example's number in its file, and whether it is its first row
OUTPUT, EXAMPLE, FIRST = "label_dp_output", "label_dp_example", "label_dp_first"


@dataclass(frozen=True)
class Meeting:
    """Picklable; called with the blocks of one part. It writes the features' columns, those of `labels` or, `bare`,
    OUTPUT, EXAMPLE, FIRST and HASH beside them; examples in the order of their hashes, outputs of one in that of the
    messages."""

    id_column: str
    labels: LabelColumns
    folder: str
    bare: bool = False
    columns: ClassVar[dict[str, str]] = dict.fromkeys(
        ("part", "refused", "repeated", "feature_rows", "message_rows", "matched", "examples", "alone", "several"),
        "long",
    ) | {"name": "string", "outputs": "binary"}

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Raises TaskFailed."""
        blocks: dict[int, list[bytes]] = {FEATURES: [], MESSAGES: [], REFUSED: []}
        number = 0
        try:
            for batch in batches:
                for part, kind, block in zip(*(batch[name].to_pylist() for name in BLOCK), strict=True):
                    blocks[kind].append(block)
                    number = part
            if any(blocks.values()):
                yield as_batch({"part": number} | self._met(blocks), self.columns)
        except Exception as error:
            raise TaskFailed(type(error).__name__) from None

    def _met(self, blocks: dict[int, list[bytes]]) -> dict[str, Any]:
        import pyarrow as pa
        import pyarrow.compute as pc

        refused = int(sum(np.frombuffer(block, "<i8").sum() for block in blocks[REFUSED]))
        features = unpacked(blocks[FEATURES]) if blocks[FEATURES] else None
        messages = unpacked(blocks[MESSAGES]) if blocks[MESSAGES] else None
        record: dict[str, Any] = {"refused": refused, "feature_rows": _rows(features), "message_rows": _rows(messages)}
        if features is None or messages is None:
            if features is not None:
                record["repeated"] = features.num_rows - pc.count_distinct(features[ID]).as_py()
            return record | {"alone": 0 if messages is None else pc.count_distinct(messages[ID]).as_py()}
        # whichever task sent its block first, the file is the same
        features = features.take(pa.array(np.argsort(features[HASH].to_numpy(), kind="stable")))
        ids = features[ID].combine_chunks()
        record["repeated"] = len(ids) - pc.count_distinct(ids).as_py()
        found = pc.index_in(messages[ID].combine_chunks(), value_set=ids)
        here = np.asarray(pc.is_valid(found).to_numpy(zero_copy_only=False), bool)
        position = np.asarray(found.drop_null().to_numpy(), np.int64)
        message, bins = (messages[name].to_numpy()[here] for name in (MESSAGE, BIN))
        order = np.lexsort((message, position)) if len(self.labels.releases) > 1 else np.argsort(position)
        position, message = position[order], message[order]
        index = self.labels.index(message, bins[order])
        first = np.flatnonzero(np.diff(position, prepend=-1))
        record |= {"matched": len(position), "examples": len(first)}
        record["several"] = int(np.count_nonzero(np.diff(first, append=len(position)) > 1))
        record["alone"] = pc.count_distinct(messages[ID].filter(pa.array(~here))).as_py()
        if len(position):
            record["outputs"] = self._counted(index, first)
            record["name"] = self._write(features, position, message, index)
        return record

    def _counted(self, index: IntArray, first: IntArray) -> bytes:
        """Of a training, how often which outputs come together: int64[u, w + 1], ABSENT where there are fewer than w,
        the count last."""
        if not self.bare:
            return b""
        often = np.diff(first, append=len(index))
        together = np.full((len(first), int(often.max())), -1, np.int64)
        row = np.repeat(np.arange(len(first)), often)
        together[row, np.arange(len(index)) - first[row]] = index
        sets, counts = np.unique(together, axis=0, return_counts=True)
        return np.column_stack([sets, counts]).astype("<i8").tobytes() + bytes([together.shape[1]])

    def _write(self, features: pa.Table, position: IntArray, message: npt.NDArray[Any], index: IntArray) -> str:
        import pyarrow as pa

        rows = features.drop_columns([ID] if self.bare else [ID, HASH])
        if not np.array_equal(position, np.arange(rows.num_rows)):
            rows = rows.take(pa.array(position))
        if self.bare:
            rows = rows.drop_columns([self.id_column])
            added = {OUTPUT: pa.array(index.astype(np.int32)), EXAMPLE: pa.array(position.astype(np.int32))}
            added[FIRST] = pa.array(np.diff(position, prepend=-1) != 0)
        else:
            added = self.labels.columns(message, index)
        for name, column in added.items():
            rows = rows.append_column(name, column)
        name = f"part-{secrets.token_hex(8)}.parquet"
        writer = TableWriter(Path(self.folder, name), rows.schema, csv=False)
        try:
            writer.write(rows)
        finally:
            writer.close()
        return name


def _rows(table: pa.Table | None) -> int:
    return 0 if table is None else int(table.num_rows)
