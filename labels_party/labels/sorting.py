"""Records to a batch's rows: sorted bytewise by id, one row per example, for any order of records.

Data of the sort on disk is encrypted (invariant budget-outlives-labels). The rows and their order do not depend on
labels.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from label_dp.errors import Busy, MissingLabels
from labels_party.labels.batches import DELETE, INSERT, Segment
from labels_party.labels.by_id.sort import IdSort
from labels_party.labels.columns import NONE, positions_of
from labels_party.labels.digests import siphash128
from labels_party.labels.runs import Run, contains
from labels_party.labels.vault import LabelVault

if TYPE_CHECKING:
    import pyarrow as pa

SHOWN_IDS = 20
SHARE = 28  # percent of memory for rows before the sort; sorted copies, Arrow and Python take the rest
TOGETHER = 42  # percent for such rows and their digests, if both are in memory
PATIENCE = 20.0  # seconds that a seal waits for another one of its process


class IncompleteLabels(MissingLabels):
    """Examples without a label; shown to the owner only, who holds the labels."""

    def __init__(self, examples: list[str]) -> None:
        super().__init__(
            f"Some examples have no label, for instance '{examples[0]}', and the population has no missing-label "
            "value. Send the missing labels, then seal again."
        )
        self.examples = examples

    def extras(self) -> dict[str, object]:
        return {"examples_without_label": self.examples}


@dataclass(frozen=True)
class StoredExamples:
    """Content of a batch before its seal; `listed`: segments of declared ids, none if presence is public. `events`:
    positions uint32[n] of the listed examples or NONE, in the order of the list, where labels come from events."""

    listed: list[Segment]
    labels: list[Segment]
    events: npt.NDArray[np.uint32] | None = None
    event_counts: Mapping[str, int] | None = None  # what became of the events, for the owner alone

    @property
    def may_repeat(self) -> bool:
        """True if an id may have several records."""
        return any(s.mode != INSERT for s in self.labels)

    @property
    def complete(self) -> bool:
        """True if every listed id certainly has one label: ids are unique, and every label's is listed."""
        return not self.may_repeat and sum(s.rows for s in self.listed) == sum(s.rows for s in self.labels)


@dataclass(frozen=True)
class Excess:
    """Digests under `key` of examples that lose their label to the unit bound."""

    run: Run
    key: bytes


class LabelSort:
    """Sort in bounded memory: rows beyond `memory_mb` lie encrypted under `spill`."""

    def __init__(self, vault: LabelVault, spill: Path, memory_mb: int, patience: float = PATIENCE) -> None:
        self.vault, self.spill, self.memory_mb, self.patience = vault, spill, memory_mb, patience
        self._memory = threading.RLock()  # of a thread: a seal within a seal has its memory

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Reserve the memory for one batch of the process. Raises Busy after `patience` seconds."""
        if not self._memory.acquire(timeout=self.patience):
            raise Busy("Another batch is being sealed, which takes the memory for sorts; try again in a moment.")
        try:
            yield
        finally:
            self._memory.release()

    def digests(self, rows: int | None, id_bytes: int | None) -> int | None:
        """Return how many digests of a file may wait in memory: all of them if the sort needs no disk, else None."""
        memory = self.memory_mb << 20
        if rows is None or id_bytes is None or id_bytes + 8 * rows > memory * SHARE // 100:
            return None
        return rows if id_bytes + 24 * rows <= memory * TOGETHER // 100 else None

    def begin(self) -> IdSort:
        """Start a sort of records: id and domain position, or NONE; the last record of an id counts."""
        return IdSort(self.spill, (self.memory_mb << 20) * SHARE // 100)

    @contextlib.contextmanager
    def of(self, examples: StoredExamples) -> Iterator[IdSort]:
        """Sort stored records; listed ids come first, without a label."""
        with self.begin() as id_sort:
            start = 0
            for segment in [] if examples.complete else examples.listed:
                for batch in self.vault.scan(segment.key):
                    stop = start + batch.num_rows
                    none = np.full(batch.num_rows, NONE)
                    id_sort.add(batch.column(0), none if examples.events is None else examples.events[start:stop])
                    start = stop
            for segment in examples.labels:
                for batch in self.vault.scan(segment.key, segment.start, segment.rows):
                    gone = segment.mode == DELETE
                    positions = np.full(batch.num_rows, NONE) if gone else positions_of(batch)
                    id_sort.add(batch.column(0), positions)
            yield id_sort


def resolved(
    id_sort: IdSort, distinct: int, missing_index: int | None, excess: Excess | None
) -> Iterator[tuple[pa.Array, npt.NDArray[np.uint32]]]:
    """Yield (ids, domain positions uint32[m]) of every example, sorted bytewise by id, of `distinct` ids. An example
    without a label, or in `excess`, gets `missing_index`. Raises IncompleteLabels if it is None."""
    import pyarrow as pa

    without: list[str] = []
    for block in id_sort.blocks():
        if id_sort.rows > distinct:
            block = block.last_of_each()
        ids, positions = block.ids(), block.labels
        if excess is not None:
            positions = np.where(contains(excess.run, *siphash128(ids, excess.key)), NONE, positions)
        none = positions == NONE
        if none.any() and missing_index is None:
            without += ids.filter(pa.array(none)).slice(0, SHOWN_IDS - len(without)).to_pylist()
            if len(without) >= SHOWN_IDS:
                break
        elif not without:
            yield ids, positions if missing_index is None else np.where(none, np.uint32(missing_index), positions)
    if without:
        raise IncompleteLabels(without)
