"""Third step of an upload: digests of its ids, compared with each other and with the batch's."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from label_dp.errors import Conflict, DuplicateId, InvalidFile, InvalidRows
from labels_party.labels.aside import digests_of
from labels_party.labels.batch_index import BatchIndex
from labels_party.labels.batches import ID_LIST, INSERT
from labels_party.labels.chunks import TWICE, Findings
from labels_party.labels.digests import siphash128
from labels_party.labels.runs import EMPTY, Marks, Run, among, beyond, contains, locate, members, only, within
from labels_party.labels.submission import Submission
from labels_party.labels.upload_rows import Rows
from labels_party.labels.upload_runs import UploadRuns
from labels_party.labels.vault import LabelVault

if TYPE_CHECKING:
    import pyarrow as pa

UNKNOWN = "is not in the batch's list of example ids"
TAKEN = "has a record already; a second one is refused whatever it says, except with mode=upsert"


class Compared:
    """Digests of one upload; at the end `run` holds each once. An owner's insert is refused if an id has a record.
    Another's is set `aside` if any upload had one of its ids; the work is the same in both cases."""

    def __init__(
        self,
        submission: Submission,
        batch_index: BatchIndex,
        findings: Findings,
        vault: LabelVault,
        key: bytes,
        spill: Path,
        in_memory: int | None = None,
    ) -> None:
        """Prepare the comparison; `in_memory` is the count of digests that may wait in memory."""
        self.submission, self.known, self.findings = submission, batch_index, findings
        self.vault, self.key = vault, key
        self.run: Run = EMPTY
        self.rows, self.aside = 0, False
        self._runs, self._taken = UploadRuns(spill, lambda ids, out: siphash128(ids, key, out), in_memory), Findings()
        self._ids: Callable[[], Iterator[pa.Array]] = lambda: iter(())

    def close(self) -> None:
        """Remove the temporary files."""
        self._runs.close()

    def digested(self, rows: Iterator[Rows]) -> Iterator[Rows]:
        """Yield the same rows and collect their digests. Raises Conflict if labels came before a list of ids."""
        for part in rows:
            self.rows += len(part.ids)
            self._runs.add(part.ids, part.start)
            yield part
            if self._runs.full:
                if self._runs.begun:  # the previous part, sorted by a thread meanwhile
                    self._compare()
                    self._runs.make_room()
                self._runs.begin()

    def finish(self, ids: Callable[[], Iterator[pa.Array]]) -> None:
        """Finish the comparison; `ids` yields the ids again in row order. Raises InvalidRows, DuplicateId,
        InvalidFile, Conflict."""
        self._ids = ids
        if not self.findings:
            if not self.rows:
                raise InvalidFile("There is no row in the upload; send at least one.")
            if self._runs.begun:
                self._compare()
            self._compare()
            self.run = self._runs.finish()
            if self._runs.again:
                self.findings.add_rows(self._rows_of(self._runs.repeated, later=True), self.submission.id_field, TWICE)
                self.findings.total = max(self.findings.total, self._runs.again)
        if self.findings:
            raise self.findings.error()
        if self._taken:
            raise _duplicates(self._taken)

    def compare_again(self, batch_index: BatchIndex) -> None:
        """Compare with uploads that came to the batch since. Raises DuplicateId, InvalidRows, Conflict."""
        if batch_index.listed.keys() - self.known.listed.keys():
            strange = ~among(self.run, batch_index.listed.values())
            if strange.any():
                raise self._found(strange, UNKNOWN).error()
        if self.submission.mode == INSERT:
            duplicates = self._held(self.run, batch_index, self.known.taken.keys())
            if self.submission.owner and duplicates.any():
                raise _duplicates(self._found(duplicates, TAKEN))
            self.aside |= bool(np.count_nonzero(duplicates))
        self.known = batch_index

    # --- parts --------------------------------------------------------------------------------------------

    def _compare(self) -> None:
        """Check the digests since the last time for duplicates, unlisted ids and, in an insert, ids with records."""
        run, rows, again = self._runs.part()
        field = self.submission.id_field
        self.findings.add_rows(again, field, TWICE)
        if self.submission.mode is None:
            return
        self.known.require_list()
        if self.known.batch.presence == ID_LIST:
            self.findings.add_rows(rows[~among(run, self.known.listed.values())], field, UNKNOWN)
        if self.submission.mode == INSERT:
            duplicates = self._held(run, self.known)
            if self.submission.owner:
                self._taken.add_rows(rows[duplicates], field, TAKEN)
            self.aside |= bool(np.count_nonzero(duplicates))  # all of them: `any` ends at the first

    def _held(self, run: Run, batch_index: BatchIndex, skipped: Container[str] = ()) -> Marks:
        """Mark bool[n] of the digests of an insert's `run` that are taken, without the runs in `skipped`. Taken means:
        in an upload that counts for an owner, in any upload for others."""
        marks = among(run, (taken_run for key, taken_run in batch_index.taken.items() if key not in skipped))
        if not (self.submission.owner and batch_index.held_back and marks.any()):
            return marks
        suspects = only(run, marks)
        back = digests_of(self.vault, batch_index.held_back, self.key)
        marks[marks] = members(beyond(within(batch_index.taken.values(), suspects), within(back, suspects)), suspects)
        return marks

    def _found(self, marks: Marks, rule: str) -> Findings:
        rows = self._rows_of(only(self.run, marks))
        if not rows.size:
            raise Conflict("The batch changed during this upload, which no longer fits it. Nothing was stored.")
        findings = Findings()
        findings.add_rows(rows, self.submission.id_field, rule)
        return findings

    def _rows_of(self, digests: Run, *, later: bool = False) -> npt.NDArray[np.int64]:
        """Return the first rows (at most InvalidRows.shown) with one of the digests; `later`: from the second
        occurrence on. Returns none if the order of rows was not kept: an upsert with deletions."""
        rows: list[int] = []
        occurred = np.zeros(len(digests[0]), dtype=bool)
        start = 0
        for ids in self._ids():
            low, high = siphash128(ids, self.key)
            marked = np.flatnonzero(contains(digests, low, high))
            for row, at in zip(marked, locate(digests, (low[marked], high[marked])), strict=True):
                if occurred[at] or not later:
                    rows.append(start + int(row))
                occurred[at] = True
                if len(rows) >= InvalidRows.shown:
                    return np.array(rows)
            start += len(ids)
        return np.array(rows, np.int64)


def _duplicates(findings: Findings) -> DuplicateId:
    first = findings.problems[0]
    detail = f"Row {first.number}, field '{first.field}': {TAKEN}. Nothing of this upload was stored."
    return DuplicateId(detail, findings.problems)
