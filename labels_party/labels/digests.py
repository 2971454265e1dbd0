"""Keyed 128-bit digests of ids: SipHash-2-4 with 128-bit output, vectorised.

SipHash is a keyed pseudo-random function (Aumasson & Bernstein 2012). Without the party's secret a digest does not
reveal its id and cannot be compared with another party's.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pyarrow as pa

U64 = npt.NDArray[np.uint64]
CHUNK = 1 << 14  # keeps the working set of one chunk inside the cache
LOADED_AFTER = 1 << 20  # rows after which a process loads the compiled kernels, which takes about as long as they save
AT_ONCE = 1 << 10  # below this many rows a call into them saves nothing


def _rotl(x: U64, bits: int) -> U64:
    return (x << np.uint64(bits)) | (x >> np.uint64(64 - bits))


def _round(v0: U64, v1: U64, v2: U64, v3: U64) -> tuple[U64, U64, U64, U64]:
    v0 = v0 + v1
    v2 = v2 + v3
    v1 = _rotl(v1, 13) ^ v0
    v3 = _rotl(v3, 16) ^ v2
    v0 = _rotl(v0, 32) + v3
    v2 = v2 + v1
    v3 = _rotl(v3, 21) ^ v0
    v1 = _rotl(v1, 17) ^ v2
    return v0, v1, _rotl(v2, 32), v3


def _siphash_words(words: U64, key: bytes) -> tuple[U64, U64]:
    """Compute SipHash-2-4-128 of n padded inputs of w words each, uint64[w, n]; returns (low, high) uint64[n]."""
    k0, k1 = _halves(key)
    n = words.shape[1]
    v0 = np.full(n, k0 ^ np.uint64(0x736F6D6570736575))
    v1 = np.full(n, k1 ^ np.uint64(0x646F72616E646F6D) ^ np.uint64(0xEE))
    v2 = np.full(n, k0 ^ np.uint64(0x6C7967656E657261))
    v3 = np.full(n, k1 ^ np.uint64(0x7465646279746573))
    for m in words:
        v3 = v3 ^ m
        v0, v1, v2, v3 = _round(*_round(v0, v1, v2, v3))
        v0 = v0 ^ m
    v2 = v2 ^ np.uint64(0xEE)
    for _ in range(4):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    low = v0 ^ v1 ^ v2 ^ v3
    v1 = v1 ^ np.uint64(0xDD)
    for _ in range(4):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    return low, v0 ^ v1 ^ v2 ^ v3


@dataclass(frozen=True)
class EventKeys:
    """Keys of the digests of one data set: neither events nor examples of two data sets can be compared."""

    event: bytes
    example: bytes
    type: bytes


class ListMac:
    """MAC of ids in order, however they are cut into arrays: of their bytes, and of their lengths. Both are keyed."""

    def __init__(self, texts: hmac.HMAC, lengths: hmac.HMAC) -> None:
        self.texts, self.lengths = texts, lengths

    def add(self, ids: pa.Array) -> None:
        """Take a `pa.string()` without nulls."""
        if not len(ids):
            return
        _, offsets, texts = ids.buffers()
        ends = np.frombuffer(offsets, np.int32)[ids.offset : ids.offset + len(ids) + 1]
        self.texts.update(memoryview(texts)[ends[0] : ends[-1]])
        self.lengths.update(np.diff(ends).astype("<u4").tobytes())

    def hexdigest(self) -> str:
        return self.texts.hexdigest()[:32] + self.lengths.hexdigest()[:32]


class _Kernels:
    """Switch to the compiled kernels once enough rows went by to pay for loading them: small commands stay quick."""

    def __init__(self) -> None:
        self.rows = 0

    def worth(self, rows: int) -> bool:
        """Count `rows` more rows; return whether to use the compiled kernels for them."""
        self.expect(rows)
        return rows >= AT_ONCE and self.rows >= LOADED_AFTER

    def expect(self, rows: int) -> None:
        """Announce `rows` rows."""
        self.rows += rows


kernels = _Kernels()


def siphash128(ids: pa.Array, key: bytes, out: tuple[U64, U64] | None = None) -> tuple[U64, U64]:
    """Return (low, high) uint64[n] of the UTF-8 bytes of `ids` under a 16-byte key, in the arrays of `out` if given.
    `ids`: Arrow string array without nulls."""
    offsets, data = id_buffers(ids)
    low, high = out or (np.empty(len(ids), np.uint64), np.empty(len(ids), np.uint64))
    if kernels.worth(len(ids)):
        from labels_party.labels.kernels import hash_rows

        hash_rows(offsets, data, *_halves(key), low, high)
        return low, high
    with np.errstate(over="ignore"):  # SipHash adds modulo 2⁶⁴
        for start in range(0, len(ids), CHUNK):
            part = slice(start, min(start + CHUNK, len(ids)))
            first = offsets[part].astype(np.int64)
            lengths = offsets[part.start + 1 : part.stop + 1] - first
            count = lengths // 8 + 1
            for words in np.unique(count):
                rows = np.flatnonzero(count == words)
                block = _padded(data, first[rows], lengths[rows], int(words))
                low[start + rows], high[start + rows] = _siphash_words(block, key)
    return low, high


def _halves(key: bytes) -> tuple[np.uint64, np.uint64]:
    return np.uint64(int.from_bytes(key[:8], "little")), np.uint64(int.from_bytes(key[8:16], "little"))


def id_buffers(ids: pa.Array) -> tuple[npt.NDArray[Any], npt.NDArray[np.uint8]]:
    """Return offsets int32 or int64 [n + 1] into the bytes uint8[…] of an Arrow string array."""
    import pyarrow as pa

    if not (pa.types.is_string(ids.type) or pa.types.is_large_string(ids.type)):
        ids = ids.cast(pa.large_string())
    kind = np.dtype(np.int64 if pa.types.is_large_string(ids.type) else np.int32)
    _, offsets, data = ids.buffers()
    if len(ids) == 0 or offsets is None:
        return np.zeros(1, kind), np.zeros(0, np.uint8)
    part = np.frombuffer(offsets, kind)[ids.offset : ids.offset + len(ids) + 1]
    return np.require(part, requirements="A"), np.frombuffer(data, np.uint8) if data else np.zeros(0, np.uint8)


def _padded(
    data: npt.NDArray[np.uint8], first: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], words: int
) -> U64:
    """Return uint64[words, n]: each input zero-padded, its length modulo 256 in the last byte."""
    width = words * 8
    column = np.arange(width)
    inside = column < lengths[:, None]
    if data.size == 0:
        block = np.zeros((len(first), width), np.uint8)
    else:
        block = np.where(inside, data[np.minimum(first[:, None] + column, data.size - 1)], 0).astype(np.uint8)
    block[:, -1] = lengths & 0xFF
    return np.ascontiguousarray(block.view("<u8").T.astype(np.uint64))
