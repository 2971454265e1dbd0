"""One range of ids: sorted, each id once, all of them listed, none without a label; written as one sealed object.

A range is held in memory: about its ids and 60 bytes for each.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from label_dp.spark.task import as_batch, attempt, rows_of
from labels_party.labels.columns import label_rows, label_schema
from labels_party.labels.digests import id_buffers, siphash128
from labels_party.labels.runs import sort_run
from labels_party.labels.vault import write_object, write_run
from labels_party.spark.executor.arriving import COUNTS, LABELLED, LISTED, REFUSED, SHOWN, ids_of, labels_of

if TYPE_CHECKING:
    import pyarrow as pa

CHUNK = 1 << 17
WRONG = ("repeated", "unlisted", "listed_again")


@dataclass(frozen=True, eq=False)
class Sealing:
    """Picklable; from blocks of one range to one record. `missing_index` stands for a listed id without a label. `key`
    is of the batch whose objects are in the folder `room` of the vault.

    A record counts what is wrong: `refused` rows (with the `place` of one, if known), ids `repeated`, `unlisted`,
    `listed_again` (with the digests of some, 16 bytes each) or `missing` (with some of them, which were listed). Then
    nothing was written; nor if there is no id.
    """

    columns: ClassVar[dict[str, str]] = {
        "number": "long",
        "name": "string",
        "rows": "long",
        "id_bytes": "long",
        "refused": "long",
        "place": "string",
        "event_counts": "binary",  # encrypted, of each task of a fold
        "missing": "long",
        "missing_ids": "binary",
    } | {f"{name}{part}": kind for name in WRONG for part, kind in (("", "long"), ("_digests", "binary"))}
    key: bytes = field(repr=False)
    digest_key: bytes = field(repr=False)
    listed: bool
    missing_index: int | None
    staging: str
    room: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Raises TaskFailed."""
        with attempt():
            blocks = list(rows_of(batches))
            if blocks:
                yield as_batch(self._sealed(blocks), self.columns)

    def _sealed(self, blocks: list[tuple[Any, ...]]) -> dict[str, Any]:
        found: dict[str, Any] = {"number": blocks[0][0]}
        refused = [(int(np.frombuffer(row[2], "<i8")[0]), row[3].decode()) for row in blocks if row[1] == REFUSED]
        if refused:
            place = next((place for _, place in refused if place), "")
            return found | {"refused": sum(rows for rows, _ in refused), "place": place}
        found["event_counts"] = b"".join(row[4] for row in blocks if row[1] == COUNTS)
        if all(row[1] == COUNTS for row in blocks):
            return found
        ids, positions = self._sorted([row for row in blocks if row[1] == LABELLED])
        wrong = {"repeated": _repeated(ids)}
        missing = ids.slice(0, 0)
        if self.listed:
            listed, _ = self._sorted([row for row in blocks if row[1] == LISTED])
            wrong |= {"unlisted": _without(ids, listed), "listed_again": _repeated(listed)}
            missing = _without(listed, ids)
        found |= {name: len(some) for name, some in wrong.items()}
        found |= {f"{name}_digests": self._digests(wrong.get(name, missing).slice(0, SHOWN)) for name in WRONG}
        if len(missing) and self.missing_index is None:
            some = missing.slice(0, SHOWN).to_pylist()
            return found | {"missing": len(missing), "missing_ids": "\n".join(some).encode()}
        if any(map(len, wrong.values())):
            return found
        if len(missing):
            filled = np.full(len(missing), self.missing_index, np.uint32)
            ids, positions = _in_order(_joined([ids, missing]), np.concatenate([positions, filled]))
        return found | self._written(ids, positions)

    def _digests(self, ids: pa.Array) -> bytes:
        low, high = siphash128(ids, self.digest_key)
        return np.stack([low, high], 1).astype("<u8").tobytes()

    def _sorted(self, blocks: list[tuple[Any, ...]]) -> tuple[pa.Array, npt.NDArray[np.uint32]]:
        """Ids in bytewise order and their positions (none of a list)."""
        labels = [labels_of(row[4], self.key) for row in blocks if row[1] == LABELLED]
        return _in_order(ids_of(blocks), np.concatenate([np.zeros(0, np.uint32), *labels]))

    def _written(self, ids: pa.Array, positions: npt.NDArray[np.uint32]) -> dict[str, Any]:
        import pyarrow as pa

        name = token_hex(16)
        rows, run = Path(self.staging) / f"{name}.parquet", Path(self.staging) / f"{name}.run"
        table = pa.Table.from_batches([label_rows(ids, positions)])
        try:
            write_object(rows, self.key, object_name(self.room, name), table.to_batches(CHUNK), label_schema())
            write_run(run, *sort_run(*siphash128(ids, self.digest_key))[0])
        except BaseException:
            for path in (rows, run):
                with contextlib.suppress(OSError):
                    path.unlink()
            raise
        return {"name": name, "rows": len(ids), "id_bytes": ids.nbytes}


def object_name(room: str, name: str) -> str:
    """What the file `name` of a task is in the vault: a task binds its bytes to that."""
    return f"{room}/sealed-{name}.parquet"


def _in_order(ids: pa.Array, labels: npt.NDArray[np.uint32]) -> tuple[pa.Array, npt.NDArray[np.uint32]]:
    import pyarrow as pa

    order = order_of(ids)
    return ids.take(pa.array(order)), labels[order] if len(labels) else labels


def order_of(ids: pa.Array) -> npt.NDArray[np.int64]:
    """int64[n]: what sorts ids bytewise. By the 8 bytes behind what all begin with, as numbers, which is several times
    as quick as text; only those that agree in them are compared as text."""
    import pyarrow.compute as pc

    if len(ids) < 2:
        return np.arange(len(ids))
    ends = pc.min_max(ids.cast("binary")).as_py()
    alike = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(ends["min"], ends["max"], strict=False))
    key = _numbers(ids, len(list(alike)))
    order = np.argsort(key)
    again = key[order[1:]] == key[order[:-1]]
    tied = np.flatnonzero(np.append(again, False) | np.insert(again, 0, False))
    if tied.size:
        among = order[tied]
        order[tied] = among[pc.sort_indices(ids.take(among)).to_numpy()]
    return order


def _numbers(ids: pa.Array, start: int) -> npt.NDArray[np.uint64]:
    """uint64[n]: 8 bytes of each id from byte `start` on, zeros behind its end, the first the most significant."""
    offsets, data = id_buffers(ids)
    first, last = offsets[:-1].astype(np.int64) + start, offsets[1:].astype(np.int64)
    found = np.zeros(len(ids), np.uint64)
    for i in range(8):
        at = first + i
        byte = np.where(at < last, data[np.minimum(at, data.size - 1)], 0)
        found = found << np.uint64(8) | byte.astype(np.uint64)
    return found


def _joined(arrays: list[Any]) -> pa.Array:
    import pyarrow as pa

    return pa.concat_arrays(arrays)


def _repeated(ids: pa.Array) -> pa.Array:
    """Of sorted ids those that equal the one before."""
    import pyarrow.compute as pc

    return ids.slice(1).filter(pc.equal(ids.slice(1), ids.slice(0, max(0, len(ids) - 1))))


def _without(ids: pa.Array, others: pa.Array) -> pa.Array:
    """Those of `ids` that are not among `others`."""
    import pyarrow.compute as pc

    return ids.filter(pc.invert(pc.is_in(ids, value_set=others)))
