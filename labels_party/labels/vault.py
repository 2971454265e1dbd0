"""Labels at rest, as objects of a folder or store: Parquet encrypted under the key of the batch, the folder in its
name.

Runs of keyed digests, which outlive labels, are in the clear.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import numpy.typing as npt

from label_dp.ahead import ahead
from label_dp.errors import Unavailable
from label_dp.store.objects.folder import FolderObjects, mapping
from label_dp.store.objects.port import CHUNK, Objects, Stored
from labels_party.labels.ciphered import Reader, ciphered
from labels_party.labels.digests import U64

if TYPE_CHECKING:
    import pyarrow as pa

ROW_GROUP = 1 << 17
OVERLAPPED_FROM = 1 << 14  # rows of a record batch worth a thread


class LabelVault:
    """Immutable objects under string keys, durable once a call returns. `key_of` returns the key of a batch; it raises
    FileNotFoundError if it was erased."""

    def __init__(self, objects: Objects, key_of: Callable[[str], bytes]) -> None:
        self.objects, self._key_of = objects, key_of

    def local(self, keys: Iterable[str], folder: Path) -> tuple[LabelVault, FolderObjects]:
        """Return a vault whose objects `keys` are files, and these: its own, or whole copies in `folder`, encrypted as
        they are. Raises FileNotFoundError, OSError, Unavailable."""
        if isinstance(self.objects, FolderObjects):
            return self, self.objects
        copies = FolderObjects(folder)
        for key in keys:
            with self.objects.reading(key) as source, copies.writing(key) as file:
                shutil.copyfileobj(source, file, CHUNK)
        return LabelVault(copies, self._key_of), copies

    def put(self, key: str, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> int:
        """Store record batches; return the number of rows. Raises Unavailable and errors of the batches."""
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
        """Yield rows `start` to `start + rows` (to the end if None) in order; reads only the given `columns`. Raises
        FileNotFoundError, Unavailable."""
        import pyarrow.parquet as pq

        with self._reading(key) as source, pq.ParquetFile(source, pre_buffer=False) as file:
            end = file.metadata.num_rows if rows is None else start + rows
            at = 0
            for batch in file.iter_batches(batch_size=ROW_GROUP, columns=columns):
                if at < end and at + batch.num_rows > start:
                    yield batch.slice(max(start - at, 0), min(end, at + batch.num_rows) - max(start, at))
                at += batch.num_rows

    def groups(self, key: str) -> list[tuple[int, int]]:
        """Return (rows, bytes of its first column, the ids) per row group, both public. Raises as `scan`."""
        import pyarrow.parquet as pq

        with self._reading(key) as source:
            about = pq.read_metadata(source)
        row_groups = (about.row_group(i) for i in range(about.num_row_groups))
        return [(group.num_rows, group.column(0).total_uncompressed_size) for group in row_groups]

    def put_bytes(self, key: str, data: bytes) -> None:
        """Store bytes, encrypted as rows are. Raises Unavailable."""
        self.put_records(key, [np.frombuffer(data, np.uint8)])

    def get_bytes(self, key: str) -> bytes:
        """Read bytes. Raises FileNotFoundError, Unavailable."""
        with self._reading(key) as source:
            return source.read()

    def put_records(self, key: str, parts: Iterable[npt.NDArray[Any]]) -> int:
        """Store rows of one fixed width, encrypted; return their number. Raises Unavailable."""
        rows, batch_key = 0, self.batch_key(key)
        with self._written(key, []) as file, ciphered(file, batch_key, key) as inside:
            for part in parts:
                inside.write(np.ascontiguousarray(part).view(np.uint8).data)
                rows += len(part)
        return rows

    def records(self, key: str, kind: np.dtype[Any]) -> Iterator[npt.NDArray[Any]]:
        """Yield the rows of `put_records` some at a time. Raises FileNotFoundError, Unavailable."""
        with self._reading(key) as source:
            while part := source.read(ROW_GROUP * kind.itemsize):
                yield np.frombuffer(part, kind)

    def put_run(self, key: str, low: U64, high: U64) -> None:
        """Store a sorted run of 128-bit digests in the clear; moves the file if the run is mapped from one. Raises
        Unavailable."""
        path = _whole_file(low, high)
        if path is not None:
            with contextlib.suppress(OSError):  # of another file system, or taken before: then copied from its mapping
                with path.open("rb") as file:
                    os.fsync(file.fileno())
                self.objects.adopt(key, path)
                return
        with self._written(key, []) as file:
            _write_halves(file, low, high)

    def run(self, key: str) -> tuple[U64, U64]:
        """Map a run: (low, high) uint64[n], sorted by (high, low). Raises FileNotFoundError, Unavailable."""
        return _halves(self.objects.mapped(key))

    def put_numbers(self, key: str, parts: Iterable[tuple[U64, ...]]) -> int:
        """Store columns uint64[m] part by part in the clear (digests, public counts); return the rows. Raises
        Unavailable."""
        rows = 0
        with self._written(key, []) as file:
            for part in parts:
                file.write(np.stack(part, 1).astype("<u8", copy=False).data)
                rows += len(part[0])
        return rows

    def numbers(self, key: str, columns: int) -> Iterator[tuple[U64, ...]]:
        """Yield the columns some rows at a time. Raises FileNotFoundError, Unavailable."""
        table = _numbers(self.objects.mapped(key)).reshape(-1, columns)
        for start in range(0, len(table), ROW_GROUP):
            yield tuple(np.ascontiguousarray(column) for column in table[start : start + ROW_GROUP].T)

    def batch_key(self, key: str) -> bytes:
        """Return the key of the object's batch. Raises FileNotFoundError, Unavailable."""
        return self._key_of(key.partition("/")[0])

    def delete(self, key: str) -> None:
        """Remove an object; no error if it is missing. Raises OSError, Unavailable."""
        self.objects.delete(key)

    def keys(self, prefix: str) -> list[str]:
        """List the stored objects whose key begins with `prefix`, a folder's name with its slash."""
        return [stored.key for stored in self.objects.listed(prefix)]

    def untouched(self, since: float) -> list[str]:
        """List the stored objects in folders without a write after `since` (epoch seconds)."""
        folders: dict[str, list[Stored]] = {}
        for stored in self.objects.listed(""):
            folders.setdefault(stored.key.rpartition("/")[0], []).append(stored)
        old = (alike for folder, alike in folders.items() if folder and all(s.modified < since for s in alike))
        return sorted(stored.key for alike in old for stored in alike)

    @contextlib.contextmanager
    def _reading(self, key: str) -> Iterator[Reader]:
        batch_key = self.batch_key(key)
        with self.objects.reading(key) as source:
            yield Reader(source, batch_key, key)

    @contextlib.contextmanager
    def _written(self, key: str, failed: list[Exception]) -> Iterator[BinaryIO]:
        """Write a new object; leaves none if the disk fails. Errors in `failed` have another cause and pass
        unchanged."""
        try:
            with self.objects.writing(key) as file:
                yield file
        except OSError as error:
            if failed:
                raise
            raise Unavailable(f"The label store cannot be written ({error.strerror}); nothing was stored.") from None


