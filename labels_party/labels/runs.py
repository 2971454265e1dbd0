"""Sorted runs of 128-bit id digests: sets by merging, without a database row per id."""

from __future__ import annotations

import heapq
import mmap
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from labels_party.labels.digests import U64, kernels

Run = tuple[U64, U64]
Marks = npt.NDArray[np.bool_]
PART, MEAN_PART = 8, 2  # log₂ of: parts of many digests, digests per insertion sort
CACHED = 1 << 17  # digests merged at once
EMPTY: Run = (np.zeros(0, np.uint64), np.zeros(0, np.uint64))


class Scratch:
    """Memory reused by one thread: new pages take up to a third of the time of a large sort."""

    def __init__(self) -> None:
        self._held: dict[str, npt.NDArray[Any]] = {}

    def array(self, name: str, n: int, kind: type = np.uint64) -> npt.NDArray[Any]:
        """Return kind[n] of arbitrary content; the next call with this name returns the same memory."""
        memory = self._held.get(name)
        if memory is None or len(memory) < n:
            memory = self._held[name] = np.empty(n, kind)
        return memory[:n]

    def clear(self) -> None:
        self._held.clear()


def sort_run(low: U64, high: U64, scratch: Scratch | None = None) -> tuple[Run, npt.NDArray[np.int64]]:
    """Sort digests (uint64[n] each) into a run; also return the stable order, which may lie in `scratch`."""
    if kernels.worth(len(high)) and (result := sorted_in_parts(low, high, scratch or Scratch())) is not None:
        return result
    # the row in the low bits of a cut digest: sorting numbers is several times as quick as finding their order
    bits = np.uint64(max(1, (len(high) - 1).bit_length()))
    coded = (high >> bits << bits) | np.arange(len(high), dtype=np.uint64)
    coded.sort()
    order = (coded & ((np.uint64(1) << bits) - np.uint64(1))).astype(np.int64)
    coded >>= bits
    run = low[order], high[order]
    # as far as they were kept; equal digests are in order, and how many there are costs nothing
    wrong = (run[1][1:] < run[1][:-1]) | ((run[1][1:] == run[1][:-1]) & (run[0][1:] < run[0][:-1]))
    if wrong.any():
        tied = np.flatnonzero(np.isin(coded, coded[1:][wrong]))
        rows = order[tied]
        order[tied] = rows[np.lexsort((low[rows], high[rows]))]
        run = low[order], high[order]
    return run, order


def sorted_in_parts(low: U64, high: U64, scratch: Scratch) -> tuple[Run, npt.NDArray[np.int64]] | None:
    """Sort as `sort_run` does, for many digests; returns None if they are not about uniform."""
    from labels_party.labels.kernels import sort_digests

    n, low, high = len(high), np.ascontiguousarray(low), np.ascontiguousarray(high)
    run, order = (np.empty(n, np.uint64), np.empty(n, np.uint64)), scratch.array("order", n, np.int64)
    divided = scratch.array("divided", 2 * n).reshape(2, n), scratch.array("rows", n, np.uint32)
    uniform = sort_digests(low, high, *divided, *run, order, PART, max(1, n.bit_length() - PART - MEAN_PART))
    return (run, order) if uniform else None


def repeated(run: Run) -> Marks:
    """Mark bool[n] of digests that equal the one before."""
    again = np.zeros(len(run[0]), dtype=bool)
    again[1:] = (run[1][1:] == run[1][:-1]) & (run[0][1:] == run[0][:-1])
    return again


def members(run: Run, queries: Run) -> Marks:
    """Mark bool[m] of the digests of `queries` that occur in `run`; the work does not depend on which do."""
    marks = np.zeros(len(queries[0]), dtype=bool)
    if not len(run[0]):
        return marks
    if kernels.worth(len(queries[0])):
        from labels_party.labels.kernels import mark_members

        mark_members(*run, *queries, marks)
        return marks
    mixed = np.argsort(queries[0])  # in sorted order, a hit would speed up the next search
    low, high = queries[0][mixed], queries[1][mixed]
    at = locate(run, (low, high))
    marks[mixed] = (run[1][at] == high) & (run[0][at] == low)
    return marks


def among(run: Run, runs: Iterable[Run]) -> Marks:
    """Mark bool[n] of the digests of `run` that occur in any of `runs`."""
    marks = np.zeros(len(run[0]), dtype=bool)
    for other in runs:
        marks |= members(other, run)
    return marks


def only(run: Run, marks: Marks) -> Run:
    """Select the marked digests of a run."""
    return run if marks.all() else (run[0][marks], run[1][marks])


