"""Labels at rest, as objects of a folder or a store: Parquet encrypted under the key of its batch, which is the folder
in its name; and, in the clear, runs of keyed digests, which outlive labels."""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from label_dp.ahead import ahead
from label_dp.errors import Unavailable
from label_dp.store.objects.folder import FolderObjects, mapping
from label_dp.store.objects.port import Objects, Stored
from labels_party.labels.ciphered import Reader, ciphered
from labels_party.labels.digests import U64

if TYPE_CHECKING:
    import pyarrow as pa

ROW_GROUP = 1 << 17
OVERLAPPED_FROM = 1 << 14  # rows of a batch: a thread for less is not worth it


class LabelVault:
    """Immutable objects under string keys. What is put is durable when the call returns. `key_of` gives the key of a
    batch, or raises FileNotFoundError where it was erased."""

    def __init__(self, objects: Objects, key_of: Callable[[str], bytes]) -> None:
        self.objects, self._key_of = objects, key_of

    @property
    def files(self) -> FolderObjects:
        """The objects as files of this machine, for an engine that reads and writes them itself; only such a vault goes
        with one."""
        assert isinstance(self.objects, FolderObjects)
        return self.objects

    def put(self, key: str, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> int:
        """Store record batches; returns the number of rows. Raises Unavailable, and what the batches raise."""
        failed: list[Exception] = []

        def watched() -> Iterator[pa.RecordBatch]:
            try:
                yield from batches
            except Exception as error:
                failed.append(error)
                raise

        batch_key = self.batch_key(key)
        with self._written(key, failed) as file, ciphered(file, batch_key, key) as inside:
            return _write_rows(inside, watched(), schema)

    def scan(
        self, key: str, start: int = 0, rows: int | None = None, columns: list[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Read them back in order: `rows` of them from row `start` on, or all that follow it; only the bytes of some
        `columns`, if given. Raises FileNotFoundError, Unavailable."""
        import pyarrow.parquet as pq

        with self._reading(key) as source, pq.ParquetFile(source, pre_buffer=False) as file:
            end = file.metadata.num_rows if rows is None else start + rows
            at = 0
            for batch in file.iter_batches(batch_size=ROW_GROUP, columns=columns):
                if at < end and at + batch.num_rows > start:
                    yield batch.slice(max(start - at, 0), min(end, at + batch.num_rows) - max(start, at))
                at += batch.num_rows

    def groups(self, key: str) -> list[tuple[int, int]]:
        """Rows of each row group, and the bytes of its first column, which is that of ids: both are public. Raises as
        `scan`."""
        import pyarrow.parquet as pq

        with self._reading(key) as source:
            about = pq.read_metadata(source)
        found = (about.row_group(i) for i in range(about.num_row_groups))
        return [(group.num_rows, group.column(0).total_uncompressed_size) for group in found]

    def put_bytes(self, key: str, data: bytes) -> None:
        """Store bytes, encrypted as rows are. Raises Unavailable."""
        batch_key = self.batch_key(key)
        with self._written(key, []) as file, ciphered(file, batch_key, key) as inside:
            inside.write(data)

    def get_bytes(self, key: str) -> bytes:
        """Raises FileNotFoundError, Unavailable."""
        with self._reading(key) as source:
            return source.read()

    def put_run(self, key: str, low: U64, high: U64) -> None:
        """Store a sorted run of 128-bit digests, in the clear; a file of a folder's that is one is taken away from its
        place. Raises Unavailable."""
        path = _whole_file(low, high)
        if path is not None and isinstance(self.objects, FolderObjects):
            with contextlib.suppress(OSError):  # of another file system, or taken before: then copied from its mapping
                with path.open("rb") as file:
                    os.fsync(file.fileno())
                self.objects.adopt(key, path)
                return
        with self._written(key, []) as file:
            _write_halves(file, low, high)

    def run(self, key: str) -> tuple[U64, U64]:
        """A run, memory-mapped: (low, high) uint64[n], sorted by (high, low). Raises FileNotFoundError, Unavailable."""
        return _halves(self.objects.mapped(key))

    def put_numbers(self, key: str, parts: Iterable[tuple[U64, ...]]) -> int:
        """Store columns uint64[m], part by part, in the clear: digests, and public counts. Returns the rows. Raises
        Unavailable."""
        rows = 0
        with self._written(key, []) as file:
            for part in parts:
                file.write(np.stack(part, 1).astype("<u8", copy=False).data)
                rows += len(part[0])
        return rows

    def numbers(self, key: str, columns: int) -> Iterator[tuple[U64, ...]]:
        """Some rows of them at a time. Raises FileNotFoundError, Unavailable."""
        found = _numbers(self.objects.mapped(key)).reshape(-1, columns)
        for start in range(0, len(found), ROW_GROUP):
            yield tuple(np.ascontiguousarray(column) for column in found[start : start + ROW_GROUP].T)

    def batch_key(self, key: str) -> bytes:
        """Of the batch of an object. Raises FileNotFoundError, Unavailable."""
        return self._key_of(key.partition("/")[0])

    def delete(self, key: str) -> None:
        """Remove an object; no error if it is not there. Raises OSError, Unavailable."""
        self.objects.delete(key)

    def keys(self, prefix: str) -> list[str]:
        """Every stored object whose key begins with `prefix`, a folder's name with its slash."""
        return [stored.key for stored in self.objects.listed(prefix)]

    def untouched(self, since: float) -> list[str]:
        """Every stored object in whose folder nothing was written after `since` (seconds of the epoch)."""
        found: dict[str, list[Stored]] = {}
        for stored in self.objects.listed(""):
            found.setdefault(stored.key.rpartition("/")[0], []).append(stored)
        old = (alike for folder, alike in found.items() if folder and all(s.modified < since for s in alike))
        return sorted(stored.key for alike in old for stored in alike)

    @contextlib.contextmanager
    def _reading(self, key: str) -> Iterator[Reader]:
        batch_key = self.batch_key(key)
        with self.objects.reading(key) as source:
            yield Reader(source, batch_key, key)

    @contextlib.contextmanager
    def _written(self, key: str, failed: list[Exception]) -> Iterator[BinaryIO]:
        """A new object; none is left where the disk fails. `failed`: what somebody else is the cause of, who says what
        is wrong."""
        try:
            with self.objects.writing(key) as file:
                yield file
        except OSError as error:
            if failed:
                raise
            raise Unavailable(f"The label store cannot be written ({error.strerror}); nothing was stored.") from None


def write_object(path: Path, batch_key: bytes, key: str, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> None:
    """A file that a vault can adopt as `key`, durable, in a folder that is there. Raises OSError."""
    with path.open("xb") as file:
        with ciphered(file, batch_key, key) as inside:
            _write_rows(inside, batches, schema)
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def read_object(path: Path, batch_key: bytes, key: str) -> Iterator[Reader]:
    """The object `key` of a vault whose objects are files. Raises OSError, DamagedObject."""
    import pyarrow as pa

    with pa.OSFile(str(path), "rb") as file:
        yield Reader(file, batch_key, key)


def write_run(path: Path, low: U64, high: U64) -> None:
    """As `write_object`, of a run."""
    with path.open("xb") as file:
        _write_halves(file, low, high)
        file.flush()
        os.fsync(file.fileno())


def read_run(path: Path) -> tuple[U64, U64]:
    """As `LabelVault.run`."""
    with path.open("rb") as file:
        return _halves(mapping(file))


def _whole_file(low: U64, high: U64) -> Path | None:
    """The file that holds both halves of a run, one after the other and nothing else, if they are mapped from one."""
    if not isinstance(low, np.memmap) or not isinstance(high, np.memmap) or low.filename != high.filename:
        return None
    path, size = Path(str(low.filename)), 8 * len(low)
    beside = high.ctypes.data - low.ctypes.data == size == 8 * len(high)
    return path if beside and path.is_file() and path.stat().st_size == 2 * size else None


def _halves(whole: mmap.mmap | bytes) -> tuple[U64, U64]:
    data = _numbers(whole)
    return data[: len(data) // 2], data[len(data) // 2 :]


def _numbers(whole: mmap.mmap | bytes) -> U64:
    return np.frombuffer(whole, "<u8") if len(whole) else np.zeros(0, np.uint64)


def _write_rows(file: BinaryIO, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> int:
    import pyarrow.parquet as pq

    rows = 0
    # how long an object is must not tell of labels, and ids are written and read sooner than compressed
    options = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    with pq.ParquetWriter(file, schema, **options) as writer:
        for batch in _grouped(_overlapped(batches)):
            writer.write_batch(batch, row_group_size=ROW_GROUP)
            rows += batch.num_rows
    return rows


def _grouped(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows, ROW_GROUP of them at a time but at the end: how an object looks follows from their number alone.

    Blocks of a sort depend on which records came, and where a message is cut may depend on row groups (invariant
    public-rows).
    """
    import pyarrow as pa

    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        if rows < ROW_GROUP:
            continue
        whole = pa.Table.from_batches(held).combine_chunks().to_batches()[0]
        full = rows - rows % ROW_GROUP
        yield from (whole.slice(start, ROW_GROUP) for start in range(0, full, ROW_GROUP))
        held, rows = [whole.slice(full)], rows - full
    if rows:
        yield pa.Table.from_batches(held).combine_chunks().to_batches()[0]


def _write_halves(file: BinaryIO, low: U64, high: U64) -> None:
    for half in (low, high):
        file.write(np.ascontiguousarray(half, "<u8").data)


def _overlapped(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches; from the second on they are made by a thread while the one before is written."""
    making = iter(batches)
    first = next(making, None)
    if first is not None:
        yield first
        yield from ahead(making) if first.num_rows >= OVERLAPPED_FROM else making
