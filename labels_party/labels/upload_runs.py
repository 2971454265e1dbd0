"""Id digests of one upload, sorted in bounded memory: duplicates are found over the whole upload."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from label_dp.ahead import in_turn
from label_dp.quota import processors
from labels_party.labels.runs import EMPTY, Run, Scratch, cut, merge, repeated, sort_run, total

BUFFER, BUFFER_BYTES = 1 << 20, 1 << 25  # ids whose digests are sorted at once, or their bytes: they wait in memory
KEPT = 1 << 22  # default number of digests of sorted parts in memory
THREADS = min(4, processors())

Rows = npt.NDArray[np.int64]


def merged_pieces(runs: list[Run], most: int = BUFFER) -> Iterator[Run]:
    """Merge sorted runs in consecutive sorted pieces of about `most` digests."""
    if total(runs) <= most:
        yield from map(merge, cut(runs, most))
        return
    with ThreadPoolExecutor(THREADS, "merge") as pool:
        yield from in_turn(pool, merge, cut(runs, most), THREADS - 1)


class UploadRuns:
    """Sorts ids into parts of about BUFFER digests, and finally into one run.

    `digests` fills (low, high) uint64[n] with those of n ids; a thread may call it. Digests beyond `in_memory` lie in
    `spill` until `close`; keyed, they reveal no id.
    """

    def __init__(self, spill: Path, digests: Callable[[Any, Run], object], in_memory: int | None = None) -> None:
        self.spill, self.digests, self.kept = spill, digests, KEPT if in_memory is None else in_memory
        self.repeated: Run = EMPTY  # digests that occur in more than one part
        self.again = 0  # how often, beyond the first time
        self._ids: list[Any] = []
        self._waiting = self._bytes = self._first = 0  # ids, their bytes, and the row of the first of them
        self._parts: list[Run] = []
        self._scratch = Scratch()
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

    def add(self, ids: Any, start: int) -> None:
        """Add ids of the rows from `start` on, which follow the previous ones."""
        if not self._waiting:
            self._first = start
        self._ids.append(ids)
        self._waiting += len(ids)
        self._bytes += ids.nbytes

    @property
    def full(self) -> bool:
        return self._waiting >= BUFFER or self._bytes >= BUFFER_BYTES

    def begin(self) -> None:
        """Start a thread that digests and sorts the ids added since the last part; `part` returns the result."""
        self._thread = self._thread or ThreadPoolExecutor(1, "runs")
        self._begun = self._thread.submit(self._unique, *self._added())

    @property
    def begun(self) -> bool:
        """True while a started part waits to be taken."""
        return self._begun is not None

    def part(self) -> tuple[Run, Rows, Rows]:
        """Return the started part, or the ids added since: (run without repetitions, their rows, rows of repeated
        ids). Rows are valid until the next part starts: their memory is reused."""
        if self._begun is not None:
            result, self._begun = self._begun.result(), None
        elif not self._waiting:  # the upload ended with a full part
            nothing = np.zeros(0, np.int64)
            return EMPTY, nothing, nothing
        else:
            result = self._unique(*self._added())
        self._parts.append(result[0])
        return result

    def _added(self) -> tuple[list[Any], int]:
        added = self._ids, self._first
        self._ids, self._waiting, self._bytes = [], 0, 0
        return added

    def _unique(self, ids: list[Any], first: int) -> tuple[Run, Rows, Rows]:
        """Return a run without repetitions, the rows of its digests, and those of repeated ids; rows counted from
        `first`."""
        ends = list(accumulate(map(len, ids)))
        low, high = (self._scratch.array(name, ends[-1]) for name in ("low", "high"))
        for part, end in zip(ids, ends, strict=True):
            rows_of_part = slice(end - len(part), end)
            self.digests(part, (low[rows_of_part], high[rows_of_part]))
        run, rows = sort_run(low, high, self._scratch)
        rows += first
        marks = repeated(run)
        if not marks.any():
            return run, rows, rows[:0]
        return (run[0][~marks], run[1][~marks]), rows[~marks], rows[marks]

    def make_room(self) -> None:
        """Move parts to disk if there are many; call it before adding more."""
        if total(self._parts[self._spilled :]) >= self.kept:
            for i in range(self._spilled, len(self._parts)):
                self._parts[i] = spilled([self._parts[i]], self._temporary(), len(self._parts[i][0]))
            self._spilled = len(self._parts)

    def finish(self) -> Run:
        """Return one sorted run of every digest, mapped from disk if it is large."""
        self._scratch.clear()
        if len(self._parts) < 2:
            return self._parts[0] if self._parts else EMPTY
        repeated_parts: list[Run] = []
        most = total(self._parts)
        large = most > KEPT

        def unique() -> Iterator[Run]:
            for piece in merged_pieces(self._parts) if large else (merge(self._parts),):
                marks = repeated(piece)
                self.again += int(marks.sum())
                if marks.any() and total(repeated_parts) < BUFFER:
                    repeated_parts.append((piece[0][marks], piece[1][marks]))
                    piece = piece[0][~marks], piece[1][~marks]
                yield piece

        run = spilled(unique(), self._temporary(), most) if large else _joined_runs(list(unique()))
        self._parts.clear()  # they may be mapped files
        if repeated_parts:
            self.repeated = _joined_runs(repeated_parts)
        return run

    def _temporary(self) -> Path:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="upload-", dir=self.spill)
        return Path(self._folder.name)


def spilled(pieces: Iterator[Run] | list[Run], folder: Path, most: int) -> Run:
    """Write consecutive pieces of a run, at most `most` digests, to a mapped file below `folder`. With exactly `most`
    digests the file has the vault's form, so a vault can take it."""
    path, rows = folder / f"{secrets.token_hex(8)}.run", 0
    with path.open("wb") as file:
        for piece in pieces:
            for half, first in zip(piece, (rows, most + rows), strict=True):
                file.seek(8 * first)
                file.write(np.ascontiguousarray(half, "<u8").data)
            rows += len(piece[0])
    if not rows:
        return EMPTY
    whole = np.memmap(path, np.uint64, "r")
    return whole[:rows], whole[most : most + rows]


def _joined(parts: list[Any]) -> Any:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _joined_runs(parts: list[Run]) -> Run:
    return _joined([part[0] for part in parts]), _joined([part[1] for part in parts])
