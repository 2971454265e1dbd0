"""Second step of an upload: rows with canonical ids and labels as domain positions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from label_dp.errors import InvalidRows
from labels_party.labels import parsing
from labels_party.labels.batches import DELETE, UPSERT
from labels_party.labels.chunks import Chunk, Findings
from labels_party.labels.submission import Submission

if TYPE_CHECKING:
    import pyarrow as pa

DELETED = -1  # in place of a label's position


@dataclass(frozen=True)
class Rows:
    """Rows of an upload from its row `start` on. `positions`: int64[n] of labels, or DELETED; None in a list of
    examples. `times`: of examples, int64[n] Unix seconds, where events count from them."""

    start: int
    ids: pa.Array
    units: pa.Array | None
    positions: npt.NDArray[np.int64] | None
    times: npt.NDArray[np.int64] | None = None

    def only(self, mask: npt.NDArray[np.bool_]) -> Rows:
        """Select the marked rows; `start` is meaningless in the result."""
        import pyarrow as pa

        marks = pa.array(mask)
        units = None if self.units is None else self.units.filter(marks)
        positions = None if self.positions is None else self.positions[mask]
        return Rows(self.start, self.ids.filter(marks), units, positions)


def checked(chunks: Iterable[Chunk], submission: Submission, findings: Findings) -> Iterator[Rows]:
    """Yield the rows up to the first bad one; add its fault and later ones to `findings`."""
    start = 0
    for chunk in chunks:
        try:
            rows = _rows(chunk, start, submission)
        except InvalidRows as faults:
            findings.add(faults, start, chunk)
            if findings.enough:
                return
        else:
            if not findings:
                yield rows
        start += chunk.rows


def _rows(chunk: Chunk, start: int, submission: Submission) -> Rows:
    """Check one chunk. Raises InvalidRows with rows counted from the chunk's first."""
    if chunk.faults is not None:
        raise chunk.faults
    table = chunk.table
    assert table is not None
    ids = parsing.canonical_column(table[submission.id_field], submission.id_field)
    ids = parsing.prefixed(ids, submission.batch.id_prefix, submission.id_field)
    units = (
        parsing.canonical_column(table[submission.unit_field], submission.unit_field, parsing.UNIT)
        if submission.units
        else None
    )
    if submission.mode is None:
        times = parsing.whole_seconds(table[parsing.TIME]) if submission.times else None
        return Rows(start, ids, units, None, times)
    if submission.mode == DELETE:
        return Rows(start, ids, units, np.full(len(ids), DELETED))
    return Rows(start, ids, units, _positions(table[submission.label_field], submission))


def _positions(column: Any, submission: Submission) -> npt.NDArray[np.int64]:
    import pyarrow as pa

    gone = parsing.absent(column) if submission.mode == UPSERT else np.zeros(0, np.bool_)
    if not gone.any():
        return _coded(column, submission)
    rows, result = np.flatnonzero(~gone), np.full(len(gone), DELETED)
    try:
        result[rows] = _coded(parsing.readable(column).filter(pa.array(~gone)), submission)
    except InvalidRows as faults:
        moved = [replace(problem, row=int(rows[problem.row])) for problem in faults.problems]
        raise InvalidRows(moved, faults.total) from None
    return result


def _coded(column: Any, submission: Submission) -> npt.NDArray[np.int64]:
    population, field = submission.population, submission.label_field
    return parsing.positions_of(column, population.domain, population.out_of_domain, field)
