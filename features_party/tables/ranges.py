"""Pairs of row and index on disk, added in any order and read in the order of the rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

AT_ONCE = 1 << 20  # largest average of pairs in one file
INDEX_BITS = 40  # of 64; the upper ones are the row within the file's range
IntArray = npt.NDArray[np.int64]
NONE = np.empty(0, np.uint64)


class Ranges:
    """Pairs (row, index), with rows below `rows` and indices below 2⁴⁰, in files of `folder` whose names begin with
    `name`; about `expected` pairs. `count` is their number so far."""

    def __init__(self, folder: Path, name: str, rows: int, expected: int) -> None:
        self._folder, self._name = folder, name
        each = max(-(-expected // max(rows, 1)), 1)
        self._width = max(AT_ONCE // each, 1)
        self._next, self._rest = 0, NONE
        self.count, self._ranges = 0, -(-rows // self._width)

    def add(self, row: IntArray, index: IntArray) -> None:
        """Add N pairs; int64[N] both."""
        if not len(row):
            return
        self.count += len(row)
        place = row // self._width
        order = np.argsort(place.astype(np.uint16) if self._ranges < 1 << 16 else place, kind="stable")
        keys = (row - place * self._width).astype(np.uint64) << np.uint64(INDEX_BITS) | index.astype(np.uint64)
        keys, place = keys[order], place[order]
        starts = np.flatnonzero(np.diff(place, prepend=-1))
        for start, stop in zip(starts, [*starts[1:], len(keys)], strict=True):
            with self._path(int(place[start])).open("ab") as file:
                keys[start:stop].tofile(file)

    def up_to(self, stop: int) -> tuple[IntArray, IntArray]:
        """Return (row, index) int64[·] of the next pairs with a row below `stop`, by row and then by index; call it
        with rising stops, after the last `add`."""
        rows, indices = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        while len(self._rest) or self._next * self._width < stop:
            if not len(self._rest):
                self._fetch()
                continue
            start = (self._next - 1) * self._width
            at = int(np.searchsorted(self._rest, np.uint64(max(stop - start, 0) << INDEX_BITS)))
            keys, self._rest = self._rest[:at], self._rest[at:]
            rows.append(start + (keys >> np.uint64(INDEX_BITS)).astype(np.int64))
            indices.append((keys & np.uint64((1 << INDEX_BITS) - 1)).astype(np.int64))
            if len(self._rest):
                break
        return np.concatenate(rows), np.concatenate(indices)

    def _fetch(self) -> None:
        path = self._path(self._next)
        self._next += 1
        if path.exists():
            self._rest = np.fromfile(path, np.uint64)
            self._rest.sort()
            path.unlink()

    def _path(self, number: int) -> Path:
        return self._folder / f"{self._name}-{number}"
