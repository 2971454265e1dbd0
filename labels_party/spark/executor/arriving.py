"""Labels on their way in: checked, turned into positions and encrypted before anything of them leaves the task.

What goes on is blocks: the ids of one range, and their encrypted labels, as few rows of bytes. Ranges split no id. Rows
that are refused are named by a pass of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from label_dp.domain import Domain
from label_dp.errors import InvalidRows, InvalidTable
from label_dp.spark.task import attempt
from labels_party.labels.ciphered import disclosed, enclosed
from labels_party.labels.digests import U64, id_buffers, siphash128
from labels_party.labels.parsing import TIME, canonical_column, positions_of, prefixed, whole_seconds
from labels_party.labels.runs import contains

if TYPE_CHECKING:
    import pyarrow as pa

LABELLED, LISTED, REFUSED, COUNTS = 0, 1, 2, 3  # kinds of blocks; counts are of events
BLOCK = {"part": "int", "kind": "int", "lengths": "binary", "text": "binary", "labels": "binary"}
PLACE = "block"
LARGEST = (1 << 31) - 1  # bytes of ids
SHOWN = 20
WHERE = {"file": "string", "row": "long", "field": "string", "rule": "string"}


@dataclass(frozen=True)
class ArrivalRules:
    """What a row must be. `label_field` None: a list of ids, which is `timed` if events count from its times."""

    id_field: str
    label_field: str | None
    domain: Domain
    out_of_domain: str
    id_prefix: str | None = None
    timed: bool = False

    @property
    def columns(self) -> list[str]:
        """Names of the columns to read, in their order."""
        label = [] if self.label_field is None else [self.label_field]
        return [self.id_field, *label, *([TIME] if self.timed else [])]

    def read(self, rows: pa.RecordBatch) -> tuple[pa.Array, npt.NDArray[np.int64]]:
        """Ids in their one spelling, and int64[n]: positions, or of a list the times in Unix seconds, if any, or zeros.
        Raises InvalidRows, InvalidTable."""
        ids = prefixed(canonical_column(rows.column(0), self.id_field), self.id_prefix, self.id_field)
        if self.label_field is None:
            return ids, whole_seconds(rows.column(1)) if self.timed else np.zeros(len(ids), np.int64)
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
        with attempt():
            for batch in batches:
                try:
                    ids, index = self.rules.read(batch)
                except InvalidRows as error:
                    refused += error.total
                except InvalidTable:
                    refused += max(1, batch.num_rows)
                else:
                    if not refused and len(ids):
                        labels = index.astype("<u4") if kind == LABELLED else None
                        yield id_blocks(kind, ids, ranges_of(ids, self.bounds), labels, self.key)
        if refused:
            yield refusal(refused)


def id_blocks(
    kind: int, ids: pa.Array, part: npt.NDArray[np.uint16], numbers: npt.NDArray[np.generic] | None, key: bytes
) -> pa.RecordBatch:
    """Blocks of ids, one for each `part` uint16[n], with their `numbers` encrypted, if there are any."""
    import pyarrow as pa

    order = np.argsort(part, kind="stable")
    ids = ids.take(pa.array(order))
    present, first = np.unique(part[order], return_index=True)
    ends = [*first[1:].tolist(), len(order)]
    offsets, data = id_buffers(ids)
    lengths, numbers = np.diff(offsets).astype("<u2"), None if numbers is None else numbers[order]
    pieces = list(zip(first.tolist(), ends, strict=True))
    return block_rows(
        present.tolist(),
        [kind] * len(pieces),
        [lengths[a:b].tobytes() for a, b in pieces],
        [data[offsets[a] : offsets[b]].tobytes() for a, b in pieces],
        [b"" if numbers is None else enclosed(key, numbers[a:b].tobytes(), PLACE) for a, b in pieces],
    )


def refusal(rows: int, place: str = "") -> pa.RecordBatch:
    """A block that says how many rows are refused, and where the first is, if that is known."""
    return block_rows([0], [REFUSED], [np.array([rows], "<i8").tobytes()], [place.encode()], [b""])


def ids_of(blocks: Sequence[Sequence[Any]]) -> pa.Array:
    """The ids of blocks, one after the other. Raises MemoryError."""
    import pyarrow as pa

    lengths = np.concatenate([np.zeros(0, "<u2"), *(np.frombuffer(row[2], "<u2") for row in blocks)])
    text = b"".join(row[3] for row in blocks)
    if len(text) > LARGEST:
        raise MemoryError
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, dtype=np.int32, out=offsets[1:])
    return pa.StringArray.from_buffers(len(lengths), pa.py_buffer(offsets), pa.py_buffer(text))


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
    at: npt.NDArray[np.intp] = np.searchsorted(bounds, text.reshape(-1).view(f"S{width}"), side="right")
    return at.astype(np.uint16)


def block_rows(*columns: list[Any]) -> pa.RecordBatch:
    """Blocks by the columns of `BLOCK`."""
    import pyarrow as pa

    kinds = {"int": pa.int32(), "binary": pa.binary()}
    fields = [pa.field(name, kinds[kind]) for name, kind in BLOCK.items()]
    return pa.record_batch(
        [pa.array(c, f.type) for c, f in zip(columns, fields, strict=True)], schema=pa.schema(fields)
    )


@dataclass(frozen=True, eq=False)
class Locating:
    """Picklable; from batches (id[, label], file, row) to places of refused rows, at most 20 a task. `wanted`: a run of
    digests whose rows break `rule`; none: those that break the rules themselves."""

    rules: ArrivalRules
    digest_key: bytes = field(repr=False)
    wanted: tuple[U64, U64]
    rule: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Raises TaskFailed."""
        import pyarrow as pa

        kinds = {"string": pa.string(), "long": pa.int64()}
        schema = pa.schema([pa.field(name, kinds[kind]) for name, kind in WHERE.items()])
        refusals: list[dict[str, Any]] = []
        for batch in batches:
            with attempt():
                places = self._places(batch)
            file, row = batch.column(batch.num_columns - 2), batch.column(batch.num_columns - 1)
            for at, name, rule in places[: SHOWN - len(refusals)]:
                where = {"file": file[at].as_py(), "row": row[at].as_py()} if batch.num_rows else {"file": "", "row": 0}
                refusals.append(where | {"field": name, "rule": rule})
        yield pa.RecordBatch.from_pylist(refusals, schema=schema)

    def _places(self, batch: pa.RecordBatch) -> list[tuple[int, str, str]]:
        try:
            ids, _ = self.rules.read(batch)
        except InvalidRows as error:
            return [(p.row, p.field, p.rule) for p in error.problems]
        except InvalidTable as error:
            return [(0, self.rules.label_field or self.rules.id_field, error.detail)]
        if not len(self.wanted[0]):
            return []
        marks = contains(self.wanted, *siphash128(ids, self.digest_key))
        return [(int(at), self.rules.id_field, self.rule) for at in np.flatnonzero(marks)]
