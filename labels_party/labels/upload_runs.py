"""The id digests of one upload, sorted with bounded memory: duplicates are found over the whole of it."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from labels_party.labels.digests import U64
from labels_party.labels.runs import EMPTY, Run, merge, repeated, sort_run

BUFFER = 1 << 20  # digests sorted at once
KEPT = 1 << 22  # digests of sorted parts that stay in memory

Rows = npt.NDArray[np.int64]


def merged_pieces(runs: list[Run], most: int = BUFFER) -> Iterator[Run]:
    """The merge of sorted runs in consecutive sorted pieces of about `most` digests.

    Digests are uniform, so equal ranges of them hold about equally many.
    """
    total = sum(len(run[0]) for run in runs)
    if not total:
        return
    parts = -(-total // most)
    bounds = np.array([(i << 64) // parts for i in range(1, parts)], np.uint64)
    cuts = [[0, *np.searchsorted(run[1], bounds).tolist(), len(run[0])] for run in runs]
    for i in range(parts):
        inside = [slice(cut[i], cut[i + 1]) for cut in cuts]
        pieces = [(run[0][s], run[1][s]) for run, s in zip(runs, inside, strict=True) if s.stop > s.start]
        if pieces:
            yield merge(pieces)


class UploadRuns:
    """Digests go in with their rows; sorted parts of about BUFFER come out, and at last one run of all.

    Parts of a large upload lie in `spill` until `close` (keyed digests, which tell no id).
    """

    def __init__(self, spill: Path) -> None:
        self.spill = spill
        self.repeated: Run = EMPTY  # digests that occur in more than one part
        self.again = 0  # how often, beyond the first time
        self._low: list[U64] = []
        self._high: list[U64] = []
        self._waiting = self._first = 0  # digests, and the row of the first of them
        self._parts: list[Run] = []
        self._spilled = 0
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._begun: Future[tuple[Run, Rows, Rows]] | None = None

    def close(self) -> None:
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)
        self._parts.clear()
        if self._folder is not None:
            self._folder.cleanup()

    def add(self, low: U64, high: U64, start: int) -> None:
        """Digests of the rows from `start` on, which follow those of the last time."""
        if not self._waiting:
            self._first = start
        self._low.append(low)
        self._high.append(high)
        self._waiting += len(low)

    @property
    def full(self) -> bool:
        return self._waiting >= BUFFER

    def begin(self) -> None:
        """Have a thread sort what was added since the last part, which `part` gives; more is added meanwhile."""
        self._thread = self._thread or ThreadPoolExecutor(1, "runs")
        self._begun = self._thread.submit(_unique, *self._added())

    @property
    def begun(self) -> bool:
        """Whether a part that was begun waits to be taken."""
        return self._begun is not None

    def part(self) -> tuple[Run, Rows, Rows]:
        """What was begun, or else what was added since: (a run without repetitions, their rows, rows of repeated
        ids)."""
        if self._begun is not None:
            found, self._begun = self._begun.result(), None
        elif not self._waiting:  # the upload ended with a full part
            nothing = np.zeros(0, np.int64)
            return EMPTY, nothing, nothing
        else:
            found = _unique(*self._added())
        self._parts.append(found[0])
        return found

    def _added(self) -> tuple[U64, U64, int]:
        added = _joined(self._low), _joined(self._high), self._first
        self._low, self._high, self._waiting = [], [], 0
        return added

    def make_room(self) -> None:
        """Move parts out of memory where there are many; call it when more will come."""
        if sum(len(part[0]) for part in self._parts[self._spilled :]) >= KEPT:
            for i in range(self._spilled, len(self._parts)):
                self._parts[i] = spilled([self._parts[i]], self._temporary())
            self._spilled = len(self._parts)

    def finish(self) -> Run:
        """One sorted run of every digest, mapped from disk where it is large."""
        if len(self._parts) < 2:
            return self._parts[0] if self._parts else EMPTY
        found: list[Run] = []

        def unique() -> Iterator[Run]:
            for piece in merged_pieces(self._parts) if self._spilled else (merge(self._parts),):
                marks = repeated(piece)
                self.again += int(marks.sum())
                if marks.any() and sum(len(f[0]) for f in found) < BUFFER:
                    found.append((piece[0][marks], piece[1][marks]))
                    piece = piece[0][~marks], piece[1][~marks]
                yield piece

        run = spilled(unique(), self._temporary()) if self._spilled else _joined_runs(list(unique()))
        self._parts.clear()  # they may be mapped files
        if found:
            self.repeated = _joined_runs(found)
        return run

    def _temporary(self) -> Path:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="upload-", dir=self.spill)
        return Path(self._folder.name)


def spilled(pieces: Iterator[Run] | list[Run], folder: Path) -> Run:
    """Consecutive pieces of a run, written to two files below `folder` and mapped."""
    low, high = (folder / f"{secrets.token_hex(8)}.{half}" for half in ("low", "high"))
    with low.open("wb") as low_file, high.open("wb") as high_file:
        for piece in pieces:
            low_file.write(np.ascontiguousarray(piece[0]).data)
            high_file.write(np.ascontiguousarray(piece[1]).data)
        if not high_file.tell():
            return EMPTY
    return np.memmap(low, np.uint64, "r"), np.memmap(high, np.uint64, "r")


def _unique(low: U64, high: U64, first: int) -> tuple[Run, Rows, Rows]:
    """A run without repetitions, the rows of its digests, and those of repeated ids; rows counted from `first`."""
    run, order = sort_run(low, high)
    rows = order + first
    marks = repeated(run)
    if not marks.any():
        return run, rows, rows[:0]
    return (run[0][~marks], run[1][~marks]), rows[~marks], rows[marks]


def _joined(parts: list[Any]) -> Any:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _joined_runs(parts: list[Run]) -> Run:
    return _joined([part[0] for part in parts]), _joined([part[1] for part in parts])
