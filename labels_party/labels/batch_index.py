"""Ids of a batch at one moment, to compare an upload with."""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlalchemy.engine import Connection

from label_dp.errors import Conflict
from label_dp.store.database import Database
from labels_party.labels.batches import EXAMPLES, ID_LIST, LABELS, RUNS, Batch, Batches, Segment, require_sendable
from labels_party.labels.runs import Run
from labels_party.labels.vault import LabelVault
from labels_party.ledger.populations import Population


@dataclass(frozen=True)
class BatchIndex:
    """Runs of listed ids and of uploaded ids, by vault key."""

    batch: Batch
    population: Population
    listed: dict[str, Run] = field(default_factory=dict)
    taken: dict[str, Run] = field(default_factory=dict)
    held_back: tuple[Segment, ...] = ()  # uploads that do not count though `taken` has their digests; for an owner

    def require_list(self) -> None:
        """Raise Conflict if the batch needs a list of ids and has none."""
        if self.batch.presence == ID_LIST and not self.listed:
            raise Conflict(f"Batch '{self.batch.id}' has no list of example ids yet; send it before any label.")


def look(
    database: Database,
    batches: Batches,
    vault: LabelVault,
    batch_id: str,
    before: BatchIndex | None = None,
    *,
    owner: bool,
) -> BatchIndex:
    """Read the batch and open its runs, except those that `before` has open. Raises NotFound, Conflict if it takes no
    labels, FileNotFoundError if a run was merged away meanwhile."""

    def read(connection: Connection) -> tuple[Batch, Population, list[Segment], list[Segment], list[Segment]]:
        batch, population = batches.get(connection, batch_id)
        if population.events is not None:
            raise Conflict(
                "Labels of this population come from events; send them to /v1/events, or their ids to /examples."
            )
        # before anything that depends on whether a seal succeeded
        require_sendable(batch, batches.clock(), owner=owner)
        segments = batches.segments(connection, batch_id, RUNS, EXAMPLES) if batch.presence == ID_LIST else []
        taken = batches.segments(connection, batch_id, RUNS, LABELS)
        # nobody else's call may depend on what was set aside
        return batch, population, segments, taken, batches.held_back(connection, batch_id) if owner else []

    batch, population, segments, taken, held_back = database.read("labels.look", read)
    old = {} if before is None else before.listed | before.taken

    def opened(run_segments: list[Segment]) -> dict[str, Run]:
        return {s.key: old[s.key] if s.key in old else vault.run(s.key) for s in run_segments}

    return BatchIndex(batch, population, opened(segments), opened(taken), tuple(held_back))
