"""A batch from files in one go: nothing of it is in the database before it is sealed, so a refusal leaves nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
from sqlalchemy.engine import Connection

from label_dp.columnar.csv_text import with_lines
from label_dp.errors import Conflict, InvalidRows
from labels_party.labels.arrival import Arrival
from labels_party.labels.batch_index import BatchIndex
from labels_party.labels.batches import EXAMPLES, ID_LIST, INSERT, PUBLIC, Batch, Batches
from labels_party.labels.by_id.sort import IdSort
from labels_party.labels.changes import until_current
from labels_party.labels.digests import kernels
from labels_party.labels.label_file import LabelFile
from labels_party.labels.runs import Run
from labels_party.labels.seal import RETRIES, Prepared, Sealer
from labels_party.labels.sorting import NONE, StoredExamples
from labels_party.labels.submission import Submission, has_units
from labels_party.ledger.populations import Population, Populations


class FileBatches:
    """`populations` finds or declares the population of the batch in the transaction that seals it."""

    def __init__(self, populations: Populations, batches: Batches, sealer: Sealer) -> None:
        self.populations, self.batches, self.sealer = populations, batches, sealer

    def seal(
        self,
        population: Population,
        labels: LabelFile,
        examples: LabelFile | None,
        actor: str,
        check: Callable[[int], None],
        progress: Callable[[str, float], None],
        id_prefix: str | None = None,
    ) -> str:
        """The id of the sealed batch of `labels` (columns id, label[, unit]) and, if given, of the ids (and units) in
        `examples`.

        Each id begins with `id_prefix`, if given. `check` is asked once the number of examples is known, and may
        refuse. Raises what intake and seal raise; then neither population, batch nor file is left.
        """
        busy = "Too many batches of this population are sealed at once; try again."
        return until_current(
            lambda: self._attempt(population, labels, examples, actor, check, progress, id_prefix), RETRIES, busy
        )

    def _attempt(
        self,
        population: Population,
        labels: LabelFile,
        examples: LabelFile | None,
        actor: str,
        check: Callable[[int], None],
        progress: Callable[[str, float], None],
        id_prefix: str | None,
    ) -> str:
        """Raises StaleBatch where something else came meanwhile."""
        batch = self.batches.draft(population, PUBLIC if examples is None else ID_LIST, id_prefix)
        kernels.expect(labels.rows or 0)
        batch_index = BatchIndex(batch, population)
        with ExitStack() as stack:
            # units are counted before labels are looked at, so these rows are stored first
            passing = None if has_units(population) else stack.enter_context(self.sealer.sort.begin())
            arrival: Arrival | None = None
            if examples is not None:
                arrival = self._taken(stack, batch_index, None, examples, passing)
                batch_index = BatchIndex(batch, population, listed={EXAMPLES: arrival.digests.run})
            taken = self._taken(stack, batch_index, INSERT, labels, passing)
            whole = (taken if arrival is None else arrival).digests
            check(whole.rows)
            progress("sealing", 0.2)
            held = StoredExamples([] if arrival is None else arrival.objects.stored, taken.objects.stored)
            return self._sealed(batch, population, held, whole.run, actor, passing)

    def _taken(
        self, stack: ExitStack, known: BatchIndex, mode: str | None, file: LabelFile, passing: IdSort | None
    ) -> Arrival:
        """The rows of a file checked, and in the sort `passing`; stored where there is none."""
        submission = Submission(known.batch, known.population, mode, file.columns, owner=True)
        sealer, sort = self.sealer, self.sealer.sort
        kept = sort.digests(file.rows, file.id_bytes)
        # its temporary files stay until the seal, which takes the digests over from there
        arrival = stack.enter_context(Arrival(submission, known, sealer.vault, sealer.secrets, sort.spill, kept))
        with _told_lines(file):
            if passing is None:
                stack.callback(arrival.objects.delete)  # what counts is in the sealed file then
                arrival.receive(file.chunks())
                return arrival
            for rows in arrival.passing(file.chunks):
                records = np.full(len(rows.ids), NONE) if rows.positions is None else rows.positions.astype(np.uint32)
                passing.add(rows.ids, records)
            if mode is not None and not known.listed and kept is not None:  # no more rows, and room for both
                passing.start()
            arrival.finish()
        return arrival

    def _sealed(
        self,
        batch: Batch,
        population: Population,
        held: StoredExamples,
        run: Run,
        actor: str,
        passing: IdSort | None,
    ) -> str:
        self.record(self.sealer.prepare(batch, population, held, [run], passing), actor)
        return batch.id

    def record(self, sealed: Prepared, actor: str) -> None:
        """The transaction that stores a sealed batch, and its population if it is new. Raises as `Sealer.record`."""
        batch, population = sealed.batch, sealed.population

        def declare(connection: Connection) -> None:
            owner = self.populations.declared(connection, population)
            if owner.id != population.id:
                raise Conflict(f"Population '{population.name}' was declared by somebody else meanwhile; try again.")
            if self.populations.find(connection, owner.id) is None:
                self.populations.create(connection, owner, actor)
            self.batches.insert(connection, batch)

        self.sealer.record("privatize.seal", sealed, actor, first=declare)


@contextlib.contextmanager
def _told_lines(file: LabelFile) -> Iterator[None]:
    """Rows that are refused are told with their lines."""
    try:
        yield
    except InvalidRows as error:
        raise with_lines(error, file.path) from None


def file_columns(population: Population, id_column: str, label_column: str, *, listed: bool) -> dict[str, Any]:
    """Columns wanted of the labels and of the list of examples: units come with the list where there is one."""
    unit = (population.unit.unit_column,) if has_units(population) else ()
    if listed:
        return {"labels": (id_column, label_column), "examples": (id_column, *unit)}
    return {"labels": (id_column, label_column, *unit), "examples": None}
