"""A temporary file that only this process can read, for what holds raw labels. It has no name: a kill leaves none."""

from __future__ import annotations

import io
import os
import secrets
import tempfile
from pathlib import Path

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

IN_MEMORY = 1 << 23
CIPHER_BLOCK = 16


class Spool(io.RawIOBase):
    """Append with `add`, then read anywhere. Beyond IN_MEMORY bytes it lies in an unnamed file below `folder`,
    encrypted with AES-256-CTR under a key that is nowhere but in this object."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder, self._memory, self._file = folder, bytearray(), -1
        self._key = secrets.token_bytes(32)
        self._encryptor = self._cipher(0).encryptor()
        self._size = self._at = 0

    def add(self, data: bytes | memoryview) -> None:
        self._size += len(data)
        if self._file < 0 and self._size <= IN_MEMORY:
            self._memory += data
            return
        if self._file < 0:
            with tempfile.TemporaryFile(dir=self._folder) as file:
                self._file = os.dup(file.fileno())
            data = bytes(self._memory) + data
            self._memory.clear()
        self._write(self._encryptor.update(data))

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._file, view) :]

    def _cipher(self, block: int) -> Cipher[modes.CTR]:
        return Cipher(algorithms.AES256(self._key), modes.CTR(block.to_bytes(16, "big")))

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

    def read(self, size: int = -1) -> bytes:
        """From the current place on; fewer bytes only at the end."""
        stop = self._size if size < 0 else min(self._size, self._at + size)
        if stop <= self._at:
            return b""
        found = self._bytes(self._at, stop)
        self._at = stop
        return found

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer)  # type: ignore[arg-type]  # whatever has a buffer
        found = self.read(len(view))
        view[: len(found)] = found
        return len(found)

    def _bytes(self, start: int, stop: int) -> bytes:
        if self._file < 0:
            return bytes(self._memory[start:stop])
        block, skipped = divmod(start, CIPHER_BLOCK)
        aligned, parts = start - skipped, []
        while aligned < stop:
            part = os.pread(self._file, stop - aligned, aligned)
            if not part:
                raise OSError("the temporary file of an upload is shorter than what was written")
            parts.append(part)
            aligned += len(part)
        return self._cipher(block).decryptor().update(b"".join(parts))[skipped:]

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        self._memory.clear()
        self._size = 0
        super().close()
