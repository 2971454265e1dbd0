"""Compiled steps of the sort by id. A block is (offsets int32[n + 1], bytes uint8[…], labels uint32[n]).

Imports numba.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from labels_party.labels.by_id.words import below, read_word, turned, write_word
from labels_party.mechanisms.compiled import compiled

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]
U16 = npt.NDArray[np.uint16]
U32 = npt.NDArray[np.uint32]
U64 = npt.NDArray[np.uint64]
MOST_TIES = 24  # rows of one key for an insertion sort
IDS = "Array(int32, 1, 'C', readonly=True), Array(uint8, 1, 'C', readonly=True)"
LABELS = "Array(uint32, 1, 'C', readonly=True)"


@compiled()
def _copy(data: U8, start: Any, length: Any, to: U8, at: Any) -> None:
    """to[at : at + length] = data[start : start + length]."""
    if length >= 8:
        write_word(to, at, read_word(data, start))
        for j in range(8, length - 8, 8):  # none for ids of up to 16 bytes, as most are
            write_word(to, at + j, read_word(data, start + j))
        write_word(to, at + length - 8, read_word(data, start + length - 8))
    else:
        for j in range(length):
            to[at + j] = data[start + j]


@compiled(f"int64({IDS}, Array(uint8, 1, 'C', readonly=True), int64, int64)")
def shared_prefix(offsets: I32, data: U8, first: U8, at_least: int, most: int) -> int:
    """Count the leading bytes, at most `most`, that all rows share with `first`; the first `at_least` are certainly
    shared."""
    shared: Any = most
    for i in range(offsets.size - 1):
        start: Any = np.int64(offsets[i])
        shared = min(shared, np.int64(offsets[i + 1]) - start)
        for b in range(at_least, shared):
            if data[start + b] != first[b]:
                shared = b
                break
    return int(shared)


@compiled(f"void({IDS}, int64, uint64[::1])")
def fill_keys(offsets: I32, data: U8, depth: int, keys: U64) -> None:
    """Set keys[i] to bytes [depth, depth + 8) of the i-th id, first byte highest, zeros after its end."""
    for i in range(keys.size):
        start: Any = np.int64(offsets[i]) + depth
        length: Any = np.int64(offsets[i + 1]) - start
        key = np.uint64(0)
        if length >= 8:
            key = turned(read_word(data, start))
        else:
            for b in range(length):
                key |= np.uint64(data[start + b]) << np.uint64(56 - 8 * b)
        keys[i] = key


@compiled(f"void({IDS}, uint64[::1], uint64[::1], uint16[::1], int64[::1], int64[::1])")
def choose_buckets(offsets: I32, data: U8, keys: U64, splitters: U64, bucket: U16, rows: I64, size: I64) -> None:
    """Set bucket[i] to 2j for a key between splitters j − 1 and j, 2j + 1 for the j-th itself; count rows and bytes of
    each.

    The number of splitters is a power of two, less one: the search takes equal steps for every key, without branches.
    """
    half: Any = (np.int64(splitters.size) + 1) >> 1
    for i in range(keys.size):
        key = keys[i]
        low: Any = np.int64(0)
        step: Any = half
        while step:
            low += step & -np.int64(below(splitters[low + step - 1], key))
            step >>= 1
        bucket[i] = 2 * low + np.int64(splitters[min(low, splitters.size - 1)] == key)
    for i in range(keys.size):
        target = bucket[i]
        rows[target] += 1
        size[target] += np.int64(offsets[i + 1]) - np.int64(offsets[i])


@compiled(f"void({IDS}, {LABELS}, uint16[::1], int64[::1], int64[::1], int32[::1], uint8[::1], uint32[::1])")
def scatter(
    offsets: I32, data: U8, labels: U32, bucket: U16, row: I64, at: I64, to_offsets: I32, to_data: U8, to_labels: U32
) -> None:
    """Move rows to their buckets, in order. `row`, `at`: first row and byte of each bucket, both advanced."""
    for i in range(labels.size):
        b = bucket[i]
        start: Any = np.int64(offsets[i])
        length: Any = np.int64(offsets[i + 1]) - start
        target: Any = at[b]
        _copy(data, start, length, to_data, target)
        to_offsets[row[b]] = target
        to_labels[row[b]] = labels[i]
        row[b] += 1
        at[b] += length
    to_offsets[labels.size] = offsets[labels.size] - offsets[0]


@compiled(f"void({IDS}, {LABELS}, int64[::1], int32[::1], uint8[::1], uint32[::1])")
def gather(offsets: I32, data: U8, labels: U32, order: I64, to_offsets: I32, to_data: U8, to_labels: U32) -> None:
    """Copy the rows in another order."""
    at: Any = np.int64(0)
    to_offsets[0] = 0
    for i in range(order.size):
        source = order[i]
        start: Any = np.int64(offsets[source])
        length: Any = np.int64(offsets[source + 1]) - start
        _copy(data, start, length, to_data, at)
        at += length
        to_offsets[i + 1] = at
        to_labels[i] = labels[source]


@compiled()
def _less(offsets: I32, data: U8, one: Any, other: Any, depth: int) -> bool:
    """Return whether an id precedes another one with the same first `depth` bytes."""
    a: Any = np.int64(offsets[one]) + depth
    b: Any = np.int64(offsets[other]) + depth
    a_end, b_end = np.int64(offsets[one + 1]), np.int64(offsets[other + 1])
    while a < a_end and b < b_end:
        if data[a] != data[b]:
            return bool(data[a] < data[b])
        a += 1
        b += 1
    return bool(a >= a_end and b < b_end)


@compiled(f"int64({IDS}, int64, uint64[::1], int64, int64[::1], int64[::1])")
def settle_ties(offsets: I32, data: U8, depth: int, coded: U64, bits: int, order: I64, large_ties: I64) -> int:
    """Derive the order of rows from sorted codes with a row in the low `bits`; order small ties by their ids. Rows
    share their first `depth` bytes. Starts and ends of larger ties go to `large_ties`; returns how many numbers."""
    n: Any = coded.size
    mask = (np.uint64(1) << np.uint64(bits)) - np.uint64(1)
    count: Any = 0
    start: Any = 0
    for i in range(n):
        order[i] = np.int64(coded[i] & mask)
    while start < n:
        end = start + 1
        key = coded[start] >> np.uint64(bits)
        while end < n and (coded[end] >> np.uint64(bits)) == key:
            end += 1
        if end - start > MOST_TIES:
            large_ties[count], large_ties[count + 1] = start, end
            count += 2
        else:
            for i in range(start + 1, end):
                row = order[i]
                j = i
                while j > start and _less(offsets, data, row, order[j - 1], depth):
                    order[j] = order[j - 1]
                    j -= 1
                order[j] = row
        start = end
    return int(count)
