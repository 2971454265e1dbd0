"""File of a message while it arrives: written, counted and hashed at once, so that no byte is read a second time."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from label_dp.documents.bundle import CHUNK, changed_file
from label_dp.documents.manifest import FileEntry


class Arriving:
    """File `entry` at `path`, of which `have` bytes are present. Bytes of an earlier try are kept and hashed first;
    then `resumed` is True. Raises OSError."""

    def __init__(self, path: Path, entry: FileEntry) -> None:
        self.entry, self.have, self.resumed = entry, 0, False
        self._hasher = hashlib.sha256()
        path.touch()
        self._file = path.open("r+b", buffering=0)
        if os.fstat(self._file.fileno()).st_size > entry.bytes:
            self.restart()
        while chunk := self._file.read(CHUNK):
            self._hasher.update(chunk)
            self.have += len(chunk)
            self.resumed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    @property
    def missing(self) -> int:
        """Number of missing bytes."""
        return self.entry.bytes - self.have

    @property
    def whole(self) -> bool:
        """Whether the file equals the signed manifest's, byte for byte."""
        return not self.missing and self._hasher.hexdigest() == self.entry.sha256

    def write(self, piece: bytes) -> None:
        rest = memoryview(piece)
        while rest:  # an almost full disk writes a part
            rest = rest[self._file.write(rest) :]
        self._hasher.update(piece)
        self.have += len(piece)

    def restart(self) -> None:
        """Discard the present bytes."""
        self._file.seek(0)
        self._file.truncate()
        self._hasher, self.have, self.resumed = hashlib.sha256(), 0, False

    def finish(self) -> None:
        """Make the file durable. If it differs from the manifest, discards its bytes and raises DigestMismatch."""
        if not self.whole:
            self.restart()
            raise changed_file(self.entry.name)
        os.fsync(self._file.fileno())
