"""Sorted runs of 128-bit id digests: sets by binary search and merging, without a row per id in the database."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from labels_party.labels.digests import U64

Run = tuple[U64, U64]


def sort_run(low: U64, high: U64) -> tuple[Run, npt.NDArray[np.int64]]:
    """The run of the given digests and the order that sorted them."""
    order = np.argsort(high, kind="stable")
    high_sorted = high[order]
    ties = np.flatnonzero(high_sorted[1:] == high_sorted[:-1])
    if ties.size:  # 64-bit collisions are rare, equal ids are not expected here; a full sort settles both
        order = np.lexsort((low, high))
        high_sorted = high[order]
    return (low[order], high_sorted), order


def contains(run: Run, low: U64, high: U64) -> npt.NDArray[np.bool_]:
    """Which of the digests (uint64[n] each) occur in `run`."""
    run_low, run_high = run
    left = np.searchsorted(run_high, high, side="left")
    right = np.searchsorted(run_high, high, side="right")
    found = np.zeros(len(high), dtype=bool)
    single = np.flatnonzero(right - left == 1)
    found[single] = run_low[left[single]] == low[single]
    for i in np.flatnonzero(right - left > 1):
        found[i] = bool(np.any(run_low[left[i] : right[i]] == low[i]))
    return found


def merge(runs: list[Run]) -> Run:
    """One sorted run of all digests."""
    low = np.concatenate([r[0] for r in runs])
    high = np.concatenate([r[1] for r in runs])
    return sort_run(low, high)[0]


def same_run(one: Run, other: Run) -> bool:
    """Whether two runs hold the same set."""
    return len(one[0]) == len(other[0]) and bool(np.array_equal(one[1], other[1]) and np.array_equal(one[0], other[0]))


def run_bytes(run: Run) -> bytes:
    """The canonical bytes of a set of digests: equal sets, equal bytes."""
    return np.stack([run[1], run[0]]).astype("<u8").tobytes()
