"""Keyed 128-bit digests of ids and the mask of labels at rest: SipHash-2-4 with 128-bit output, vectorised.

SipHash is a keyed pseudo-random function (Aumasson & Bernstein 2012). Without the party's secret a digest neither
tells its id nor can be compared with another party's, and a masked label is a one-time-padded number per id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pyarrow as pa

U64 = npt.NDArray[np.uint64]
CHUNK = 1 << 14  # keeps the working set of one chunk inside the cache


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
    """SipHash-2-4-128 of n padded inputs of w words each, uint64[w, n]; returns (low, high) uint64[n]."""
    k0, k1 = (np.uint64(int.from_bytes(key[i : i + 8], "little")) for i in (0, 8))
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


def siphash128(ids: pa.Array, key: bytes) -> tuple[U64, U64]:
    """(low, high) uint64[n] of the UTF-8 bytes of `ids` (Arrow string array without nulls) under a 16-byte key."""
    import pyarrow as pa

    ids = ids.cast(pa.large_string())
    _, offsets_buffer, data_buffer = ids.buffers()
    offsets = (
        np.frombuffer(offsets_buffer, dtype=np.int64)[ids.offset : ids.offset + len(ids) + 1]
        if len(ids)
        else np.zeros(1, np.int64)
    )
    data = np.frombuffer(data_buffer, dtype=np.uint8) if data_buffer is not None else np.zeros(0, np.uint8)
    low, high = np.empty(len(ids), np.uint64), np.empty(len(ids), np.uint64)
    with np.errstate(over="ignore"):  # SipHash adds modulo 2⁶⁴
        for start in range(0, len(ids), CHUNK):
            part = slice(start, min(start + CHUNK, len(ids)))
            first = offsets[part]
            lengths = offsets[part.start + 1 : part.stop + 1] - first
            count = lengths // 8 + 1
            for words in np.unique(count):
                rows = np.flatnonzero(count == words)
                block = _padded(data, first[rows], lengths[rows], int(words))
                low[start + rows], high[start + rows] = _siphash_words(block, key)
    return low, high


def _padded(
    data: npt.NDArray[np.uint8], first: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], words: int
) -> U64:
    """uint64[words, n]: each input zero-padded, its length modulo 256 in the last byte."""
    width = words * 8
    column = np.arange(width)
    inside = column < lengths[:, None]
    if data.size == 0:
        block = np.zeros((len(first), width), np.uint8)
    else:
        block = np.where(inside, data[np.minimum(first[:, None] + column, data.size - 1)], 0).astype(np.uint8)
    block[:, -1] = lengths & 0xFF
    return np.ascontiguousarray(block.view("<u8").T.astype(np.uint64))


def mask(ids: pa.Array, index: npt.NDArray[np.integer], key: bytes) -> npt.NDArray[np.uint32]:
    """Domain positions (below 2³²) exclusive-or a keystream of batch key and id; the same call unmasks."""
    low, _ = siphash128(ids, key)
    return index.astype(np.uint32) ^ low.astype(np.uint32)