def locate(run: Run, queries: Run) -> npt.NDArray[np.int64]:
    """Find the first place int64[m] in `run` of each query, in any order; any place for an absent one."""
    last = len(run[0]) - 1
    at = np.minimum(np.searchsorted(run[1], queries[1], side="left"), last)

    behind = np.arange(len(at))
    while behind.size:  # once, but for 64-bit collisions, of which there are hardly any
        here = at[behind]
        ahead = (run[1][here] == queries[1][behind]) & (run[0][here] < queries[0][behind]) & (here < last)
        behind = behind[ahead]
        at[behind] += 1
    return at


def beyond(runs: list[Run], others: list[Run]) -> Run:
    """Return the digests that `runs` hold more often than `others`, each once; `runs` contain all of `others`."""
    whole, excluded = merge(runs), merge(others)
    if len(excluded[0]):
        shared = only(whole, members(excluded, whole))
        as_often = _times(shared) <= _times(excluded)
        whole = only(whole, ~members(only(_each(excluded), as_often), whole))
    return _each(whole)


def within(runs: Iterable[Run], queries: Run) -> list[Run]:
    """Select the digests of each run that are in `queries`, repetitions included."""
    return [only(run, members(queries, run)) for run in runs]


def _each(run: Run) -> Run:
    return only(run, ~repeated(run))


def _times(run: Run) -> npt.NDArray[np.int64]:
    """Count each distinct digest of a run."""
    return np.diff(np.append(np.flatnonzero(~repeated(run)), len(run[0])))


def contains(run: Run, low: U64, high: U64) -> Marks:
    """Mark bool[n] of digests (uint64[n] each, in any order) that occur in `run`."""
    queries, order = sort_run(low, high)
    marks = np.empty(len(low), dtype=bool)
    marks[order] = members(run, queries)
    return marks


def total(runs: list[Run]) -> int:
    """Count the digests of all runs."""
    return sum(len(run[0]) for run in runs)


def cut(runs: list[Run], most: int) -> Iterator[list[Run]]:
    """Cut runs at common bounds into ranges of about `most` digests together; skip empty ranges. Digests are uniform,
    so equal ranges hold about equally many."""
    pieces = max(1, -(-total(runs) // most))
    bounds = np.array([(i << 64) // pieces for i in range(1, pieces)], np.uint64)
    ends = [[0, *np.searchsorted(run[1], bounds).tolist(), len(run[0])] for run in runs]
    for i in range(pieces):
        inside = [(run, slice(end[i], end[i + 1])) for run, end in zip(runs, ends, strict=True) if end[i + 1] > end[i]]
        if inside:
            yield [(run[0][part], run[1][part]) for run, part in inside]


def merge(runs: list[Run]) -> Run:
    """Merge into one sorted run."""
    if len(runs) < 2:
        return runs[0] if runs else EMPTY
    if not kernels.worth(total(runs)):
        return sort_run(np.concatenate([r[0] for r in runs]), np.concatenate([r[1] for r in runs]))[0]
    low, high = np.empty(total(runs), np.uint64), np.empty(total(runs), np.uint64)
    at, scratch = 0, Scratch()
    for piece in cut(runs, CACHED):  # intermediate merges stay within the cache
        stop = at + total(piece)
        _merge_into((low[at:stop], high[at:stop]), piece, scratch)
        at = stop
    return low, high


def _merge_into(out: Run, runs: list[Run], scratch: Scratch) -> None:
    """Fill `out` with the merge of `runs`, at least one."""
    from labels_party.labels.kernels import merge_two

    if len(runs) == 1:
        out[0][:], out[1][:] = runs[0]
        return
    # the two shortest first: every digest is then moved about log₂(runs) times
    waiting = [(len(run[0]), number, run) for number, run in enumerate(runs)]
    heapq.heapify(waiting)
    for number in range(len(runs), 2 * len(runs) - 1):
        (n, _, one), (m, _, other) = heapq.heappop(waiting), heapq.heappop(waiting)
        low, high = (scratch.array(f"{half}{number}", n + m) for half in ("low", "high")) if waiting else out
        merge_two(*one, *other, low, high)
        heapq.heappush(waiting, (n + m, number, (low, high)))


def same_run(one: Run, other: Run) -> bool:
    """Return whether two runs hold the same set."""
    return len(one[0]) == len(other[0]) and bool(np.array_equal(one[1], other[1]) and np.array_equal(one[0], other[0]))


def page_out(run: Run) -> None:
    """Release the memory of a run mapped from a file; the next access reads it again."""
    for half in run:
        memory: Any = half
        while memory is not None and not isinstance(memory, mmap.mmap):
            memory = memory.obj if isinstance(memory, memoryview) else getattr(memory, "base", None)
        if memory is not None and hasattr(mmap, "MADV_DONTNEED"):
            memory.madvise(mmap.MADV_DONTNEED)


def run_parts(run: Run) -> tuple[memoryview, memoryview]:
    """Return the canonical bytes of a set of digests in two parts: equal sets, equal bytes."""
    high, low = (np.ascontiguousarray(half, "<u8") for half in (run[1], run[0]))
    return high.view(np.uint8).data, low.view(np.uint8).data
