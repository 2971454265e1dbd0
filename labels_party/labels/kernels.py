"""Compiled forms of `digests` and `runs` for large inputs: the same results, bit for bit. Imports numba."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from labels_party.labels.by_id.words import below, read_word
from labels_party.mechanisms.compiled import compiled

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
BYTES, WORDS = "Array(uint8, 1, 'C', readonly=True)", "Array(uint64, 1, 'C', readonly=True)"
OFFSETS = [f"Array({kind}, 1, 'C', readonly=True)" for kind in ("int32", "int64")]
ABREAST = 1024  # digests that are searched at once
FAR = 8  # ratio of sizes above which each digest is searched; below, both runs are scanned
LONGEST = 256  # digests of a part that insertion sorts quickly enough
# written out, so that importing this module compiles every kernel once or loads it from the cache


@compiled()
def _siphash(
    data: npt.NDArray[np.uint8], start: Any, length: Any, k0: np.uint64, k1: np.uint64
) -> tuple[np.uint64, np.uint64]:
    """Compute both halves of SipHash-2-4-128 of data[start : start + length]."""
    v0 = k0 ^ np.uint64(0x736F6D6570736575)
    v1 = k1 ^ np.uint64(0x646F72616E646F6D) ^ np.uint64(0xEE)
    v2 = k0 ^ np.uint64(0x6C7967656E657261)
    v3 = k1 ^ np.uint64(0x7465646279746573)
    full = length >> 3
    for w in range(full + 1):
        at = start + 8 * w
        m = np.uint64(0)
        if w < full:
            m = read_word(data, at)
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


@compiled(f"void({WORDS}, {WORDS}, {WORDS}, {WORDS}, uint64[::1], uint64[::1])")
def merge_two(a_low: U64, a_high: U64, b_low: U64, b_high: U64, low: U64, high: U64) -> None:
    """Merge two sorted runs into (low, high)."""
    i: Any = np.int64(0)
    j: Any = np.int64(0)
    at: Any = np.int64(0)
    while i < a_low.size and j < b_low.size:
        one, other = a_high[i], b_high[j]
        # branch-free: time must not reveal how many digests both runs have
        later = below(other, one) | (np.uint64(one == other) & below(b_low[j], a_low[i]))
        chosen = np.uint64(0) - later
        low[at], high[at] = (a_low[i] & ~chosen) | (b_low[j] & chosen), (one & ~chosen) | (other & chosen)
        at += 1
        i += 1 - np.int64(later)
        j += np.int64(later)
    for rest in range(i, a_low.size):
        low[at], high[at] = a_low[rest], a_high[rest]
        at += 1
    for rest in range(j, b_low.size):
        low[at], high[at] = b_low[rest], b_high[rest]
        at += 1


@compiled(f"void({WORDS}, {WORDS}, {WORDS}, {WORDS}, boolean[::1])")
def mark_members(run_low: U64, run_high: U64, low: U64, high: U64, found: npt.NDArray[np.bool_]) -> None:
    """Set found[i] to whether the i-th of *sorted* digests occurs in a sorted run that is not empty. Steps and
    branches depend on the two lengths alone: time must not reveal which digests occur (invariant no-oracle)."""
    n, m = np.int64(run_low.size), np.int64(low.size)
    place = np.full(m, n - 1)  # of the first whose high half is no smaller
    i: Any = np.int64(0)
    to: Any = np.int64(0)
    length: Any = n
    if n > FAR * m:
        place[:] = 0
        for first in range(0, m, ABREAST):
            length = n
            while length > 1:  # a step of all of them, so that none waits for the memory of another
                half = length >> 1
                for to in range(first, min(first + ABREAST, int(m))):
                    place[to] += half * np.int64(run_high[place[to] + half - 1] < high[to])
                length -= half
        for to in range(m):
            place[to] = min(place[to] + np.int64(run_high[place[to]] < high[to]), n - 1)
    else:
        while i < n and to < m:
            place[to] = i
            smaller = np.int64(run_high[i] < high[to])
            i += smaller
            to += 1 - smaller
        if to < m:
            place[to] = n - 1
    for to in range(m):
        i = place[to]
        while (run_high[i] == high[to]) & (run_low[i] < low[to]) & (i + 1 < n):  # hardly ever: halves that collide
            i += 1
        found[to] = (run_high[i] == high[to]) & (run_low[i] == low[to])


@compiled(f"boolean({WORDS}, {WORDS}, uint64[:, ::1], uint32[::1], uint64[::1], uint64[::1], int64[::1], int64, int64)")
def sort_digests(
    low: U64,
    high: U64,
    divided: npt.NDArray[np.uint64],
    rows: npt.NDArray[np.uint32],
    sorted_low: U64,
    sorted_high: U64,
    order: I64,
    first: int,
    second: int,
) -> bool:
    """Sort n digests by (high, low), stably, into `sorted_low`, `sorted_high` and `order`, each [n].

    Splits by the `first` bits of `high` into parts within the cache, those by the next `second` bits, then by
    insertion. `divided` uint64[2, n] and `rows` uint32[n] are scratch. Returns False if a part is too large for that,
    which is rare if all digests differ.
    """
    ends, inner = np.zeros((1 << first) + 1, np.int64), np.empty((1 << second) + 1, np.int64)
    outer_shift, inner_shift, mask = np.uint64(64 - first), np.uint64(64 - first - second), np.uint64((1 << second) - 1)
    for i in range(high.size):
        ends[np.int64(high[i] >> outer_shift) + 1] += 1
    for part in range(1, ends.size):
        ends[part] += ends[part - 1]
    for i in range(high.size):
        bucket = np.int64(high[i] >> outer_shift)
        at = ends[bucket]
        divided[0, at], divided[1, at], rows[at] = low[i], high[i], i
        ends[bucket] += 1
    start = np.int64(0)
    for part in range(ends.size - 1):
        stop = ends[part]
        inner[:] = 0
        for i in range(start, stop):
            inner[np.int64((divided[1, i] >> inner_shift) & mask) + 1] += 1
        for within in range(1, inner.size):
            if inner[within] > LONGEST:
                return False
            inner[within] += inner[within - 1]
        for i in range(start, stop):
            bucket = np.int64((divided[1, i] >> inner_shift) & mask)
            at = start + inner[bucket]
            sorted_low[at], sorted_high[at], order[at] = divided[0, i], divided[1, i], rows[i]
            inner[bucket] += 1
        for i in range(start + 1, stop):
            lo, hi, row = sorted_low[i], sorted_high[i], order[i]
            to: Any = i
            while to > start and (sorted_high[to - 1] > hi or (sorted_high[to - 1] == hi and sorted_low[to - 1] > lo)):
                sorted_low[to], sorted_high[to], order[to] = sorted_low[to - 1], sorted_high[to - 1], order[to - 1]
                to -= 1
            sorted_low[to], sorted_high[to], order[to] = lo, hi, row
        start = stop
    return True
