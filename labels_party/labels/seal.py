"""Seal of a batch: ids complete, labels present or replaced by the missing-label value, disjoint from all others.

A sealed batch never changes: one encrypted file of (id, label) sorted bytewise by id, one sorted run of id digests and,
in a population with units, one tally. Its rows and their order do not depend on labels (invariant public-rows).
"""

from __future__ import annotations

import itertools
import json
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from sqlalchemy.engine import Connection

from label_dp.ahead import ahead
from label_dp.audit.events import BATCH_SEALED, Event, Subject
from label_dp.audit.people_rules import MAY_REPEAT
from label_dp.errors import Conflict
from label_dp.store.database import Database
from label_dp.store.idempotency import NO_KEY, IdempotentCall, Reply
from labels_party.labels.aside import UploadsSetAside, digests_of, forget_counted
from labels_party.labels.at_rest import digest_key
from labels_party.labels.batches import (
    EVENTS,
    EXAMPLES,
    ID_LIST,
    LABELS,
    MEMBERS,
    RUNS,
    SEALED,
    UNITS,
    Batch,
    Batches,
    Segment,
    StaleBatch,
    require_open,
)
from labels_party.labels.by_id.sort import IdSort
from labels_party.labels.changes import commit, delete, until_current
from labels_party.labels.columns import POSITION, label_rows, label_schema, positions_of
from labels_party.labels.compaction import Compaction
from labels_party.labels.digests import ListMac
from labels_party.labels.disjoint import Disjoint, DisjointCheck, SameExamples
from labels_party.labels.erased import blanked, blanked_units, count_blanked
from labels_party.labels.events.labels import EventLabels
from labels_party.labels.history import History, HistoryTiers
from labels_party.labels.lost_batches import carry_lost, lost_batches
from labels_party.labels.runs import Run, beyond, merge, page_out, run_parts
from labels_party.labels.sorting import SHOWN_IDS, Excess, IncompleteLabels, LabelSort, StoredExamples, resolved
from labels_party.labels.units import TooManyExamples, Units, UnitTally
from labels_party.labels.vault import LabelVault
from labels_party.ledger.populations import Population
from labels_party.ledger.store import Ledger
from labels_party.storage.secrets import Secrets

if TYPE_CHECKING:
    import pyarrow as pa

RETRIES = 20


@dataclass(frozen=True)
class Prepared:
    """Seal with files written and checks passed, to be recorded in one transaction."""

    batch: Batch
    population: Population
    objects: tuple[tuple[str, int], ...]  # keys and rows, in the order of ids
    run_key: str
    units_key: str
    rows: int
    id_bytes: int
    ids_mac: str
    checked: DisjointCheck
    tally: UnitTally | None
    units: int
    tallied: list[Segment]
    erased: int  # erasures of the population that the rows took into account
    members_key: str = ""
    events_key: str = ""
    tables: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # versions of lake tables that it was read of
    people_ids: str = ""  # a MAC of the ids that batches of other label columns of its people would have too

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys of all its objects."""
        return (
            *(key for key, _ in self.objects),
            self.run_key,
            *(key for key in (self.units_key, self.members_key, self.events_key) if key),
        )


def sealed_key(batch: Batch, name: str) -> str:
    """Return the vault's key of a sealed file."""
    return f"{batch.id}/sealed-{name}.parquet"


