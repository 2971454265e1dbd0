"""Chunks of an upload's rows, and faults in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from label_dp.errors import InvalidRows, RowProblem

if TYPE_CHECKING:
    import pyarrow as pa

CHUNK_ROWS = 1 << 16
TWICE = "this id occurred in an earlier row"
MOST_COUNTED = 100_000  # bad rows after which the rest of an upload is not looked at


@dataclass(frozen=True)
class Chunk:
    """Rows of an upload as a table, or their `faults` (rows counted from the chunk's first). `line`: line of the
    upload, from 1, on which a row of the chunk begins; None if lines are meaningless."""

    table: pa.Table | None
    rows: int
    faults: InvalidRows | None = None
    line: Callable[[int], int] | None = None


Chunks = Iterable["pa.RecordBatch | pa.Table | Chunk"]


def sliced(chunks: Chunks) -> Iterator[Chunk]:
    """Cut the rows into chunks of at most CHUNK_ROWS; skip empty ones."""
    for piece in chunks:
        chunk = piece if isinstance(piece, Chunk) else Chunk(_table(piece), piece.num_rows)
        if chunk.table is None or chunk.rows <= CHUNK_ROWS:
            if chunk.rows:
                yield chunk
            continue
        for start in range(0, chunk.rows, CHUNK_ROWS):
            part = chunk.table.slice(start, CHUNK_ROWS)
            yield Chunk(part, part.num_rows, line=_shifted(chunk.line, start))


def _table(rows: Any) -> pa.Table:
    import pyarrow as pa

    return rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])


def _shifted(line: Callable[[int], int] | None, start: int) -> Callable[[int], int] | None:
    return None if line is None else lambda row: line(start + row)


class Findings:
    """Bad rows over all chunks of an upload: keeps the first, counts all (up to about MOST_COUNTED)."""

    def __init__(self) -> None:
        self.problems: list[RowProblem] = []
        self.total = 0

    def __bool__(self) -> bool:
        return self.total > 0

    @property
    def enough(self) -> bool:
        return self.total >= MOST_COUNTED

    def add(self, faults: InvalidRows, start: int, chunk: Chunk) -> None:
        """Add faults of a chunk whose first row is row `start` of the upload."""
        for problem in faults.problems:
            line = chunk.line(problem.row) if chunk.line is not None else problem.line
            self.problems.append(replace(problem, row=start + problem.row, line=line))
        self._count(faults.total)

    def add_rows(self, rows: npt.NDArray[np.int64], field: str, rule: str) -> None:
        """Add rows of the upload, in any order, that break one rule."""
        first = np.sort(rows)[: InvalidRows.shown] if rows.size else rows
        self.problems += [RowProblem(int(row), field, rule) for row in first]
        self._count(rows.size)

    def _count(self, more: int) -> None:
        self.total += more
        self.problems = sorted(self.problems, key=lambda p: p.row)[: InvalidRows.shown]

    def error(self) -> InvalidRows:
        return InvalidRows(self.problems, self.total)
