"""Port: immutable objects under keys such as "bat_1/sealed-2.parquet". A writer takes a unique name, and a row of the
database says which names count. So nothing is overwritten, and an object that no row names is a leftover."""

from __future__ import annotations

import io
import mmap
import os
import shutil
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from label_dp.errors import Unavailable

CHUNK = 1 << 23  # bytes of an object that are moved at once


class StoreRefused(Unavailable):
    """Permanent answer of the store: it may depend on the content, such as its length."""


class DamagedObject(Unavailable):
    """Stored bytes differ from those that were put there."""


@dataclass(frozen=True)
class Stored:
    """Key, time of writing in seconds of the epoch and, of an object store, its size."""

    key: str
    modified: float
    size: int = 0


class Anywhere(io.RawIOBase):
    """File of `_size` bytes with random access; `_bytes` returns bytes [start, stop)."""

    _size = _at = 0

    @abstractmethod
    def _bytes(self, start: int, stop: int) -> bytes: ...

    def size(self) -> int:
        return self._size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        """Read from the current position; fewer bytes only at the end."""
        stop = self._size if size is None or size < 0 else min(self._size, self._at + size)
        if stop <= self._at:
            return b""
        data = self._bytes(self._at, stop)
        self._at = stop
        return data

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer)  # type: ignore[arg-type]  # whatever has a buffer
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)


class Objects(ABC):
    """Store of immutable objects. A put is durable when the call returns. A read returns the bytes that were put, or
    raises FileNotFoundError or Unavailable. `room`: a folder for files that become objects."""

    room: Path

    @abstractmethod
    def writing(self, key: str) -> AbstractContextManager[BinaryIO]:
        """Open a new object; it exists after the block, and not if the block raises. Raises OSError (a disk),
        Unavailable (the store)."""

    def adopt(self, key: str, path: Path) -> None:
        """Take in a durable file of `room` as an object. Raises as `writing`; then there is no object, and perhaps no
        file either."""
        with path.open("rb") as source, self.writing(key) as file:
            shutil.copyfileobj(source, file, CHUNK)

    @abstractmethod
    def reading(self, key: str) -> AbstractContextManager[Any]:
        """Open an Arrow file for random access."""

    @abstractmethod
    def mapped(self, key: str) -> mmap.mmap | bytes:
        """Map the whole object to memory that the system can reclaim."""

    @abstractmethod
    def delete(self, key: str) -> None:
        """Delete an object; does nothing if there is none."""

    @abstractmethod
    def listed(self, prefix: str) -> list[Stored]:
        """List by key the objects below `prefix`: a folder's name with its slash, or "" for all."""
