"""Disjointness of batches of one label name, without which their releases would not compose in parallel."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy.engine import Connection

from label_dp.errors import OverlappingBatch, Unavailable
from label_dp.store.database import Database
from labels_party.labels.batches import HISTORY, Batch, Segment, StaleBatch
from labels_party.labels.history import History
from labels_party.labels.runs import Run, members, only, page_out
from labels_party.labels.vault import LabelVault

TRIES = 100


class SameExamples(OverlappingBatch):
    """Overlap with a batch sealed earlier that has exactly the same ids."""

    code = "same-examples"
    title = "These examples are a batch already"

    def __init__(self, batch: str) -> None:
        super().__init__(
            f"These are exactly the examples of batch '{batch}', which was sealed earlier; "
            "ask for an additional release of that batch."
        )
        self.batch = batch

    def extras(self) -> dict[str, object]:
        return {"batch": self.batch}


@dataclass(frozen=True)
class DisjointCheck:
    """Check against every batch up to the seal of order `last`, by the digests in `runs`."""

    last: int
    runs: list[Segment]


class Disjoint:
    """Checks that batches share no id: by id prefixes that exclude each other, else by digests. Intake enforces the id
    prefix of a batch."""

    def __init__(self, database: Database, history: History, vault: LabelVault) -> None:
        self.database, self.history, self.vault = database, history, vault

    def check(self, batch: Batch, run: Run) -> DisjointCheck:
        """Compare with every sealed batch. Raises OverlappingBatch, StaleBatch."""

        def look(connection: Connection) -> DisjointCheck:
            self._require_open(connection, batch)
            return DisjointCheck(self.history.last(connection, batch.label), self.history.runs(connection, batch))

        compared: set[str] = set()
        for _ in range(TRIES):
            now = self.database.read("seal.others", look)
            compared |= {s.key for s in now.runs if s.key not in compared and self._compared(run, s)}
            if all(s.key in compared for s in now.runs):  # else one was merged away meanwhile
                return now
        raise Unavailable("The digests of earlier batches were merged too often meanwhile; try again.")

    def check_again(self, connection: Connection, batch: Batch, run: Run, after: int) -> int:
        """Compare with batches sealed after order `after`; return the last order now. Raises as `check`."""
        self._require_open(connection, batch)
        self._refuse(self.history.since(connection, batch, after), run, len(run[0]))
        return self.history.last(connection, batch.label)

    def _require_open(self, connection: Connection, batch: Batch) -> None:
        if self.history.is_sealed(connection, batch.id):
            raise StaleBatch("Another seal of this batch came first.")

    def _compared(self, run: Run, segment: Segment) -> bool:
        """Compare with one run; return False if no row names it any more. Raises OverlappingBatch."""
        suspected, missing = run, False
        try:
            other = self.vault.run(segment.key)
            # a copy that was cut short misses digests
            missing = segment.kind == HISTORY and len(other[0]) != segment.rows
            if not missing:
                marks = members(other, run)
                page_out(other)
                if not marks.any():
                    return True
                suspected = only(run, marks)
        except FileNotFoundError:
            missing = segment.kind == HISTORY
            if not missing:
                raise
        parts = self.database.read("seal.parts", lambda c: self.history.parts(c, segment))
        if missing and parts:  # still named, so nobody merged it away
            self.database.write("history.forget", lambda c: self.history.forget(c, segment))
            self.vault.delete(segment.key)
        self._refuse(parts, suspected, len(run[0]))
        return bool(parts)

    def _refuse(self, others: list[tuple[Batch, Segment]], suspected: Run, n: int) -> None:
        """Raise OverlappingBatch if one of the `suspected` digests of a batch of n belongs to one of `others`."""
        for other, own in others:
            shared = int(members(self.vault.run(own.key), suspected).sum())
            if shared and shared == n == other.n:
                raise SameExamples(other.id)
            if shared:
                raise OverlappingBatch(
                    f"{shared:,} of the {n:,} examples of this batch are in batch '{other.id}' already. Batches of one "
                    "label are disjoint, in whichever populations, or their releases would not compose: discard this "
                    "batch and send the others to a new one, or ask for an additional release of that batch."
                )
