"""Where the bytes of an upload come from."""

from __future__ import annotations

import io
from typing import Protocol

BLOCK = 1 << 20


class Source(Protocol):
    """Bytes as they arrive."""

    def read(self) -> bytes:
        """The next bytes, about BLOCK at most and only at the end fewer than some 64 KiB; none when all were read."""


class BytesSource:
    """An upload that is in memory already."""

    def __init__(self, data: bytes) -> None:
        self._file = io.BytesIO(data)

    def read(self) -> bytes:
        return self._file.read(BLOCK)


class Exactly:
    """Reads a source in pieces of a given size."""

    def __init__(self, source: Source) -> None:
        self._source, self._held = source, bytearray()

    def read(self, size: int) -> bytes:
        """`size` bytes; fewer only at the end of the source."""
        while len(self._held) < size and (more := self._source.read()):
            self._held += more
        found = bytes(self._held[:size])
        del self._held[:size]
        return found

    def rest_is_empty(self) -> bool:
        """Read to the end; whether nothing was left."""
        empty = not self._held
        self._held.clear()
        while more := self._source.read():
            empty = empty and not more
        return empty