def write_object(path: Path, batch_key: bytes, key: str, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> None:
    """Write a durable file that a vault can adopt as `key`, in an existing folder. Raises OSError."""
    with path.open("xb") as file:
        with ciphered(file, batch_key, key) as inside:
            _write_rows(inside, batches, schema)
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def read_object(path: Path, batch_key: bytes, key: str) -> Iterator[Reader]:
    """Open the object `key` of a vault whose objects are files. Raises OSError, DamagedObject."""
    import pyarrow as pa

    with pa.OSFile(str(path), "rb") as file:
        yield Reader(file, batch_key, key)


def write_run(path: Path, low: U64, high: U64) -> None:
    """Write a run as `write_object` does."""
    with path.open("xb") as file:
        _write_halves(file, low, high)
        file.flush()
        os.fsync(file.fileno())


def read_run(path: Path) -> tuple[U64, U64]:
    """Read a run as `LabelVault.run` does."""
    with path.open("rb") as file:
        return _halves(mapping(file))


def _whole_file(low: U64, high: U64) -> Path | None:
    """Return the file from which both halves of a run are mapped, if it holds exactly these."""
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
    """Regroup rows by ROW_GROUP, except at the end, so that an object's layout depends on their number alone. Blocks
    of a sort depend on the records, and cuts of a message may depend on row groups (invariant public-rows)."""
    import pyarrow as pa

    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if rows < ROW_GROUP:
            continue
        whole = pa.Table.from_batches(waiting).combine_chunks().to_batches()[0]
        full = rows - rows % ROW_GROUP
        yield from (whole.slice(start, ROW_GROUP) for start in range(0, full, ROW_GROUP))
        waiting, rows = [whole.slice(full)], rows - full
    if rows:
        yield pa.Table.from_batches(waiting).combine_chunks().to_batches()[0]


def _write_halves(file: BinaryIO, low: U64, high: U64) -> None:
    for half in (low, high):
        file.write(np.ascontiguousarray(half, "<u8").data)


def _overlapped(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches; a thread makes each one after the first while the previous one is written."""
    making = iter(batches)
    first = next(making, None)
    if first is not None:
        yield first
        yield from ahead(making) if first.num_rows >= OVERLAPPED_FROM else making
