"""Compiled forms of `digests` and `runs` for large inputs: the same results, bit for bit. Imports numba."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from labels_party.mechanisms.compiled import compiled

U64 = npt.NDArray[np.uint64]
BYTES, WORDS = "Array(uint8, 1, 'C', readonly=True)", "Array(uint64, 1, 'C', readonly=True)"
OFFSETS = [f"Array({kind}, 1, 'C', readonly=True)" for kind in ("int32", "int64")]
LONGEST = 256  # words of a part that insertion sorts quickly enough
# written out, so that importing this module compiles every kernel once or loads it from the cache


@compiled()
def _siphash(
    data: npt.NDArray[np.uint8], start: Any, length: Any, k0: np.uint64, k1: np.uint64
) -> tuple[np.uint64, np.uint64]:
    """SipHash-2-4-128 of data[start : start + length], both halves."""
    v0 = k0 ^ np.uint64(0x736F6D6570736575)
    v1 = k1 ^ np.uint64(0x646F72616E646F6D) ^ np.uint64(0xEE)
    v2 = k0 ^ np.uint64(0x6C7967656E657261)
    v3 = k1 ^ np.uint64(0x7465646279746573)
    full = length >> 3
    for w in range(full + 1):
        at = start + 8 * w
        m = np.uint64(0)
        if w < full:
            for b in range(8):
                m |= np.uint64(data[at + b]) << np.uint64(8 * b)
        else:
            for b in range(length & 7):
                m |= np.uint64(data[at + b]) << np.uint64(8 * b)
            m |= np.uint64(length & 0xFF) << np.uint64(56)
        v3 ^= m
        for _ in range(2):
            v0 += v1
            v2 += v3
            v1 = ((v1 << np.uint64(13)) | (v1 >> np.uint64(51))) ^ v0
            v3 = ((v3 << np.uint64(16)) | (v3 >> np.uint64(48))) ^ v2
            v0 = ((v0 << np.uint64(32)) | (v0 >> np.uint64(32))) + v3
            v2 += v1
            v3 = ((v3 << np.uint64(21)) | (v3 >> np.uint64(43))) ^ v0
            v1 = ((v1 << np.uint64(17)) | (v1 >> np.uint64(47))) ^ v2
            v2 = (v2 << np.uint64(32)) | (v2 >> np.uint64(32))
        v0 ^= m
    v2 ^= np.uint64(0xEE)
    low = np.uint64(0)
    for r in range(8):
        v0 += v1
        v2 += v3
        v1 = ((v1 << np.uint64(13)) | (v1 >> np.uint64(51))) ^ v0
        v3 = ((v3 << np.uint64(16)) | (v3 >> np.uint64(48))) ^ v2
        v0 = ((v0 << np.uint64(32)) | (v0 >> np.uint64(32))) + v3
        v2 += v1
        v3 = ((v3 << np.uint64(21)) | (v3 >> np.uint64(43))) ^ v0
        v1 = ((v1 << np.uint64(17)) | (v1 >> np.uint64(47))) ^ v2
        v2 = (v2 << np.uint64(32)) | (v2 >> np.uint64(32))
        if r == 3:
            low = v0 ^ v1 ^ v2 ^ v3
            v1 ^= np.uint64(0xDD)
    return low, v0 ^ v1 ^ v2 ^ v3


@compiled(*(f"void({kind}, {BYTES}, uint64, uint64, uint64[::1], uint64[::1])" for kind in OFFSETS))
def hash_rows(
    offsets: npt.NDArray[np.int32 | np.int64],
    data: npt.NDArray[np.uint8],
    k0: np.uint64,
    k1: np.uint64,
    low: U64,
    high: U64,
) -> None:
    """Fill (low, high) uint64[n] with the digests of n byte strings, the i-th being data[offsets[i] : offsets[i+1]]."""
    for i in range(low.size):
        start = np.int64(offsets[i])
        low[i], high[i] = _siphash(data, start, np.int64(offsets[i + 1]) - start, k0, k1)


@compiled(*(f"void({kind}, {BYTES}, uint64[:, ::1], uint16[::1])" for kind in OFFSETS))
def pack_rows(
    offsets: npt.NDArray[np.int32 | np.int64],
    data: npt.NDArray[np.uint8],
    words: npt.NDArray[np.uint64],
    lengths: npt.NDArray[np.uint16],
) -> None:
    """Fill words[w, i] with the w-th 8 bytes of the i-th byte string, first byte highest, zeros after its end."""
    for i in range(lengths.size):
        start: Any = np.int64(offsets[i])
        length: Any = np.int64(offsets[i + 1]) - start
        lengths[i] = length
        for w in range(words.shape[0]):
            word = np.uint64(0)
            inside = min(max(length - 8 * w, 0), 8)
            for b in range(inside):
                word |= np.uint64(data[start + 8 * w + b]) << np.uint64(56 - 8 * b)
            words[w, i] = word


@compiled("void(uint64[:, ::1], int32[::1], uint8[::1])")
def unpack_rows(words: npt.NDArray[np.uint64], offsets: npt.NDArray[np.int32], data: npt.NDArray[np.uint8]) -> None:
    """Inverse of `pack_rows`: fill data[offsets[i] : offsets[i + 1]]."""
    for i in range(offsets.size - 1):
        start: Any = np.int64(offsets[i])
        for at in range(np.int64(offsets[i + 1]) - start):
            data[start + at] = np.uint8((words[at >> 3, i] >> np.uint64(56 - 8 * (at & 7))) & np.uint64(0xFF))


@compiled(f"void({WORDS}, {WORDS}, {WORDS}, {WORDS}, uint64[::1], uint64[::1])")
def merge_two(a_low: U64, a_high: U64, b_low: U64, b_high: U64, low: U64, high: U64) -> None:
    """Merge two sorted runs into (low, high)."""
    i = j = 0
    for at in range(low.size):
        if j == b_low.size or (
            i < a_low.size and (a_high[i] < b_high[j] or (a_high[i] == b_high[j] and a_low[i] <= b_low[j]))
        ):
            low[at], high[at] = a_low[i], a_high[i]
            i += 1
        else:
            low[at], high[at] = b_low[j], b_high[j]
            j += 1


@compiled(f"void({WORDS}, {WORDS}, {WORDS}, {WORDS}, boolean[::1])")
def mark_members(run_low: U64, run_high: U64, low: U64, high: U64, found: npt.NDArray[np.bool_]) -> None:
    """found[i]: whether the i-th of *sorted* digests occurs in a sorted run; one pass that leaps over gaps."""
    n: Any = run_low.size
    at: Any = 0
    for i in range(low.size):
        lo, hi = low[i], high[i]
        step = 1
        near = at  # everything before `near` is smaller
        far = at
        while far < n and (run_high[far] < hi or (run_high[far] == hi and run_low[far] < lo)):
            near = far + 1
            far += step
            step += step
        far = min(far, n)
        while near < far:
            middle = (near + far) >> 1
            if run_high[middle] < hi or (run_high[middle] == hi and run_low[middle] < lo):
                near = middle + 1
            else:
                far = middle
        at = near
        found[i] = at < n and run_high[at] == hi and run_low[at] == lo


@compiled("boolean(uint64[::1], uint64[::1], int64[::1], uint64)")
def sort_uniform(words: U64, scratch: U64, ends: npt.NDArray[np.int64], shift: np.uint64) -> bool:
    """Sort words uint64[n] in place by way of `scratch` uint64[n]: into 2^(64 − shift) parts by their first bits, then
    each part by insertion. `ends` int64[parts + 1]. False, and `words` unchanged, where a part is too large for that,
    as it hardly ever is for words that are uniform."""
    ends[:] = 0
    for word in words:
        ends[np.int64(word >> shift) + 1] += 1
    for part in range(1, ends.size):
        if ends[part] > LONGEST:
            return False
        ends[part] += ends[part - 1]
    for word in words:
        bucket = np.int64(word >> shift)
        scratch[ends[bucket]] = word
        ends[bucket] += 1
    start = np.int64(0)
    for part in range(ends.size - 1):
        for i in range(start, ends[part]):
            word = scratch[i]
            at: Any = i
            while at > start and words[at - 1] > word:
                words[at] = words[at - 1]
                at -= 1
            words[at] = word
        start = ends[part]
    return True
