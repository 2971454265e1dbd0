"""A batch sealed from files in one transaction: it enters the database at the seal, so a refusal leaves nothing.

Its labels come as they are, or by the population's rule from a file of events.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from sqlalchemy.engine import Connection

from label_dp.columnar.parts import TableParts
from label_dp.errors import Conflict, InvalidInput, InvalidRows
from labels_party.labels.arrival import Arrival
from labels_party.labels.batch_index import BatchIndex
from labels_party.labels.batches import EXAMPLES, ID_LIST, INSERT, PUBLIC, Batch, Batches
from labels_party.labels.by_id.sort import IdSort
from labels_party.labels.changes import until_current
from labels_party.labels.columns import NONE
from labels_party.labels.digests import kernels
from labels_party.labels.events.files import EventFile
from labels_party.labels.label_file import LabelFile
from labels_party.labels.parsing import TIME
from labels_party.labels.runs import Run
from labels_party.labels.seal import RETRIES, Prepared, Sealer
from labels_party.labels.sorting import StoredExamples
from labels_party.labels.submission import Submission, has_times, has_units
from labels_party.ledger.populations import Population, Populations

Tables: TypeAlias = Mapping[str, Mapping[str, str]]


class FileBatches:
    """Batches from files; the transaction that seals one finds or declares its population."""

    def __init__(self, populations: Populations, batches: Batches, sealer: Sealer) -> None:
        self.populations, self.batches, self.sealer = populations, batches, sealer

    def seal(
        self,
        population: Population,
        labels: LabelFile | EventFile,
        examples: LabelFile | None,
        actor: str,
        check: Callable[[int], None],
        progress: Callable[[str, float], None],
        id_prefix: str | None = None,
    ) -> str:
        """Seal a batch of `labels` (columns id, label[, unit]; or events) and, if given, ids (and units, and times that
        events count from) in `examples`; return its id.

        Each id begins with `id_prefix`, if given. `check` gets the number of examples and may refuse. Raises errors of
        intake and seal; then neither population, batch nor file remains.
        """

        def attempt() -> str:
            batch = self.batches.draft(population, PUBLIC if examples is None else ID_LIST, id_prefix)
            kernels.expect(labels.rows or 0)
            batch_index = BatchIndex(batch, population)
            with ExitStack() as stack:
                tables = _versions(labels=labels, examples=examples)
                if isinstance(labels, EventFile):
                    assert examples is not None  # a draft without a list is refused
                    listing = self._taken(stack, batch_index, None, examples, None)
                    check(listing.digests.rows)
                    progress("sealing", 0.2)
                    return self._of_events(batch, population, listing, labels, actor, tables)
                # units are counted before labels are looked at, so these rows are stored first
                passing = None if has_units(population) else stack.enter_context(self.sealer.sort.begin())
                arrival: Arrival | None = None
                if examples is not None:
                    arrival = self._taken(stack, batch_index, None, examples, passing)
                    batch_index = BatchIndex(batch, population, listed={EXAMPLES: arrival.digests.run})
                arrival_labels = self._taken(stack, batch_index, INSERT, labels, passing)
                whole = (arrival_labels if arrival is None else arrival).digests
                check(whole.rows)
                progress("sealing", 0.2)
                stored = StoredExamples(
                    [] if arrival is None else arrival.objects.stored, arrival_labels.objects.stored
                )
                return self._sealed(batch, population, stored, whole.run, actor, passing, tables)

        return until_current(attempt, RETRIES, "Too many batches of this population are sealed at once; try again.")

    def _taken(
        self, stack: ExitStack, batch_index: BatchIndex, mode: str | None, file: LabelFile, passing: IdSort | None
    ) -> Arrival:
        """Check the rows of a file, and feed them to the sort `passing`, or store them if it is None."""
        timed = mode is None and has_times(batch_index.population)
        fields = file.columns[:-1] if timed else file.columns
        submission = Submission(batch_index.batch, batch_index.population, mode, fields, owner=True)
        sealer, id_sort = self.sealer, self.sealer.sort
        in_memory = id_sort.digests(file.rows, file.id_bytes)
        # its temporary files stay until the seal, which takes the digests over from there
        arrival = stack.enter_context(
            Arrival(submission, batch_index, sealer.vault, sealer.secrets, id_sort.spill, in_memory)
        )
        with _told_lines(file):
            if passing is None:
                stack.callback(arrival.objects.delete)  # the sealed file then holds the labels
                arrival.receive(file.chunks())
                return arrival
            for rows in arrival.passing(file.chunks):
                records = np.full(len(rows.ids), NONE) if rows.positions is None else rows.positions.astype(np.uint32)
                passing.add(rows.ids, records)
            if mode is not None and not batch_index.listed and in_memory is not None:  # no more rows, and room for both
                passing.start()
            arrival.finish()
        return arrival

    def _of_events(
        self, batch: Batch, population: Population, listing: Arrival, events: EventFile, actor: str, tables: Tables
    ) -> str:
        """Fold the events into labels of the listed examples, and seal these."""
        assert population.events is not None
        stored = StoredExamples(listing.objects.stored, [])
        stored = self.sealer.events.of_file(events, population.events, population.domain, stored)
        return self._sealed(batch, population, stored, listing.digests.run, actor, None, tables)

    def _sealed(
        self,
        batch: Batch,
        population: Population,
        examples: StoredExamples,
        run: Run,
        actor: str,
        passing: IdSort | None,
        tables: Tables,
    ) -> str:
        prepared = self.sealer.prepare(batch, population, examples, [run], passing)
        self.record(replace(prepared, tables=tables), actor)
        return batch.id

    def record(self, sealed: Prepared, actor: str) -> None:
        """Store a sealed batch, and its population if it is new, in one transaction. Raises as `Sealer.record`."""
        batch, population = sealed.batch, sealed.population

        def declare(connection: Connection) -> None:
            owner = self.populations.declared(connection, population)
            if owner.id != population.id:
                raise Conflict(f"Population '{population.name}' was declared by somebody else meanwhile; try again.")
            if self.populations.find(connection, owner.id) is None:
                self.populations.create(connection, owner, actor)
            self.batches.insert(connection, batch)

        self.sealer.record("privatize.seal", sealed, actor, first=declare)


def _versions(**files: LabelFile | EventFile | None) -> Tables:
    """Return the versions of lake tables among the files."""
    tables = {name: file.path for name, file in files.items() if file is not None}
    return {name: table.source for name, table in tables.items() if isinstance(table, TableParts) and table.source}


@contextlib.contextmanager
def _told_lines(file: LabelFile) -> Iterator[None]:
    """Add lines or files to errors of refused rows."""
    try:
        yield
    except InvalidRows as error:
        raise file.with_places(error) from None


def file_columns(population: Population, id_column: str, label_column: str, *, listed: bool) -> dict[str, Any]:
    """Choose the columns of the labels and of the list of examples: units come with the list, if there is one, and so
    do times that events count from. Raises InvalidInput."""
    unit = (population.unit.unit_column,) if has_units(population) else ()
    if has_times(population):
        if TIME in (id_column, *unit):
            raise InvalidInput(f"The column '{TIME}' of the list of examples holds their times; name another one.")
        unit = (*unit, TIME)
    if listed:
        return {"labels": (id_column, label_column), "examples": (id_column, *unit)}
    return {"labels": (id_column, label_column, *unit), "examples": None}
