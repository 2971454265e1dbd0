"""A batch from files in one go: nothing of it is in the database before it is sealed, so a refusal leaves nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import ExitStack
from secrets import token_hex
from typing import Any

from sqlalchemy.engine import Connection

from labels_party.labels.batches import EXAMPLES, ID_LIST, LABELS, PUBLIC, Batch, Batches, Segment, StaleBatch
from labels_party.labels.label_file import LabelFile
from labels_party.labels.receive import INSERT, Known, Receiver, has_units
from labels_party.labels.seal import RETRIES, Passing, Sealer, sealed_key
from labels_party.labels.sorting import Examples
from labels_party.ledger.populations import Population, Populations
from shared.columnar.csv_text import with_lines
from shared.errors import Conflict, InvalidRows, LabelDPError, Unavailable


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
    ) -> Batch:
        """The sealed batch of `labels` (columns id, label[, unit]) and, if given, of the ids (and units) in `examples`.

        `check` is asked once the number of examples is known, and may refuse. Raises what intake and seal raise; then
        neither population, batch nor file is left.
        """
        batch = self.batches.draft(population, PUBLIC if examples is None else ID_LIST)
        if examples is None and not has_units(population):
            with contextlib.suppress(StaleBatch):  # erased examples do not keep their labels, or ids grow longer
                return self._passed(batch, population, labels, actor, check, progress)
        with ExitStack() as stack:
            listed: Receiver | None = None
            known = Known()
            if examples is not None:
                listed = self._received(stack, batch, population, examples, None, Known())
                known = Known(listed={EXAMPLES: listed.run})
            taken = self._received(stack, batch, population, labels, INSERT, known)
            whole = taken if listed is None else listed
            check(whole.rows)
            progress("sealing", 0.2)
            held = Examples(_segments(EXAMPLES, listed), _segments(LABELS, taken))
            for _ in range(RETRIES):
                try:
                    return self._sealed(batch, population, held, whole, actor)
                except StaleBatch:  # another batch of the same units was sealed meanwhile
                    continue
        raise Unavailable("Too many batches of this population are sealed at once; try again.")

    def _passed(
        self,
        batch: Batch,
        population: Population,
        file: LabelFile,
        actor: str,
        check: Callable[[int], None],
        progress: Callable[[str, float], None],
    ) -> Batch:
        """As `seal` where every row of the file is an example with its label: straight into the sort, stored once.

        Raises StaleBatch where that does not do.
        """
        name = token_hex(8)
        vault, secrets, sort = self.sealer.vault, self.sealer.secrets, self.sealer.sort
        with (
            Receiver(vault, secrets, sort.spill, batch, population, file.columns, INSERT, Known(), owner=True) as taken,
            # every example has one record, so the sort may spill it under the mask of the sealed file
            sort.passing(taken.passing(file.chunks, sealed_key(batch, name)), file.rows) as rows,
        ):
            try:
                taken.finish()
            except InvalidRows as error:
                raise with_lines(error, file.path) from None
            check(taken.rows)
            progress("sealing", 0.2)
            return self._sealed(batch, population, Examples([], []), taken, actor, Passing(name, rows))

    def _received(
        self,
        stack: ExitStack,
        batch: Batch,
        population: Population,
        file: LabelFile,
        mode: str | None,
        known: Known,
    ) -> Receiver:
        vault, secrets, spill = self.sealer.vault, self.sealer.secrets, self.sealer.sort.spill
        with Receiver(vault, secrets, spill, batch, population, file.columns, mode, known, owner=True) as found:
            stack.callback(self._delete, found)  # what counts is in the sealed file then
            try:
                found.receive(file.chunks())
            except InvalidRows as error:
                raise with_lines(error, file.path) from None
        return found

    def _delete(self, received: Receiver) -> None:
        for key in received.started:
            self.sealer.vault.delete(key)

    def _sealed(
        self,
        batch: Batch,
        population: Population,
        held: Examples,
        whole: Receiver,
        actor: str,
        passing: Passing | None = None,
    ) -> Batch:
        sealed = self.sealer.prepare(batch, population, held, [whole.run], passing)

        def store(connection: Connection) -> Batch:
            owner = self.declared(connection, population)
            if owner.id != population.id:
                raise Conflict(f"Population '{population.name}' was declared by somebody else meanwhile; try again.")
            if self.populations.find(connection, owner.id) is None:
                self.populations.create(connection, owner, actor)
            self.batches.insert(connection, batch)
            self.sealer.record(connection, sealed, actor)
            return self.batches.get(connection, batch.id)[0]

        try:
            return self.sealer.database.write("privatize.seal", store)
        except LabelDPError as error:
            if not isinstance(error, Unavailable):  # then the commit may have gone through: keep what it may name
                self.sealer.forget(sealed)
            raise


def file_columns(population: Population, id_column: str, label_column: str, *, listed: bool) -> dict[str, Any]:
    """Columns wanted of the labels and of the list of examples: units come with the list where there is one."""
    unit = (population.unit.unit_column,) if has_units(population) else ()
    if listed:
        return {"labels": (id_column, label_column), "examples": (id_column, *unit)}
    return {"labels": (id_column, label_column, *unit), "examples": None}


def _segments(kind: str, received: Receiver | None) -> list[Segment]:
    stored = [] if received is None else received.stored
    return [Segment(kind, i, s.key, s.rows, mode=s.mode) for i, s in enumerate(stored, 1)]
