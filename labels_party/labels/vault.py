"""Labels at rest behind a storage port. Today plain Parquet of *masked* labels in a local folder; a store with
encryption or object storage implements the same four calls."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from labels_party.labels.digests import U64
from shared.ahead import ahead
from shared.errors import Unavailable
from shared.service.folders import fsync_folder

if TYPE_CHECKING:
    import pyarrow as pa

ROW_GROUP = 1 << 17
OVERLAPPED_FROM = 1 << 14  # rows of a batch: a thread for less is not worth it


class LabelVault(Protocol):
    """Immutable objects under string keys; `put` is durable when it returns."""

    def put(self, key: str, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> int:
        """Store record batches; returns the number of rows."""

    def scan(self, key: str) -> Iterator[pa.RecordBatch]:
        """Read them back in order."""

    def put_run(self, key: str, low: U64, high: U64) -> None:
        """Store a sorted run of 128-bit id digests."""

    def run(self, key: str) -> tuple[U64, U64]:
        """A run, memory-mapped where possible: (low, high) uint64[n], sorted by (high, low)."""

    def delete(self, key: str) -> None:
        """Remove an object; no error if it is not there."""

    def keys(self, prefix: str) -> list[str]:
        """Every stored object whose key begins with `prefix`, a folder's name with its slash."""

    def untouched(self, since: float) -> list[str]:
        """Every stored object in whose folder nothing was written after `since` (seconds of the epoch)."""


class LocalVault:
    """The embedded default: files below one folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def _path(self, key: str) -> Path:
        return self.root / key

    def _prepare(self, key: str) -> Path:
        path = self._path(key)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        return path

    def put(self, key: str, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> int:
        import pyarrow.parquet as pq

        path, rows = self._prepare(key), 0
        failed: list[Exception] = []

        def watched() -> Iterator[pa.RecordBatch]:
            try:
                yield from batches
            except Exception as error:
                failed.append(error)
                raise

        try:
            with path.open("wb") as file:
                # masked labels look random: the quickest compression costs least on them
                options = {"compression": "snappy", "use_dictionary": False, "write_statistics": False}
                with pq.ParquetWriter(file, schema, **options) as writer:
                    for batch in _overlapped(watched()):
                        writer.write_batch(batch, row_group_size=ROW_GROUP)
                        rows += batch.num_rows
                file.flush()
                os.fsync(file.fileno())
            fsync_folder(path.parent)
        except OSError as error:
            path.unlink(missing_ok=True)
            if failed:  # not our disk: whoever makes the batches says what is wrong
                raise
            raise Unavailable(f"The label store cannot be written ({error.strerror}); nothing was stored.") from None
        return rows

    def scan(self, key: str) -> Iterator[pa.RecordBatch]:
        import pyarrow.parquet as pq

        with pq.ParquetFile(self._path(key)) as file:
            yield from file.iter_batches(batch_size=ROW_GROUP)

    def put_run(self, key: str, low: U64, high: U64) -> None:
        path = self._prepare(key)
        try:
            with path.open("wb") as file:
                for half in (low, high):
                    file.write(np.ascontiguousarray(half, "<u8").data)
                file.flush()
                os.fsync(file.fileno())
            fsync_folder(path.parent)
        except OSError as error:
            path.unlink(missing_ok=True)
            raise Unavailable(f"The label store cannot be written ({error.strerror}); nothing was stored.") from None

    def run(self, key: str) -> tuple[U64, U64]:
        path = self._path(key)
        if path.stat().st_size == 0:
            empty = np.zeros(0, np.uint64)
            return empty, empty
        data = np.asarray(np.memmap(path, dtype="<u8", mode="r"))
        half = len(data) // 2
        return data[:half], data[half:]

    def delete(self, key: str) -> None:
        self._path(key).unlink(missing_ok=True)

    def keys(self, prefix: str) -> list[str]:
        return sorted(str(p.relative_to(self.root)) for p in (self.root / prefix).glob("*") if p.is_file())

    def untouched(self, since: float) -> list[str]:
        found: list[str] = []
        with contextlib.suppress(FileNotFoundError):  # removed meanwhile
            for folder in self.root.iterdir():
                files = [p for p in folder.iterdir() if p.is_file()] if folder.is_dir() else []
                with contextlib.suppress(FileNotFoundError):
                    if all(p.stat().st_mtime < since for p in files):
                        found += [str(p.relative_to(self.root)) for p in files]
        return sorted(found)


def _overlapped(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches; from the second on they are made by a thread while the one before is written."""
    making = iter(batches)
    first = next(making, None)
    if first is not None:
        yield first
        yield from ahead(making) if first.num_rows >= OVERLAPPED_FROM else making
