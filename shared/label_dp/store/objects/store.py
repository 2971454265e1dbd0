"""Objects in a store that others may write to: each ends with a keyed MAC of its key and its bytes.

A writer without our secret can delete an object, but cannot change or swap one: a whole object is fetched and checked
before a byte of it is used. The copy is an unnamed file, deleted after use or with the process.
"""

from __future__ import annotations

import contextlib
import hmac
import mmap
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from label_dp.errors import Unavailable
from label_dp.store.objects.bucket import Bucket
from label_dp.store.objects.folder import mapping
from label_dp.store.objects.port import CHUNK, DamagedObject, Objects, Stored

MAC_BYTES = 32
KEPT_SECONDS = 600.0
KEPT_BYTES = 1 << 32


class StoreObjects(Objects):
    """Objects of a bucket. `keyed` begins a MAC; copies lie in `spill`."""

    def __init__(self, bucket: Bucket, spill: Path, keyed: Callable[[], hmac.HMAC]) -> None:
        self.bucket, self.room, self._keyed = bucket, spill, keyed
        self._kept: OrderedDict[str, tuple[mmap.mmap | bytes, float]] = OrderedDict()
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def writing(self, key: str) -> Iterator[BinaryIO]:
        with tempfile.TemporaryFile(dir=self.room) as file:
            yield file
            file.write(self._mac(key, file, file.tell()))
            self.bucket.send(key, file)

    @contextlib.contextmanager
    def reading(self, key: str) -> Iterator[Any]:
        import pyarrow as pa

        with self._copy(key) as file:
            yield pa.BufferReader(pa.py_buffer(mapping(file)))

    def mapped(self, key: str) -> mmap.mmap | bytes:
        """Map an object and cache it: the runs of a batch are searched for each of its uploads."""
        with self._lock:
            self._forget_idle()
            if key in self._kept:
                data, _ = self._kept.pop(key)  # and to the end
                self._kept[key] = data, time.monotonic()
                return data
        with self._copy(key) as file:
            fetched = mapping(file)
        with self._lock:
            self._kept[key] = fetched, time.monotonic()
            while len(self._kept) > 1 and sum(len(mapped) for mapped, _ in self._kept.values()) > KEPT_BYTES:
                self._kept.popitem(last=False)
        return fetched

    def delete(self, key: str) -> None:
        with self._lock:
            self._kept.pop(key, None)
            self._forget_idle()
        self.bucket.delete(key)

    def listed(self, prefix: str) -> list[Stored]:
        return self.bucket.listed(prefix)

    @contextlib.contextmanager
    def _copy(self, key: str) -> Iterator[BinaryIO]:
        """Yield a checked copy. Raises FileNotFoundError, Unavailable."""
        with contextlib.ExitStack() as stack:
            try:
                file = stack.enter_context(tempfile.TemporaryFile(dir=self.room))
                self.bucket.fetch(key, file)
                size = file.tell() - MAC_BYTES
                whole = size >= 0 and hmac.compare_digest(self._mac(key, file, size), file.read(MAC_BYTES))
                file.truncate(max(size, 0))
            except FileNotFoundError:
                raise
            except OSError as error:
                with contextlib.suppress(OSError):  # it writes once more what the disk refused
                    stack.close()
                raise Unavailable(f"A copy of a stored object cannot be kept ({error.strerror}).") from None
            if not whole:
                raise DamagedObject(
                    "An object of the store is not what was put there. Restore it from a copy of the store."
                )
            yield file

    def _mac(self, key: str, file: BinaryIO, size: int) -> bytes:
        """Compute the MAC of the first `size` bytes, leaving the file there."""
        mac = self._keyed()
        mac.update(key.encode() + b"\0")
        file.seek(0)
        while size:
            mac.update(chunk := file.read(min(size, CHUNK)))
            size -= len(chunk)
        return mac.digest()

    def _forget_idle(self) -> None:
        oldest = time.monotonic() - KEPT_SECONDS
        for key in [key for key, (_, used) in self._kept.items() if used < oldest]:
            del self._kept[key]
