"""An upload's third step: the digests of its ids, compared with each other and with what the batch held."""

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
from labels_party.labels.checked import Rows
from labels_party.labels.chunks import TWICE, Findings
from labels_party.labels.digests import siphash128
from labels_party.labels.runs import EMPTY, Marks, Run, among, beyond, contains, members, only, within
from labels_party.labels.submission import Submission
from labels_party.labels.upload_runs import UploadRuns
from labels_party.labels.vault import LabelVault

if TYPE_CHECKING:
    import pyarrow as pa

UNKNOWN = "is not in the batch's list of example ids"
TAKEN = "has a record already; a second one is refused whatever it says, except with mode=upsert"


class Compared:
    """The digests of one upload. `run` holds each once at the end. An owner's insert is refused where an id has a
    record; another's is set `aside` where any upload had one of its ids, with the same work whichever it is."""

    def __init__(
        self,
        submission: Submission,
        known: BatchIndex,
        findings: Findings,
        vault: LabelVault,
        key: bytes,
        spill: Path,
        kept: int | None = None,
    ) -> None:
        """`kept`: digests that may wait in memory."""
        self.submission, self.known, self.findings = submission, known, findings
        self.vault, self.key = vault, key
        self.run: Run = EMPTY
        self.rows, self.aside = 0, False
        self._runs, self._taken = UploadRuns(spill, lambda ids, out: siphash128(ids, key, out), kept), Findings()
        self._ids: Callable[[], Iterator[pa.Array]] = lambda: iter(())

    def close(self) -> None:
        """Remove the temporary files."""
        self._runs.close()

    def digested(self, rows: Iterator[Rows]) -> Iterator[Rows]:
        """The same rows, their digests noted. Raises Conflict where no list of ids came before labels."""
        for part in rows:
            self.rows += len(part.ids)
            self._runs.add(part.ids, part.start)
            yield part
            if self._runs.full:
                if self._runs.begun:  # the part before, which a thread sorted meanwhile
                    self._compare()
                    self._runs.make_room()
                self._runs.begin()

    def finish(self, ids: Callable[[], Iterator[pa.Array]]) -> None:
        """All rows went by; `ids` gives theirs once more, in their order. Raises InvalidRows, DuplicateId, InvalidFile,
        Conflict."""
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

    def compare_again(self, known: BatchIndex) -> None:
        """With what came to the batch since. Raises DuplicateId, InvalidRows, Conflict."""
        if known.listed.keys() - self.known.listed.keys():
            strange = ~among(self.run, known.listed.values())
            if strange.any():
                raise self._found(strange, UNKNOWN).error()
        if self.submission.mode == INSERT:
            taken = self._held(self.run, known, self.known.taken.keys())
            if self.submission.owner and taken.any():
                raise _duplicates(self._found(taken, TAKEN))
            self.aside |= bool(np.count_nonzero(taken))
        self.known = known

    # --- parts --------------------------------------------------------------------------------------------

    def _compare(self) -> None:
        """Duplicates, unlisted ids and, for an insert, ids with records among the digests since the last time."""
        run, rows, again = self._runs.part()
        field = self.submission.id_field
        self.findings.add_rows(again, field, TWICE)
        if self.submission.mode is None:
            return
        self.known.require_list()
        if self.known.batch.presence == ID_LIST:
            self.findings.add_rows(rows[~among(run, self.known.listed.values())], field, UNKNOWN)
        if self.submission.mode == INSERT:
            taken = self._held(run, self.known)
            if self.submission.owner:
                self._taken.add_rows(rows[taken], field, TAKEN)
            self.aside |= bool(np.count_nonzero(taken))  # all of them: `any` ends at the first

    def _held(self, run: Run, known: BatchIndex, seen: Container[str] = ()) -> Marks:
        """bool[n]: which digests of an insert's `run` an upload has that counts, or, for who is no owner, any upload;
        but for the runs that were `seen`."""
        marks = among(run, (found for key, found in known.taken.items() if key not in seen))
        if not (self.submission.owner and known.held_back and marks.any()):
            return marks
        asked = only(run, marks)
        back = digests_of(self.vault, known.held_back, self.key)
        marks[marks] = members(beyond(within(known.taken.values(), asked), within(back, asked)), asked)
        return marks

    def _found(self, marks: Marks, rule: str) -> Findings:
        rows = self._rows_of(only(self.run, marks))
        if not rows.size:
            raise Conflict("The batch changed during this upload, which no longer fits it. Nothing was stored.")
        findings = Findings()
        findings.add_rows(rows, self.submission.id_field, rule)
        return findings

    def _rows_of(self, digests: Run, *, later: bool = False) -> npt.NDArray[np.int64]:
        """The first rows (at most InvalidRows.shown) that have one of the digests; `later`: from their second time on.

        None where the order of rows was not kept: of an upsert with deletions.
        """
        found: list[int] = []
        seen = np.zeros(len(digests[0]), dtype=bool)
        start = 0
        for ids in self._ids():
            low, high = siphash128(ids, self.key)
            for row in np.flatnonzero(contains(digests, low, high)):
                at = int(np.flatnonzero((digests[1] == high[row]) & (digests[0] == low[row]))[0])
                if seen[at] or not later:
                    found.append(start + int(row))
                seen[at] = True
                if len(found) >= InvalidRows.shown:
                    return np.array(found)
            start += len(ids)
        return np.array(found, np.int64)


def _duplicates(taken: Findings) -> DuplicateId:
    first = taken.problems[0]
    detail = f"Row {first.number}, field '{first.field}': {TAKEN}. Nothing of this upload was stored."
    return DuplicateId(detail, taken.problems)
