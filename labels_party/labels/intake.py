"""Taking examples and labels into an open batch: checked and stored durably as they come, then made part of the batch
in one transaction together with the reply."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy.engine import Connection

from labels_party.labels.aside import note_aside
from labels_party.labels.batches import (
    ASIDE,
    EXAMPLES,
    ID_LIST,
    LABELS,
    RUNS,
    Batch,
    Batches,
    Segment,
    StaleBatch,
    require_open,
    require_window,
)
from labels_party.labels.chunks import Chunks, Findings
from labels_party.labels.compaction import Compaction
from labels_party.labels.fingerprint import same_examples
from labels_party.labels.parsing import ID, LABEL, UNIT
from labels_party.labels.receive import (
    DELETE,
    INSERT,
    TAKEN,
    UNKNOWN,
    UPSERT,
    Known,
    Receiver,
    among,
    digest_key,
    has_units,
    labels_carry_units,
    mask_key,
    masked_schema,
)
from labels_party.labels.runs import Marks, Run
from labels_party.labels.vault import LabelVault
from labels_party.ledger.populations import Population
from labels_party.storage.idempotency import NO_KEY, IdempotentCall, Reply, forget_batch
from labels_party.storage.secrets import Secrets
from shared.errors import Conflict, InvalidInput, LabelDPError, Unavailable
from shared.service.database import Database

if TYPE_CHECKING:
    import pyarrow as pa

RETRIES = 200
CHECKED_INSIDE = 1 << 20  # digests that a transaction may compare itself; more are compared outside, then retried

Open = Callable[[tuple[str, ...]], Chunks]


class Intake:
    def __init__(self, database: Database, batches: Batches, vault: LabelVault, secrets_: Secrets, spill: Path) -> None:
        self.database, self.batches, self.vault, self.secrets, self.spill = database, batches, vault, secrets_, spill
        self.compaction = Compaction(database, batches, vault, spill)

    # --- examples -----------------------------------------------------------------------------------------

    def put_examples(
        self,
        batch_id: str,
        table: pa.Table,
        field: str = ID,
        call: IdempotentCall = NO_KEY,
        *,
        may_replace: bool = True,
        unit_field: str = UNIT,
    ) -> Reply:
        """As `put_example_chunks`, for one table."""
        return self.put_example_chunks(batch_id, [table], (field, unit_field), call, may_replace=may_replace)

    def put_example_chunks(
        self,
        batch_id: str,
        chunks: Chunks | Open,
        fields: tuple[str, str] = (ID, UNIT),
        call: IdempotentCall = NO_KEY,
        *,
        may_replace: bool = True,
    ) -> Reply:
        """Declare the set of ids of an open batch (and their units, where the population has them); the same list
        again changes nothing.

        `fields` names the columns of id and unit. `chunks` may also be a function that opens them, given the columns
        that are read. With `may_replace` (the owner) another list replaces the first while no label is stored.
        Without it, what is answered depends on the lists alone, never on whether labels came: else asking again would
        tell (invariant 5); and in a population with units it is refused. Raises InvalidRows, Conflict.
        """
        earlier = self._earlier(call)
        if earlier is not None:
            return earlier
        batch, population = self.database.read("examples.look", lambda c: self.batches.get(c, batch_id))
        self._may_list(batch)
        if has_units(population) and not may_replace:
            raise Conflict(
                "In this population examples belong to units, so its owner sends the list, with the unit of each: who "
                "names the units decides what the bound per unit is worth."
            )
        wanted = fields if has_units(population) else fields[:1]
        with self._receiver(batch, population, wanted, None, Known(), owner=True) as received:

            def attempt() -> Reply:
                return self._store_examples(received, call, may_replace=may_replace)

            return self._kept_or_removed(received, _opened(chunks, wanted), attempt, call)

    def _store_examples(self, received: Receiver, call: IdempotentCall, *, may_replace: bool) -> Reply:
        batch_id, stored = received.batch.id, received.stored[0]
        answer: Reply = 200, {"batch": batch_id, "examples": stored.rows}
        look, runs = self.database.read(
            "examples.listed", lambda c: (self._segments(c, batch_id, EXAMPLES), self._runs(c, batch_id, EXAMPLES))
        )
        same = bool(look) and same_examples(
            self.vault,
            (look[0].key, self.vault.run(runs[0].key)),
            (stored.key, received.run),
            digest_key(self.secrets, received.batch.label),
            units=received.units,
        )
        run_key = _run_key(stored.key)
        self.vault.put_run(run_key, *received.run)
        unused = [stored.key, run_key]

        def store(connection: Connection) -> Reply:
            unused[:] = stored.key, run_key

            def effect() -> Reply:
                now, _ = self.batches.get(connection, batch_id)
                self._may_list(now)
                listed = self._segments(connection, batch_id, EXAMPLES)
                if [s.key for s in listed] != [s.key for s in look]:
                    raise StaleBatch("Another list came meanwhile.")
                if same:
                    return answer
                if listed and not may_replace:
                    raise Conflict("This batch has another list of ids already; only its owner can replace it.")
                require_open(now)
                if self.batches.segments(connection, batch_id, LABELS):
                    raise Conflict("Labels were stored already; the list of ids is fixed before labels count.")
                self.batches.bump(connection, now)
                unused.clear()
                for kind, of in ((EXAMPLES, None), (RUNS, EXAMPLES)):
                    old = self.batches.segments(connection, batch_id, kind, of)
                    unused.extend(s.key for s in old)
                    self.batches.drop_segments(connection, batch_id, kind, [s.number for s in old])
                self.batches.add_segment(connection, batch_id, EXAMPLES, stored.key, stored.rows)
                self.batches.add_segment(connection, batch_id, RUNS, run_key, stored.rows, EXAMPLES)
                return answer

            return call.once(connection, effect)

        return self._commit("examples.store", store, [run_key], unused)

    # --- labels -------------------------------------------------------------------------------------------

    def add_labels(
        self,
        batch_id: str,
        table: pa.Table,
        fields: tuple[str, ...] = (ID, LABEL, UNIT),
        call: IdempotentCall = NO_KEY,
        *,
        mode: str = INSERT,
        owner: bool,
    ) -> Reply:
        """As `add_label_chunks`, for one table."""
        return self.add_label_chunks(batch_id, [table], fields, call, mode=mode, owner=owner)

    def add_label_chunks(
        self,
        batch_id: str,
        chunks: Chunks | Open,
        fields: tuple[str, ...] = (ID, LABEL, UNIT),
        call: IdempotentCall = NO_KEY,
        *,
        mode: str = INSERT,
        owner: bool,
    ) -> Reply:
        """Store the records of a stream of Arrow tables or record batches: all of them or none, with bounded memory.

        `fields` names the columns of id, label and unit; the unit is read only where the population has units and
        presence is public. `chunks` may also be a function that opens them, given the columns that are read.
        `mode` insert refuses an id that has a record already, whatever either says; upsert replaces its label, a null
        label deletes it. Labels are mapped to the domain and masked before they touch a disk. An insert of who
        is not the `owner` is answered alike whether ids in it have records: then all of it is set aside, so that
        nothing of it counts, and the batch's owner decides of it before the seal (`aside.py`).
        Raises InvalidRows, DuplicateId, Conflict.
        """
        if mode not in (INSERT, UPSERT):
            raise InvalidInput("mode is 'insert' or 'upsert'.")
        return self._take(batch_id, chunks, fields, call, mode, owner=owner)

    def delete_label_chunks(
        self,
        batch_id: str,
        chunks: Chunks | Open,
        fields: tuple[str, ...] = (ID, UNIT),
        call: IdempotentCall = NO_KEY,
        *,
        owner: bool,
    ) -> Reply:
        """Delete the labels of the ids in a stream of tables, whether or not they have one; the ids stay in the batch.

        Raises InvalidRows, Conflict.
        """
        return self._take(batch_id, chunks, fields, call, DELETE, owner=owner)

    def _take(
        self,
        batch_id: str,
        chunks: Chunks | Open,
        fields: tuple[str, ...],
        call: IdempotentCall,
        mode: str,
        *,
        owner: bool,
    ) -> Reply:
        earlier = self._earlier(call)
        if earlier is not None:
            return earlier
        for _ in range(RETRIES):
            try:
                batch, population, known = self._known(batch_id)
                break
            except FileNotFoundError:  # a run was merged away
                continue
        else:
            raise Unavailable("A part of the batch is lost; see the service's log.")
        self._may_send(batch, owner=owner)
        plain = fields[: 1 if mode == DELETE else 2]
        wanted = (*plain, fields[-1]) if labels_carry_units(batch, population) else plain
        runs: list[Segment] = []
        with self._receiver(batch, population, wanted, mode, known, owner=owner) as received:

            def attempt() -> Reply:
                try:
                    return self._store_labels(received, call, runs)
                except (StaleBatch, FileNotFoundError):
                    now, _, new = self._known(batch_id, received.known)
                    self._may_send(now, owner=owner)
                    self._check_again(received, new)
                    raise

            answer = self._kept_or_removed(received, _opened(chunks, wanted), attempt, call)
        self.compaction.run(batch_id, runs)
        return answer

    def _store_labels(self, received: Receiver, call: IdempotentCall, runs: list[Segment]) -> Reply:
        """Raises StaleBatch where runs came that the upload was not compared with. `runs` gets the batch's runs."""
        batch_id, mode, known = received.batch.id, received.mode, received.known
        run = _fresh(received.run, known) if mode != INSERT else received.run
        run_key = _run_key(received.stored[0].key)
        if len(run[0]):
            self.vault.put_run(run_key, *run)
        written = [s.key for s in received.stored] + [run_key]
        unused = list(written)
        answer: Reply = 200, {"batch": batch_id, "accepted": received.rows}

        def store(connection: Connection) -> Reply:
            unused[:] = written

            def effect() -> Reply:
                now, _ = self.batches.get(connection, batch_id)
                self._may_send(now, owner=received.owner)
                runs[:] = self._check_new_runs(connection, received, known)
                self.batches.bump(connection, now)
                unused.clear()
                kind = ASIDE if received.aside else LABELS
                for stored in received.stored:
                    self.batches.add_segment(connection, batch_id, kind, stored.key, stored.rows, mode=stored.mode)
                if len(run[0]):
                    self.batches.add_segment(connection, batch_id, RUNS, run_key, len(run[0]), kind)
                if received.aside:
                    (stored,) = received.stored
                    note_aside(connection, batch_id, stored.key, stored.rows, call.caller, self.batches.clock())
                return answer

            return call.once(connection, effect)

        return self._commit("labels.store", store, [run_key], unused)

    def _check_again(self, received: Receiver, known: Known) -> None:
        """Against runs that came while the upload was received. Raises DuplicateId, InvalidRows, Conflict."""
        listed = [run for key, run in known.listed.items() if key not in received.known.listed]
        if listed:
            strange = ~among(received.run, known.listed.values())
            if strange.any():
                self._refuse(received, strange, UNKNOWN)
        if received.mode == INSERT:
            new = [run for key, run in known.taken.items() if key not in received.known.taken]
            taken = among(received.run, new)
            if taken.any() and received.owner:
                self._refuse(received, taken, TAKEN)
            received.aside |= bool(taken.any())
        received.known = known

    def _refuse(self, received: Receiver, marks: Marks, rule: str) -> None:
        low, high = received.run
        rows = received.rows_of((low[marks], high[marks]))
        if not rows.size:
            raise Conflict("The batch changed during this upload, which no longer fits it. Nothing was stored.")
        found = Findings()
        found.add_rows(rows, received.id_field, rule)
        raise received.duplicates(found) if rule == TAKEN else found.error()

    def _check_new_runs(self, connection: Connection, received: Receiver, known: Known) -> list[Segment]:
        """Inside the transaction, so that of two uploads with one id only one is taken. Raises StaleBatch."""
        listed = self._runs(connection, received.batch.id, EXAMPLES)
        if received.batch.presence == ID_LIST and any(s.key not in known.listed for s in listed):
            raise StaleBatch("Another list of ids came meanwhile.")
        runs = self._runs(connection, received.batch.id, LABELS)
        new = [s for s in runs if s.key not in known.taken]
        if sum(s.rows for s in new) > CHECKED_INSIDE or (new and received.rows > CHECKED_INSIDE):
            raise StaleBatch("Many labels came meanwhile.")
        if not received.aside and among(received.run, (self.vault.run(s.key) for s in new)).any():
            raise StaleBatch("A record of one of these ids came meanwhile.")
        return runs

    # --- batches ------------------------------------------------------------------------------------------

    def discard(self, batch_id: str, call: IdempotentCall = NO_KEY) -> Reply:
        """Remove an open batch with everything of it. Raises Conflict once it is sealed."""
        unused: list[str] = []

        def store(connection: Connection) -> Reply:
            unused.clear()

            def effect() -> Reply:
                batch, _ = self.batches.get(connection, batch_id)
                unused.extend(self.batches.discard(connection, batch))
                forget_batch(connection, batch_id)
                return 204, {}

            return call.once(connection, effect)

        answer = self.database.write("batch.discard", store)
        self._delete(unused)
        return answer

    # --- parts --------------------------------------------------------------------------------------------

    def _receiver(
        self,
        batch: Batch,
        population: Population,
        fields: tuple[str, ...],
        mode: str | None,
        known: Known,
        *,
        owner: bool,
    ) -> Receiver:
        return Receiver(self.vault, self.secrets, self.spill, batch, population, fields, mode, known, owner=owner)

    def _kept_or_removed(
        self, received: Receiver, chunks: Chunks, attempt: Callable[[], Reply], call: IdempotentCall
    ) -> Reply:
        """Receive, then store. Whatever goes wrong, also a caller who went away, leaves no object behind."""
        committing = False
        try:
            received.receive(chunks)
            call.settle()
            self.database.fault("upload.received")
            committing = True
            answer = self._retry(attempt)
        except BaseException as error:
            # whatever else ends it, an interrupt or a disk that fails, the commit may have gone through
            refused = isinstance(error, LabelDPError) and not isinstance(error, Unavailable)
            if refused or not committing:
                self._delete(received.started)
            # the same call may have won a race, and its answer is the answer
            earlier = self._earlier(call) if isinstance(error, Conflict) else None
            if earlier is not None:
                return earlier
            raise
        committed = {s.key for s in received.stored}
        self._delete(key for key in received.started if key not in committed)
        return answer

    def _earlier(self, call: IdempotentCall) -> Reply | None:
        return None if call.key is None else self.database.read("intake.seen", call.earlier)

    def _commit(self, name: str, store: Callable[[Connection], Reply], written: list[str], unused: list[str]) -> Reply:
        """Run transaction `store`, then remove what it left in `unused`: objects that were replaced, or the new ones
        where the same call had come first and its answer was given again. `written` goes if it failed."""
        try:
            answer = self.database.write(name, store)
        except LabelDPError as error:
            if not isinstance(error, Unavailable):
                self._delete(written)
            raise
        self._delete(unused)
        return answer

    def _delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            self.vault.delete(key)

    @staticmethod
    def _retry(attempt: Callable[[], Reply]) -> Reply:
        for _ in range(RETRIES):
            try:
                return attempt()
            except (StaleBatch, FileNotFoundError):  # another upload came first, or a run was merged away
                continue
        raise Unavailable("Too many uploads to the same batch at once; try again.")

    def _known(self, batch_id: str, before: Known | None = None) -> tuple[Batch, Population, Known]:
        """The batch and its runs, those of `before` not opened again."""

        def look(connection: Connection) -> tuple[Batch, Population, list[Segment], list[Segment]]:
            batch, population = self.batches.get(connection, batch_id)
            listed = self._runs(connection, batch_id, EXAMPLES) if batch.presence == ID_LIST else []
            return batch, population, listed, self._runs(connection, batch_id, LABELS)

        batch, population, listed, taken = self.database.read("labels.look", look)
        old = {} if before is None else before.listed | before.taken

        def opened(found: list[Segment]) -> dict[str, Run]:
            return {s.key: old[s.key] if s.key in old else self.vault.run(s.key) for s in found}

        return batch, population, Known(opened(listed), opened(taken))

    def _segments(self, connection: Connection, batch_id: str, kind: str) -> list[Segment]:
        return self.batches.segments(connection, batch_id, kind)

    def _runs(self, connection: Connection, batch_id: str, of: str) -> list[Segment]:
        return self.batches.segments(connection, batch_id, RUNS, of)

    def _may_send(self, batch: Batch, *, owner: bool) -> None:
        if owner:
            require_open(batch)
        else:
            require_window(batch, self.batches.clock())

    @staticmethod
    def _may_list(batch: Batch) -> None:
        if batch.presence != ID_LIST:
            raise Conflict(f"The owner declared presence in batch '{batch.id}' public, so it takes no list of ids.")


def _opened(chunks: Chunks | Open, wanted: tuple[str, ...]) -> Chunks:
    return chunks(wanted) if callable(chunks) else chunks


def _run_key(key: str) -> str:
    """A fresh key for the run beside a stored object: an attempt that is repeated never writes over another's."""
    return f"{key.removesuffix('.parquet')}-{secrets.token_hex(4)}.run"


def _fresh(run: Run, known: Known) -> Run:
    """The digests that no run of the batch holds yet: a batch's runs hold every id once."""
    new = ~among(run, known.taken.values())
    return (run[0], run[1]) if new.all() else (run[0][new], run[1][new])


__all__ = ["DELETE", "INSERT", "UPSERT", "Intake", "digest_key", "mask_key", "masked_schema"]
