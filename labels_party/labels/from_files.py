"""A batch from files in one go: nothing of it is in the database before it is sealed, so a refusal leaves nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from secrets import token_hex
from typing import Any

from sqlalchemy.engine import Connection

from labels_party.labels.arrival import Arrival
from labels_party.labels.batches import EXAMPLES, ID_LIST, INSERT, PUBLIC, Batch, Batches, StaleBatch
from labels_party.labels.changes import until_current
from labels_party.labels.known import Known
from labels_party.labels.label_file import LabelFile
from labels_party.labels.runs import Run
from labels_party.labels.seal import RETRIES, Passing, Prepared, Sealer, sealed_key
from labels_party.labels.sorting import Examples
from labels_party.labels.submission import Submission, has_units
from labels_party.ledger.populations import Population, Populations
from shared.columnar.csv_text import with_lines
from shared.errors import Conflict, InvalidRows


class FileBatches:
    """`populations` finds or declares the population of the batch in the transaction that seals it."""

    def __init__(self, populations: Populations, batches: Batches, sealer: Sealer) -> None:
        self.populations, self.batches, self.sealer = populations, batches, sealer

    def declared(self, connection: Connection, wanted: Population) -> Population:
        """The stored population of that name, otherwise `wanted`, not stored. Raises Conflict if its rules differ."""
        found = self.populations.find(connection, wanted.name)
        if found is None:
            return wanted
        theirs, ours = found.rules(), wanted.rules()
        different = [name.replace("_", " ") for name in ours if ours[name] != theirs[name]]
        if different:
            raise Conflict(
                f"Population '{wanted.name}' has other rules ({', '.join(different)}); they cannot change after the "
                "first use. Use the same ones, or another --population name."
            )
        return found

    def seal(
        self,
        population: Population,
        labels: LabelFile,
        examples: LabelFile | None,
        actor: str,
        check: Callable[[int], None],
        progress: Callable[[str, float], None],
    ) -> str:
        """The id of the sealed batch of `labels` (columns id, label[, unit]) and, if given, of the ids (and units) in
        `examples`.

        `check` is asked once the number of examples is known, and may refuse. Raises what intake and seal raise; then
        neither population, batch nor file is left.
        """
        batch = self.batches.draft(population, PUBLIC if examples is None else ID_LIST)
        if examples is None and not has_units(population):
            with contextlib.suppress(StaleBatch):  # erased examples do not keep their labels, or ids grow longer
                return self._passed(batch, population, labels, actor, check, progress)
        known = Known(batch, population)
        with ExitStack() as stack:
            listed: Arrival | None = None
            if examples is not None:
                listed = self._received(stack, known, None, examples)
                known = Known(batch, population, listed={EXAMPLES: listed.digests.run})
            taken = self._received(stack, known, INSERT, labels)
            whole = (taken if listed is None else listed).digests
            check(whole.rows)
            progress("sealing", 0.2)
            held = Examples([] if listed is None else listed.objects.stored, taken.objects.stored)
            busy = "Too many batches of this population are sealed at once; try again."
            return until_current(lambda: self._sealed(batch, population, held, whole.run, actor), RETRIES, busy)

    def _passed(
        self,
        batch: Batch,
        population: Population,
        file: LabelFile,
        actor: str,
        check: Callable[[int], None],
        progress: Callable[[str, float], None],
    ) -> str:
        """As `seal` where every row of the file is an example with its label: straight into the sort, stored once.

        Raises StaleBatch where that does not do.
        """
        name = token_hex(8)
        with (
            self._arrival(Known(batch, population), INSERT, file) as taken,
            # every example has one record, so the sort may spill it under the mask of the sealed file
            self.sealer.sort.passing(taken.passing(file.chunks, sealed_key(batch, name)), file.rows) as rows,
        ):
            with _told_lines(file):
                taken.finish()
            check(taken.digests.rows)
            progress("sealing", 0.2)
            return self._sealed(batch, population, Examples([], []), taken.digests.run, actor, Passing(name, rows))

    def _received(self, stack: ExitStack, known: Known, mode: str | None, file: LabelFile) -> Arrival:
        with self._arrival(known, mode, file) as found:
            stack.callback(found.objects.delete)  # what counts is in the sealed file then
            with _told_lines(file):
                found.receive(file.chunks())
        return found

    def _arrival(self, known: Known, mode: str | None, file: LabelFile) -> Arrival:
        submission = Submission(known.batch, known.population, mode, file.columns, owner=True)
        return Arrival(submission, known, self.sealer.vault, self.sealer.secrets, self.sealer.sort.spill)

    def _sealed(
        self,
        batch: Batch,
        population: Population,
        held: Examples,
        run: Run,
        actor: str,
        passing: Passing | None = None,
    ) -> str:
        self.record(self.sealer.prepare(batch, population, held, [run], passing), actor)
        return batch.id

    def record(self, sealed: Prepared, actor: str) -> None:
        """The transaction that stores a sealed batch, and its population if it is new. Raises as `Sealer.record`."""
        batch, population = sealed.batch, sealed.population

        def declare(connection: Connection) -> None:
            owner = self.declared(connection, population)
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
