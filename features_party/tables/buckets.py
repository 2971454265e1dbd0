"""Rows by example id on disk, spread over files by a keyed hash of the id: each file fits into memory.

The key is new for every join, so nobody can choose ids that all fall into one file. Another key deals examples to folds
(training/draws.py).
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from features_party.training.draws import Draws, mixed
from label_dp.columnar.tables import MAX_ID_BYTES

if TYPE_CHECKING:
    import pyarrow as pa

ADD_ROWS = 1 << 18  # collected before they are written
MOST_BITS = 12
WORD = 8  # bytes of an id per step of the hash
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class IdHash:
    """Hash of ids: Σ words · key modulo 2⁶⁴. `key` uint64, odd, one for each word and one for the length."""

    key: npt.NDArray[np.uint64]

    @classmethod
    def fresh(cls) -> IdHash:
        return cls.keyed(secrets.token_bytes(32))

    @classmethod
    def keyed(cls, key: bytes) -> IdHash:
        """Derive the hash from a key."""
        words = -(-MAX_ID_BYTES // WORD) + 1
        return cls(np.frombuffer(hashlib.shake_256(key).digest(WORD * words), "<u8") | np.uint64(1))

    def of(self, ids: pa.Array, bits: int) -> npt.NDArray[np.uint16]:
        """Return the first `bits` bits, uint16[n], of n ids, string or large_string without nulls."""
        if not bits:
            return np.zeros(len(ids), np.uint16)
        return np.asarray(self._sums(ids) >> np.uint64(64 - bits), np.uint16)

    def draws(self, ids: pa.Array) -> Draws:
        """Return uint64[n] of the same ids, with all bits mixed."""
        return mixed(self._sums(ids), "id")

    def _sums(self, ids: pa.Array) -> npt.NDArray[np.uint64]:
        import pyarrow as pa

        _, starts, data = ids.buffers()
        kind = np.int64 if pa.types.is_large_string(ids.type) else np.int32
        ends = np.frombuffer(starts, kind)[ids.offset : ids.offset + len(ids) + 1].astype(np.int64)
        text = np.zeros(int(ends[-1] - ends[0]) + WORD, np.uint8)
        text[:-WORD] = np.frombuffer(data, np.uint8)[ends[0] : ends[-1]]
        words = np.ndarray(len(text) - WORD + 1, "<u8", text, strides=(1,))  # one begins at every byte
        first, length = ends[:-1] - ends[0], np.diff(ends)
        sums: npt.NDArray[np.uint64] = length.astype(np.uint64) * self.key[-1]
        for at in range(-(-int(length.max(initial=0)) // WORD)):
            here = np.flatnonzero(length > WORD * at)
            beyond = np.maximum(WORD * (at + 1) - length[here], 0).astype(np.uint64) * np.uint64(8)
            word = words[first[here] + WORD * at] << beyond
            sums[here] += (word ^ (word >> np.uint64(32))) * self.key[at]  # upper bytes would reach upper bits only
        return sums


class Buckets:
    """Ids with whole numbers (`columns`), in 2^bits files of `folder` whose names begin with `name`."""

    def __init__(self, folder: Path, name: str, columns: tuple[str, ...], hashed: IdHash, bits: int) -> None:
        self._folder, self._name, self._columns, self._hash = folder, name, columns, hashed
        self.bits, self._waiting, self._held = min(bits, MOST_BITS), list[Any](), 0

    def add(self, ids: pa.Array, *values: IntArray) -> None:
        """Add N ids and, for each column, int64[N]."""
        import pyarrow as pa

        self._waiting.append(pa.record_batch([ids.cast(pa.string()), *map(pa.array, values)], self._schema))
        self._held += len(ids)
        if self._held >= ADD_ROWS:
            self.flush()

    def flush(self) -> None:
        """Write the collected rows; call it after the last `add`."""
        import pyarrow as pa

        if not self._waiting:
            return
        rows = pa.concat_batches(self._waiting)
        self._waiting, self._held = [], 0
        bucket = self._hash.of(rows.column(0), self.bits)
        rows = rows.take(pa.array(np.argsort(bucket, kind="stable")))
        ends = np.cumsum(np.bincount(bucket, minlength=1 << self.bits))
        for number, (start, stop) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
            if stop > start:
                with self._path(number).open("ab") as file:
                    file.write(rows.slice(start, stop - start).serialize())

    def read(self, number: int) -> tuple[pa.Array, list[IntArray]]:
        """Read one file, in order of addition: ids large_string[N], and int64[N] for each column."""
        import pyarrow as pa

        parts = list(self._parts(number))
        if not parts:
            return pa.array([], pa.large_string()), [np.empty(0, np.int64) for _ in self._columns]
        ids = pa.concat_arrays([part.column(0).cast(pa.large_string()) for part in parts])
        values = [[part.column(at + 1).to_numpy() for part in parts] for at in range(len(self._columns))]
        return ids, [np.concatenate(column) for column in values]

    def apart(self, ids: pa.Array, number: int, bits: int) -> IntArray:
        """Return int64[N]: the part of each id of file `number`, if files are split by more bits."""
        return self._hash.of(ids, bits).astype(np.int64) - (number << (bits - self.bits))

    def _parts(self, number: int) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        path = self._path(number)
        if not path.exists():
            return
        data = pa.py_buffer(path.read_bytes())
        source = pa.BufferReader(data)
        while source.tell() < data.size:
            yield pa.ipc.read_record_batch(pa.ipc.read_message(source), self._schema)

    @property
    def _schema(self) -> pa.Schema:
        import pyarrow as pa

        return pa.schema([("id", pa.string()), *((name, pa.int64()) for name in self._columns)])

    def _path(self, number: int) -> Path:
        return self._folder / f"{self._name}-{number}"
