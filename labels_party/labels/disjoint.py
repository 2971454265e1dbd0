"""Batches of one label name have no example in common, or their releases would not compose in parallel."""

from __future__ import annotations

from sqlalchemy.engine import Connection

from labels_party.labels.batches import RUNS, SEALED, Batch, Batches, Segment, StaleBatch
from labels_party.labels.runs import Run, members
from labels_party.labels.vault import LabelVault
from shared.errors import OverlappingBatch
from shared.service.database import Database


class SameExamples(OverlappingBatch):
    """The ids are exactly those of a batch sealed earlier, so it is that batch."""

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


class Disjoint:
    def __init__(self, database: Database, batches: Batches, vault: LabelVault) -> None:
        self.database, self.batches, self.vault = database, batches, vault

    def check(self, batch: Batch, run: Run) -> int:
        """Compare with every sealed batch; returns the last seal order seen. Raises OverlappingBatch, StaleBatch."""
        return self._compare(batch, run, 0, self.database.read("seal.others", lambda c: self._others(c, batch, 0)))

    def check_again(self, connection: Connection, batch: Batch, run: Run, after: int) -> int:
        """The same with those that were sealed since the seal of order `after`."""
        return self._compare(batch, run, after, self._others(connection, batch, after))

    def _others(self, connection: Connection, batch: Batch, after: int) -> list[tuple[Batch, list[Segment]]]:
        others = self.batches.sealed_of_label(connection, batch.label, after)
        return [(other, self.batches.segments(connection, other.id, RUNS, SEALED)) for other in others]

    def _compare(self, batch: Batch, run: Run, after: int, others: list[tuple[Batch, list[Segment]]]) -> int:
        last = after
        for other, runs in others:
            assert other.seal_order is not None
            if other.id == batch.id:
                raise StaleBatch("Another seal of this batch came first.")
            last = other.seal_order
            shared = sum(int(members(self.vault.run(segment.key), run).sum()) for segment in runs)
            if shared and shared == len(run[0]) == other.n:
                raise SameExamples(other.id)
            if shared:
                raise OverlappingBatch(
                    f"Some examples of this batch are in batch '{other.id}' already. Batches of one label are "
                    "disjoint, or their releases would not compose: leave those examples out, or ask for an "
                    "additional release of that batch."
                )
        return last
