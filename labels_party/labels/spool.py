"""Unnamed temporary file for raw labels that only this process can read; a kill leaves none."""

from __future__ import annotations

import os
import secrets
import tempfile
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from label_dp.store.objects.port import Anywhere
from labels_party.labels.ciphered import NONCE, TAG

IN_MEMORY, CHUNK = 1 << 20, 1 << 16


class Spool(Anywhere):
    """Append with `add`, then read anywhere.

    Beyond IN_MEMORY bytes it is an unnamed file below `folder`, in chunks under AES-256-GCM with a key that only this
    object has; the last, partial chunk stays in memory. Changed data raises OSError.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder, self._memory, self._file = folder, bytearray(), -1
        self._cipher = AESGCM(secrets.token_bytes(32))
        self._chunks = self._size = self._at = 0
        self._held = -1, b""  # the chunk read last

    def add(self, data: bytes | memoryview) -> None:
        self._size += len(data)
        self._memory += data
        if self._size <= IN_MEMORY:
            return
        if self._file < 0:
            with tempfile.TemporaryFile(dir=self._folder) as file:
                self._file = os.dup(file.fileno())
        full = len(self._memory) - len(self._memory) % CHUNK
        with memoryview(self._memory) as view:
            for start in range(0, full, CHUNK):
                self._write(self._cipher.encrypt(_nonce(self._chunks), view[start : start + CHUNK], None))
                self._chunks += 1
        del self._memory[:full]

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._file, view) :]

    def _bytes(self, start: int, stop: int) -> bytes:
        parts: list[bytes | memoryview] = []
        while start < min(stop, self._chunks * CHUNK):
            number, skipped = divmod(start, CHUNK)
            parts.append(memoryview(self._chunk(number))[skipped : skipped + stop - start])
            start += len(parts[-1])
        if start < stop:
            behind = self._chunks * CHUNK
            parts.append(bytes(self._memory[start - behind : stop - behind]))
        return b"".join(parts)

    def _chunk(self, number: int) -> bytes:
        if self._held[0] != number:
            whole = os.pread(self._file, CHUNK + TAG, number * (CHUNK + TAG))
            try:
                self._held = number, self._cipher.decrypt(_nonce(number), whole, None)
            except InvalidTag:
                raise OSError("a temporary file is not what was written") from None
        return self._held[1]

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        self._memory.clear()
        self._size = 0
        super().close()


def _nonce(number: int) -> bytes:
    return number.to_bytes(NONCE, "big")