class Sealer:
    """Checks, files and transactions of seals."""

    def __init__(
        self,
        database: Database,
        batches: Batches,
        vault: LabelVault,
        secrets_: Secrets,
        ledger: Ledger,
        sort: LabelSort,
        events: EventLabels,
        turn: Callable[[str], AbstractContextManager[None]],
    ) -> None:
        """Prepare; `turn(name)` waits until no other process works on `name`."""
        self.database, self.batches, self.vault, self.secrets = database, batches, vault, secrets_
        self.ledger, self.audit, self.turn = ledger, ledger.audit, turn
        self.events = events
        self.sort, self.units = sort, Units(batches, vault, secrets_, sort)
        history = History(batches)
        self.disjoint, self.tiers = Disjoint(database, history, vault), partial(HistoryTiers, history)
        self.compaction = Compaction(database, vault, sort.spill)

    def seal(
        self,
        batch_id: str,
        actor: str,
        call: IdempotentCall = NO_KEY,
        guard: Callable[[Connection], None] | None = None,
    ) -> Reply:
        """Seal an open batch; `guard` may refuse inside the sealing transaction.

        Ids and units are checked before labels are read. Raises Busy, Conflict, OverlappingBatch, TooManyExamples or
        IncompleteLabels. Then nothing changed, except that keys that may only send labels are refused from now on: they
        must not see the outcome.
        """
        earlier = self.database.read("seal.seen", call.earlier)
        if earlier is not None:
            return earlier
        busy = "Too many uploads to the same batch at once, or a part of it is lost; try again."
        self.database.write("seal.close", lambda c: self.batches.close(c, batch_id))
        # two seals would sort the batch twice; waiting here holds no memory
        with self.turn(f"seal {batch_id}"), self.sort.alone():
            return until_current(lambda: self._attempt(batch_id, actor, call, guard), RETRIES, busy)

    def _attempt(
        self, batch_id: str, actor: str, call: IdempotentCall, guard: Callable[[Connection], None] | None
    ) -> Reply:
        # one snapshot: a repeated call whose first one sealed meanwhile gets its reply, no conflict
        earlier, state = self.database.read("seal.look", lambda c: (call.earlier(c), self._look(c, batch_id)))
        if earlier is not None:
            return earlier
        batch, population, segments, runs, held_back = state
        require_open(batch)
        if batch.set_aside:
            raise UploadsSetAside(batch_id, batch.set_aside)
        if not segments[LABELS] and not (batch.presence == ID_LIST and segments[EXAMPLES] and population.missing_label):
            raise Conflict(f"Batch '{batch_id}' has no labels yet; send them before sealing.")
        if batch.presence == ID_LIST and not segments[EXAMPLES]:
            raise Conflict(
                f"Batch '{batch_id}' has no list of example ids; send it, or open a batch whose presence is public."
            )
        examples = StoredExamples(segments[EXAMPLES] if batch.presence == ID_LIST else [], segments[LABELS])
        if population.events is not None:
            examples = self.events.of(batch, population.events, population.domain, examples)
        sealed = self.prepare(batch, population, examples, self._digests(batch, runs, held_back))
        self.database.fault("seal.prepared")
        return self.record("seal.store", sealed, actor, call, guard)

    def prepare(
        self,
        batch: Batch,
        population: Population,
        examples: StoredExamples,
        runs: list[Run],
        passing: IdSort | None = None,
    ) -> Prepared:
        """Run the slow part: checks and files.

        `runs` hold the digest of every example once; the records are those `passing`, or the segments of `examples`.
        Raises OverlappingBatch, TooManyExamples or IncompleteLabels; then nothing remains.
        """
        run = merge(runs)
        checked = self.disjoint.check(batch, run)
        tally, excess, tallied, persons = None, None, [], 0
        if population.unit.max_examples is not None:
            tallied = self.database.read("seal.units", lambda c: self.units.earlier(c, population))
            gone = self.database.read("seal.erased-units", lambda c: blanked_units(c, population.id))
            tally, excess = self.units.judge(batch, population, examples, tallied, gone)
            persons = len(gone[0])
        erased = self.database.read("seal.erased", lambda c: blanked(c, population.id))
        if len(erased[0]):
            runs_without = [erased] if excess is None else [excess.run, erased]
            excess = Excess(merge(runs_without), digest_key(self.secrets, batch.label))
        name = secrets.token_hex(8)
        keys = (
            sealed_key(batch, name),
            f"{batch.id}/sealed-{name}.run",
            f"{batch.id}/units-{name}",
            f"{batch.id}/members-{name}",
            f"{batch.id}/{EVENTS}-{name}",
        )
        size = _Size()
        try:
            with ThreadPoolExecutor(1, "digests") as beside, ExitStack() as stack:
                digests = beside.submit(self._put_run, keys[1], batch.label, run, runs)
                id_sort = passing or stack.enter_context(self.sort.of(examples))
                resting = resolved(id_sort, len(run[0]), population.missing_index, excess)
                stored = itertools.starmap(label_rows, resting)
                size.mac = self._people_mac(population)
                rows = self.vault.put(keys[0], size.of(stored), label_schema())
                ids_mac = digests.result()
            units = 0 if tally is None else self.units.store(keys[2], tally)
            if tally is not None:
                self.units.store_members(keys[3], batch, population, examples)
            if examples.event_counts is not None:
                self._put_counts(keys[4], examples.event_counts)
        except BaseException:
            delete(self.vault, keys)
            raise
        return Prepared(
            batch,
            population,
            ((keys[0], rows),),
            keys[1],
            keys[2],
            rows,
            size.id_bytes,
            ids_mac,
            checked,
            tally,
            units,
            tallied,
            len(erased[0]) + persons,
            keys[3] if tally is not None else "",
            keys[4] if examples.event_counts is not None else "",
            people_ids="" if size.mac is None else size.mac.hexdigest(),
        )

    def _people_mac(self, population: Population) -> ListMac | None:
        """Return a MAC of ids to be fed, where equal ids of other label columns count: people who are examples."""
        if population.people is None or population.unit.unit_column is not None:
            return None
        return ListMac(*(self.secrets.keyed(f"people-{what}:{population.people}") for what in ("ids", "lengths")))

    def adopted(
        self,
        batch: Batch,
        population: Population,
        objects: list[tuple[str, int]],
        runs: list[Run],
        id_bytes: int,
        event_counts: Mapping[str, int] | None = None,
    ) -> Prepared:
        """Prepare a seal from objects written elsewhere; `runs` hold the digest of every example once. Raises
        OverlappingBatch, and StaleBatch if some examples are erased; then no run remains."""
        run = merge(runs)
        checked = self.disjoint.check(batch, run)
        if self.database.read("seal.erased", lambda c: count_blanked(c, population.id)):
            raise StaleBatch("Some examples do not keep their labels.")
        name, rows = secrets.token_hex(8), sum(rows for _, rows in objects)
        run_key, events_key = f"{batch.id}/sealed-{name}.run", f"{batch.id}/{EVENTS}-{name}"
        try:
            ids_mac = self._put_run(run_key, batch.label, run, runs)
            if event_counts is not None:
                self._put_counts(events_key, event_counts)
        except BaseException:
            delete(self.vault, (run_key, events_key))
            raise
        sealed = Prepared(
            batch, population, tuple(objects), run_key, "", rows, id_bytes, ids_mac, checked, None, 0, [], 0
        )
        return sealed if event_counts is None else replace(sealed, events_key=events_key)

    def _put_counts(self, key: str, counts: Mapping[str, int]) -> None:
        self.vault.put_bytes(key, json.dumps(counts).encode())

    def _put_run(self, key: str, label: str, run: Run, parts: list[Run]) -> str:
        """Store the digests; return the MAC of their set."""
        self.vault.put_run(key, *run)
        mac = self.secrets.mac("ids:" + label, *run_parts(run))
        for part in (run, *parts):  # of a large batch they would take the sort's memory
            page_out(part)
        return mac

    def record(
        self,
        name: str,
        sealed: Prepared,
        actor: str,
        call: IdempotentCall = NO_KEY,
        first: Callable[[Connection], None] | None = None,
    ) -> Reply:
        """Record the seal in transaction `name`, after `first`, which may refuse. Repeats the checks against batches
        sealed meanwhile. Raises StaleBatch or OverlappingBatch; then nothing remains."""

        def effect(connection: Connection) -> tuple[Reply, list[str]]:
            if first is not None:
                first(connection)
            self._record(connection, sealed, actor)
            return (200, self.batches.get(connection, sealed.batch.id)[0].as_json()), []

        reply = commit(self.database, self.vault, name, call, effect, sealed.keys)
        self.compaction.run(self.tiers(sealed.batch), sealed.checked.runs)
        if sealed.population.events is not None:
            self.events.windows.retire()
        return reply

    def _record(self, connection: Connection, sealed: Prepared, actor: str) -> None:
        batch, population = sealed.batch, sealed.population
        last = self.disjoint.check_again(connection, batch, self.vault.run(sealed.run_key), sealed.checked.last)
        if count_blanked(connection, population.id) != sealed.erased:
            raise StaleBatch("An erasure was asked for meanwhile.")
        if sealed.tally is not None:
            self.units.check_again(connection, population, sealed.tally, sealed.tallied)
        self.batches.bump(connection, batch)
        self.batches.seal(
            connection,
            batch,
            seal_order=last + 1,
            n=sealed.rows,
            id_bytes=sealed.id_bytes,
            ids_mac=sealed.ids_mac,
            examples_beyond=None if sealed.tally is None else sealed.tally.beyond,
        )
        for key, rows in sealed.objects:
            self.batches.add_segment(connection, batch.id, SEALED, key, rows)
        self.batches.add_segment(connection, batch.id, RUNS, sealed.run_key, sealed.rows, SEALED)
        if forget_counted(connection, batch.id) or sealed.erased:
            self.batches.retire_uploads(connection, batch.id)  # erased or dropped labels may be among them
        if sealed.tally is not None:
            self.batches.add_segment(connection, batch.id, UNITS, sealed.units_key, sealed.units)
            self.batches.add_segment(connection, batch.id, MEMBERS, sealed.members_key, sealed.rows)
        if sealed.events_key:
            self.batches.add_segment(connection, batch.id, EVENTS, sealed.events_key, 1)
        if population.events is not None:
            self.batches.end_window(connection, population.events.data_set_id)
        subject = Subject(population.id, population.name, population.label, batch.id)
        details: dict[str, Any] = {"n": sealed.rows, "presence": batch.presence}
        if batch.id_prefix is not None:
            details |= {"id_prefix": batch.id_prefix}
        if sealed.tables:
            details |= {"tables": sealed.tables}
        if population.people is not None and lost_batches(connection, batch):
            details |= {"people_ids": MAY_REPEAT}
        elif sealed.people_ids:
            details |= {"people_ids": sealed.people_ids}
        self.audit.append(connection, Event(BATCH_SEALED, subject, unit=population.unit, actor=actor, details=details))
        carry_lost(connection, self.ledger, batch, population)

    def _look(
        self, connection: Connection, batch_id: str
    ) -> tuple[Batch, Population, dict[str, list[Segment]], list[Segment], list[Segment]]:
        batch, population = self.batches.get(connection, batch_id)
        examples = self.batches.segments(connection, batch_id, EXAMPLES)
        records = self.batches.records(connection, batch_id)
        runs = self.batches.segments(connection, batch_id, RUNS, EXAMPLES if batch.presence == ID_LIST else LABELS)
        held_back = [] if batch.presence == ID_LIST else self.batches.held_back(connection, batch_id)
        return batch, population, {EXAMPLES: examples, LABELS: records}, runs, held_back

    def _digests(self, batch: Batch, runs: list[Segment], held_back: list[Segment]) -> list[Run]:
        """Return the digest of every example once; runs of uploads repeat them as sent."""
        held_runs = [self.vault.run(s.key) for s in runs]
        if batch.presence == ID_LIST:
            return held_runs
        each = beyond(held_runs, digests_of(self.vault, held_back, digest_key(self.secrets, batch.label)))
        for run in held_runs:
            page_out(run)
        return [each]


