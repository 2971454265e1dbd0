"""Sorted runs of 128-bit id digests: sets by merging, without a row per id in the database."""

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
PART, MEAN_PART = 8, 2  # log₂ of the parts of many digests, and of the digests that are sorted by insertion at a time
CACHED = 1 << 17  # digests that are merged at once
EMPTY: Run = (np.zeros(0, np.uint64), np.zeros(0, np.uint64))


class Scratch:
    """Memory that one thread uses again and again: new pages take up to a third of the time of a large sort."""

    def __init__(self) -> None:
        self._held: dict[str, npt.NDArray[Any]] = {}

    def array(self, name: str, n: int, kind: type = np.uint64) -> npt.NDArray[Any]:
        """kind[n], of no particular content, which the next call of that name gives again."""
        held = self._held.get(name)
        if held is None or len(held) < n:
            held = self._held[name] = np.empty(n, kind)
        return held[:n]

    def clear(self) -> None:
        self._held.clear()


def sort_run(low: U64, high: U64, scratch: Scratch | None = None) -> tuple[Run, npt.NDArray[np.int64]]:
    """The run of the given digests (uint64[n] each) and the order that sorted them, equal ones in their first order.

    The order may lie in `scratch`.
    """
    if kernels.worth(len(high)) and (found := sorted_in_parts(low, high, scratch or Scratch())) is not None:
        return found
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
    """As `sort_run`, for many digests that are about uniform; None where they are not."""
    from labels_party.labels.kernels import sort_digests

    n, low, high = len(high), np.ascontiguousarray(low), np.ascontiguousarray(high)
    run, order = (np.empty(n, np.uint64), np.empty(n, np.uint64)), scratch.array("order", n, np.int64)
    divided = scratch.array("divided", 2 * n).reshape(2, n), scratch.array("rows", n, np.uint32)
    done = sort_digests(low, high, *divided, *run, order, PART, max(1, n.bit_length() - PART - MEAN_PART))
    return (run, order) if done else None


def repeated(run: Run) -> Marks:
    """bool[n]: which digests of a run equal the one before them."""
    again = np.zeros(len(run[0]), dtype=bool)
    again[1:] = (run[1][1:] == run[1][:-1]) & (run[0][1:] == run[0][:-1])
    return again


def members(run: Run, asked: Run) -> Marks:
    """bool[m]: which digests of the run `asked` occur in `run`, with work that does not depend on which do."""
    found = np.zeros(len(asked[0]), dtype=bool)
    if not len(run[0]):
        return found
    if kernels.worth(len(asked[0])):
        from labels_party.labels.kernels import mark_members

        mark_members(*run, *asked, found)
        return found
    mixed = np.argsort(asked[0])  # in their own order, one that is there would help to find the next
    low, high = asked[0][mixed], asked[1][mixed]
    at = locate(run, (low, high))
    found[mixed] = (run[1][at] == high) & (run[0][at] == low)
    return found


def among(run: Run, runs: Iterable[Run]) -> Marks:
    """bool[n]: which digests of `run` occur in any of `runs`."""
    found = np.zeros(len(run[0]), dtype=bool)
    for other in runs:
        found |= members(other, run)
    return found


def only(run: Run, marks: Marks) -> Run:
    """The marked digests of a run."""
    return run if marks.all() else (run[0][marks], run[1][marks])


def locate(run: Run, asked: Run) -> npt.NDArray[np.int64]:
    """int64[m]: the first place in `run` of each digest of `asked`, in any order; of an absent one, any place."""
    last = len(run[0]) - 1
    at = np.minimum(np.searchsorted(run[1], asked[1], side="left"), last)

    behind = np.arange(len(at))
    while behind.size:  # once, but for 64-bit collisions, of which there are hardly any
        here = at[behind]
        ahead = (run[1][here] == asked[1][behind]) & (run[0][here] < asked[0][behind]) & (here < last)
        behind = behind[ahead]
        at[behind] += 1
    return at


def beyond(runs: list[Run], others: list[Run]) -> Run:
    """The digests that `runs` hold more often than `others` do, each once. What `others` hold, `runs` hold as well."""
    whole, taken = merge(runs), merge(others)
    if len(taken[0]):
        shared = only(whole, members(taken, whole))
        as_often = _times(shared) <= _times(taken)
        whole = only(whole, ~members(only(_each(taken), as_often), whole))
    return _each(whole)


def within(runs: Iterable[Run], asked: Run) -> list[Run]:
    """What each of the runs has of the digests `asked`, as often."""
    return [only(run, members(asked, run)) for run in runs]


def _each(run: Run) -> Run:
    return only(run, ~repeated(run))


def _times(run: Run) -> npt.NDArray[np.int64]:
    """How often each digest of a run occurs in it."""
    return np.diff(np.append(np.flatnonzero(~repeated(run)), len(run[0])))


def contains(run: Run, low: U64, high: U64) -> Marks:
    """bool[n]: which of the digests (uint64[n] each, in any order) occur in `run`."""
    asked, order = sort_run(low, high)
    found = np.empty(len(low), dtype=bool)
    found[order] = members(run, asked)
    return found


def total(runs: list[Run]) -> int:
    """Digests of all runs."""
    return sum(len(run[0]) for run in runs)


def cut(runs: list[Run], most: int) -> Iterator[list[Run]]:
    """What each of the runs has in consecutive ranges of about `most` digests together, empty ranges left out.

    Digests are uniform, so equal ranges of them hold about equally many.
    """
    pieces = max(1, -(-total(runs) // most))
    bounds = np.array([(i << 64) // pieces for i in range(1, pieces)], np.uint64)
    ends = [[0, *np.searchsorted(run[1], bounds).tolist(), len(run[0])] for run in runs]
    for i in range(pieces):
        inside = [(run, slice(end[i], end[i + 1])) for run, end in zip(runs, ends, strict=True) if end[i + 1] > end[i]]
        if inside:
            yield [(run[0][part], run[1][part]) for run, part in inside]


def merge(runs: list[Run]) -> Run:
    """One sorted run of all digests."""
    if len(runs) < 2:
        return runs[0] if runs else EMPTY
    if not kernels.worth(total(runs)):
        return sort_run(np.concatenate([r[0] for r in runs]), np.concatenate([r[1] for r in runs]))[0]
    low, high = np.empty(total(runs), np.uint64), np.empty(total(runs), np.uint64)
    at, scratch = 0, Scratch()
    for piece in cut(runs, CACHED):  # what is between the first merge and the last stays within the cache
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
    """Whether two runs hold the same set."""
    return len(one[0]) == len(other[0]) and bool(np.array_equal(one[1], other[1]) and np.array_equal(one[0], other[0]))


def page_out(run: Run) -> None:
    """Give back the memory of a run that is mapped from a file; it is read again when it is used again."""
    for half in run:
        held: Any = half
        while held is not None and not isinstance(held, mmap.mmap):
            held = held.obj if isinstance(held, memoryview) else getattr(held, "base", None)
        if held is not None and hasattr(mmap, "MADV_DONTNEED"):
            held.madvise(mmap.MADV_DONTNEED)


def run_parts(run: Run) -> tuple[memoryview, memoryview]:
    """The canonical bytes of a set of digests in two parts: equal sets, equal bytes."""
    high, low = (np.ascontiguousarray(half, "<u8") for half in (run[1], run[0]))
    return high.view(np.uint8).data, low.view(np.uint8).data
