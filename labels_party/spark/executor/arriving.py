"""Labels on their way in: checked, turned into positions and encrypted before anything of them leaves the task.

What goes on is blocks: the ids of one range, and their encrypted labels, as few rows of bytes. Ranges split no id.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from label_dp.domain import Domain
from label_dp.errors import InvalidRows, InvalidTable
from label_dp.spark.task import TaskFailed
from labels_party.labels.ciphered import disclosed, enclosed
from labels_party.labels.digests import id_buffers
from labels_party.labels.parsing import canonical_column, positions_of, prefixed

if TYPE_CHECKING:
    import pyarrow as pa

LABELLED, LISTED, REFUSED = 0, 1, 2  # kinds of blocks
BLOCK = {"part": "int", "kind": "int", "lengths": "binary", "text": "binary", "labels": "binary"}
PLACE = "block"


@dataclass(frozen=True)
class ArrivalRules:
    """What a row must be. `label_field` None: a list of ids alone."""

    id_field: str
    label_field: str | None
    domain: Domain
    out_of_domain: str
    id_prefix: str | None = None

    def read(self, rows: pa.RecordBatch) -> tuple[pa.Array, npt.NDArray[np.int64]]:
        """Ids in their one spelling and positions int64[n], zeros of a list. Raises InvalidRows, InvalidTable."""
        ids = prefixed(canonical_column(rows.column(0), self.id_field), self.id_prefix, self.id_field)
        if self.label_field is None:
            return ids, np.zeros(len(ids), np.int64)
        return ids, positions_of(rows.column(1), self.domain, self.out_of_domain, self.label_field)


@dataclass(frozen=True, eq=False)
class ArrivingRows:
    """Picklable; from batches (id, label) to blocks. `bounds` bytes[ranges − 1] rise; none ends in a zero byte."""

    rules: ArrivalRules
    key: bytes = field(repr=False)
    bounds: npt.NDArray[np.bytes_]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Raises TaskFailed, whose text names the type of an error alone: others quote what was read."""
        kind, refused = (LISTED if self.rules.label_field is None else LABELLED), 0
        try:
            for batch in batches:
                try:
                    ids, index = self.rules.read(batch)
                except InvalidRows as error:
                    refused += error.total
                except InvalidTable:
                    refused += max(1, batch.num_rows)
                else:
                    if not refused and len(ids):
                        yield self._blocks(kind, ids, index)
        except Exception as error:
            raise TaskFailed(type(error).__name__) from None
        if refused:
            yield _rows([0], [REFUSED], [np.array([refused], "<i8").tobytes()], [b""], [b""])

    def _blocks(self, kind: int, ids: pa.Array, index: npt.NDArray[np.int64]) -> pa.RecordBatch:
        import pyarrow as pa

        part = ranges_of(ids, self.bounds)
        order = np.argsort(part, kind="stable")
        ids = ids.take(pa.array(order))
        present, first = np.unique(part[order], return_index=True)
        ends = [*first[1:].tolist(), len(order)]
        offsets, data = id_buffers(ids)
        lengths, labels = np.diff(offsets).astype("<u2"), index[order].astype("<u4")
        pieces = list(zip(first.tolist(), ends, strict=True))
        return _rows(
            present.tolist(),
            [kind] * len(pieces),
            [lengths[a:b].tobytes() for a, b in pieces],
            [data[offsets[a] : offsets[b]].tobytes() for a, b in pieces],
            [enclosed(self.key, labels[a:b].tobytes(), PLACE) for a, b in pieces]
            if kind == LABELLED
            else [b""] * len(pieces),
        )


def labels_of(block: bytes, key: bytes) -> npt.NDArray[np.uint32]:
    """Domain positions uint32[m] of a block. Raises DamagedObject."""
    return np.frombuffer(disclosed(key, block, PLACE), "<u4")


def ranges_of(ids: pa.Array, bounds: npt.NDArray[np.bytes_]) -> npt.NDArray[np.uint16]:
    """uint16[n]: in which of the ranges between `bounds` each id lies, in bytewise order; a bound begins its range."""
    if not bounds.size:
        return np.zeros(len(ids), np.uint16)
    width = bounds.dtype.itemsize  # an id is not below a bound where its first bytes are not
    offsets, data = id_buffers(ids)
    first, lengths = offsets[:-1].astype(np.int64), np.diff(offsets)
    column = np.arange(width)
    text = data[np.minimum(first[:, None] + column, data.size - 1)]
    text[column >= lengths[:, None]] = 0
    found: npt.NDArray[np.intp] = np.searchsorted(bounds, text.reshape(-1).view(f"S{width}"), side="right")
    return found.astype(np.uint16)


def _rows(*columns: list[Any]) -> pa.RecordBatch:
    import pyarrow as pa

    kinds = {"int": pa.int32(), "binary": pa.binary()}
    fields = [pa.field(name, kinds[kind]) for name, kind in BLOCK.items()]
    return pa.record_batch(
        [pa.array(c, f.type) for c, f in zip(columns, fields, strict=True)], schema=pa.schema(fields)
    )
