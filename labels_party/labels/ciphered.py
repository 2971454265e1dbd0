"""Bytes at rest: AES-256-GCM in chunks, so that files of any size are written as a stream and read at any offset.

A chunk's nonce is its number and a flag for the last (STREAM, Hoang, Reyhanitabar, Rogaway & Vizár 2015): no chunk can
be moved, dropped or cut off. Each object has its own key, derived from its batch's key, its name and a random salt, so
it cannot be opened under another name. Tasks of an engine use it as well.
"""

from __future__ import annotations

import contextlib
import io
import os
import secrets
from collections.abc import Iterator
from typing import BinaryIO, Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from label_dp.store.macs import derived
from label_dp.store.objects.port import Anywhere, DamagedObject

CHUNK = 1 << 17
TAG, NONCE, SALT = 16, 12, 16
MAGIC = b"LDPAES01"
HEAD = len(MAGIC) + SALT
DAMAGED = "An object of the label store is not what was put there. Restore it from a copy of the store."


def enclosed(key: bytes, plain: bytes, place: str) -> bytes:
    """Encrypt a few bytes under `key` (32 bytes), bound to `place`; at most 2³² times per key."""
    nonce = secrets.token_bytes(NONCE)
    return nonce + AESGCM(key).encrypt(nonce, plain, place.encode())


def disclosed(key: bytes, sealed: bytes, place: str) -> bytes:
    """Decrypt the output of `enclosed`. Raises DamagedObject."""
    try:
        return AESGCM(key).decrypt(sealed[:NONCE], sealed[NONCE:], place.encode())
    except (InvalidTag, ValueError):
        raise DamagedObject(DAMAGED) from None


class CipherSource(Protocol):
    """Random-access file, as Arrow's are."""

    def size(self) -> int: ...

    def read_at(self, nbytes: int, offset: int, /) -> bytes: ...


class CipherWriter(io.RawIOBase):
    """Writer that encrypts into `file`; `finish` writes the last chunk. Raises errors of the file."""

    def __init__(self, file: BinaryIO, key: bytes, name: str) -> None:
        super().__init__()
        salt = os.urandom(SALT)
        self._file, self._cipher = file, _cipher(key, name, salt)
        self._waiting, self._number, self._size = bytearray(), 0, 0
        file.write(MAGIC + salt)

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._size

    def write(self, data: object) -> int:
        with memoryview(data).cast("B") as view:  # type: ignore[arg-type]  # whatever has a buffer
            at, size = 0, len(view)
            while len(self._waiting) + size - at > CHUNK:  # a full chunk waits: it may be the last
                count = CHUNK - len(self._waiting)
                if self._waiting:
                    self._waiting += view[at : at + count]
                    self._put(self._waiting, last=False)
                    self._waiting = bytearray()
                else:
                    self._put(view[at : at + count], last=False)
                at += count
            self._waiting += view[at:]
            self._size += size
        return size

    def finish(self) -> None:
        self._put(self._waiting, last=True)

    def _put(self, plain: memoryview | bytearray, *, last: bool) -> None:
        self._file.write(self._cipher.encrypt(_nonce(self._number, last=last), plain, None))
        self._number += 1


class Reader(Anywhere):
    """Reader that authenticates every chunk before use. Raises DamagedObject, OSError."""

    def __init__(self, source: CipherSource, key: bytes, name: str) -> None:
        super().__init__()
        head, stored = source.read_at(HEAD, 0), source.size() - HEAD
        self._chunks = -(-stored // (CHUNK + TAG))
        self._size, self._at = stored - TAG * self._chunks, 0
        if head[: len(MAGIC)] != MAGIC or self._chunks < 1 or self._size < 0:
            raise DamagedObject(DAMAGED)
        self._source, self._cipher = source, _cipher(key, name, head[len(MAGIC) :])
        self._held = -1, b""  # the chunk read last: the next read mostly begins in it
        self._chunk_bytes(self._chunks - 1, self._chunks)  # the last chunk proves that nothing was cut off

    def _bytes(self, start: int, stop: int) -> bytes:
        first, end = start // CHUNK, -(-stop // CHUNK)
        parts: list[bytes | memoryview] = [*self._chunk_bytes(first, end)]
        parts[-1] = memoryview(parts[-1])[: stop - CHUNK * (end - 1)]
        parts[0] = memoryview(parts[0])[start - CHUNK * first :]
        return b"".join(parts)

    def _chunk_bytes(self, first: int, end: int) -> list[bytes]:
        parts = [self._held[1]] if self._held[0] == first else []
        begin, whole = first + len(parts), CHUNK + TAG
        if begin < end:
            with memoryview(self._source.read_at((end - begin) * whole, HEAD + begin * whole)) as raw:
                for number in range(begin, end):
                    nonce = _nonce(number, last=number == self._chunks - 1)
                    try:
                        part = raw[(number - begin) * whole : (number - begin + 1) * whole]
                        parts.append(self._cipher.decrypt(nonce, part, None))
                    except (InvalidTag, ValueError):
                        raise DamagedObject(DAMAGED) from None
        self._held = end - 1, parts[-1]
        return parts


@contextlib.contextmanager
def ciphered(file: BinaryIO, key: bytes, name: str) -> Iterator[BinaryIO]:
    """Encrypt everything written in the block into `file`; complete once the block ends without an error."""
    writer = CipherWriter(file, key, name)
    yield writer  # type: ignore[misc]  # a raw file takes all bytes
    writer.finish()


def _cipher(key: bytes, name: str, salt: bytes) -> AESGCM:
    return AESGCM(derived(key, f"object:{salt.hex()}:{name}"))


def _nonce(number: int, *, last: bool) -> bytes:
    return number.to_bytes(NONCE - 1, "big") + bytes([last])