class _Size:
    """Counter of id bytes, from which space for the largest possible message is reserved; `mac` takes the ids."""

    def __init__(self) -> None:
        self.id_bytes = 0
        self.mac: ListMac | None = None

    def of(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            self.id_bytes += batch.column(0).nbytes
            if self.mac is not None:
                self.mac.add(batch.column(0))
            yield batch


class SealedLabels:
    """Reader of a sealed batch; its objects follow each other in id order."""

    def __init__(self, vault: LabelVault, *objects: str) -> None:
        self.vault, self.objects = vault, objects

    def chunks(self) -> Iterator[tuple[pa.Array, npt.NDArray[np.int64]]]:
        """Yield (ids, domain positions int64[m]) in id order."""
        for batch in self._batches(None):
            yield batch.column(0), positions_of(batch).astype(np.int64)

    def positions(self) -> Iterator[npt.NDArray[np.int64]]:
        """Yield domain positions int64[m] in id order, without reading ids."""
        for batch in self._batches([POSITION]):
            yield positions_of(batch).astype(np.int64)

    def _batches(self, columns: list[str] | None) -> Iterator[pa.RecordBatch]:
        for name in self.objects:
            yield from ahead(self.vault.scan(name, columns=columns))

    def groups(self) -> Iterator[tuple[int, int]]:
        """Yield (rows, bytes of their ids) per row group in id order, from the objects' footers."""
        for name in self.objects:
            yield from self.vault.groups(name)


__all__ = ["SHOWN_IDS", "IncompleteLabels", "SameExamples", "SealedLabels", "Sealer", "TooManyExamples"]
