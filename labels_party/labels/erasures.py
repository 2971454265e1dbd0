"""Erasure requests: the label of an example stops counting and is deleted from storage; its id stays.

An erased example takes the population's missing-label value: at the seal of an open batch, or at once in a sealed
batch, which is rewritten without the label. The rows of a batch never depend on it (invariant public-rows). Only the
owner requests, and learns which ids no batch has. A later label of an erased id is accepted and ignored, so that
senders of labels learn nothing. Ids are stored as keyed digests only.

A crash at any point loses nothing: requests and their progress are rows; one transaction replaces an object and notes
the old one, which is deleted afterwards. While a release of a batch is being drawn, its labels stay and erasures wait.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from label_dp.actors import name_of
from label_dp.audit.events import ERASED as LABEL_ERASED
from label_dp.audit.events import ERASURE_REQUESTED, Event, Subject
from label_dp.audit.store import AuditStore
from label_dp.errors import Conflict, InvalidInput, LabelDPError
from label_dp.logs import event
from label_dp.schemas.replies import ErasureOut, Recall
from label_dp.store.apikeys import names_of
from label_dp.store.database import Database
from label_dp.store.idempotency import NO_KEY, IdempotentCall, Reply
from labels_party.labels.at_rest import digest_key
from labels_party.labels.batch_uses import PUBLISHED, standing
from labels_party.labels.batches import ERASED, RUNS, SEALED, Batch, Batches, Segment, StaleBatch, timestamp
from labels_party.labels.changes import delete, until_current
from labels_party.labels.columns import label_rows, label_schema, positions_of
from labels_party.labels.digests import siphash128
from labels_party.labels.erased import run_of, text_of
from labels_party.labels.parsing import ID, canonical_column
from labels_party.labels.runs import Marks, Run, among, contains, only, run_parts
from labels_party.labels.vault import LabelVault
from labels_party.ledger.populations import NO_ERASURE, Population, Populations
from labels_party.storage.secrets import Secrets
from labels_party.storage.tables import api_keys, erasures, segments

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("label_dp.erasures")
MOST_IDS = 100_000  # of one request
AT_ONCE = 500  # rows of one statement
SHOWN = 100  # unmatched ids in a reply
RETRIES = 20
REQUESTED, DONE = "requested", "done"
BEFORE, AFTER, PURGED = "before any release", "after a release", "labels were purged already"


@dataclass(frozen=True)
class ErasureWork:
    """Requested digests of one population, and its batches that may hold them."""

    population: Population
    asked: Run
    batches: list[tuple[Batch, list[Segment]]]


class Erasures:
    """Erasure requests by id: recording, execution and list."""

    def __init__(
        self,
        database: Database,
        populations: Populations,
        batches: Batches,
        vault: LabelVault,
        secrets_: Secrets,
        audit: AuditStore,
        clock: Callable[[], Any],
        hold: Callable[[str], AbstractContextManager[bool]],
    ) -> None:
        """Prepare; `hold(name)` yields whether this process alone now works on `name`."""
        self.database, self.populations, self.batches = database, populations, batches
        self.vault, self.secrets, self.audit, self.clock = vault, secrets_, audit, clock
        self.hold = hold

    # --- request ------------------------------------------------------------------------------------------

    def request(self, population: str, ids: list[str | int], actor: str, call: IdempotentCall = NO_KEY) -> Reply:
        """Record a request to erase the labels of `ids`; return 202, the request and ids that no batch has. `finish`
        carries it out. Raises InvalidInput, InvalidRows, Conflict (no missing-label value)."""
        if not 1 <= len(ids) <= MOST_IDS:
            raise InvalidInput(f"Send 1 to {MOST_IDS} example ids at a time.")
        declared = self.population(population)
        digests = self.digests(declared, ids)
        texts = text_of(*digests)
        unmatched, names = self._unmatched(declared, digests, ids)

        def store(connection: Connection) -> Reply:
            return call.once(
                connection, lambda: (202, self._note(connection, declared, digests, texts, actor) | unmatched)
            )

        status, answer = self.database.write("erasure.request", store)
        return status, {**answer, "unmatched_ids": names}  # neither rows nor stored replies keep ids

    def population(self, name: str) -> Population:
        """Return the population. Raises NotFound, Conflict (no missing-label value)."""
        rules = self.database.read("erasure.look", lambda c: self.populations.get(c, name))
        if rules.missing_label is None:
            raise Conflict(
                f"In population '{rules.name}' {NO_ERASURE}, and its rules cannot change. Leave the example out of the "
                "next batch, and delete all labels of its old one: labels-party purge BATCH, or over REST "
                "POST /v1/batches/{batch}/purge."
            )
        return rules

    def _unmatched(
        self, population: Population, digests: Run, ids: list[str | int]
    ) -> tuple[dict[str, int], list[str]]:
        """Count the examples that no batch of the population has, sealed, purged or open; name some of their ids."""

        def look(connection: Connection) -> list[str]:
            batches = self.batches.of_population(connection, population.id)
            return [s.key for b in batches for s in self.batches.segments(connection, b.id, RUNS)]

        def seen() -> Marks:
            keys = self.database.read("erasure.runs", look)
            return among(digests, (self.vault.run(key) for key in keys))

        busy = "Too many uploads to the same population at once; try again."
        unknown = set(text_of(*only(digests, ~until_current(seen, RETRIES, busy))))
        some = []
        if unknown:
            named = zip(ids, self._texts(population, ids), strict=True)
            some = list(dict.fromkeys(str(one) for one, text in named if text in unknown))[:SHOWN]
        return {"unmatched": len(unknown)}, some

    def digests(self, population: Population, ids: list[str | int]) -> Run:
        """Return the run of keyed digests of the distinct ids. Raises InvalidRows."""
        return run_of(sorted(set(self._texts(population, ids))))

    def _texts(self, population: Population, ids: list[str | int]) -> list[str]:
        import pyarrow as pa

        column = canonical_column(pa.array([str(i) for i in ids], pa.string()), ID)
        return text_of(*siphash128(column, digest_key(self.secrets, population.label)))

    def _note(
        self, connection: Connection, population: Population, digests: Run, texts: list[str], actor: str
    ) -> dict[str, Any]:
        details = {"examples": len(texts), "ids_mac": self.mac(population, digests)}
        erasure = Event(ERASURE_REQUESTED, population.subject, actor=actor, details=details)
        event = self.audit.append(connection, erasure)
        self.add(connection, population, texts, event.moment, actor)
        return {"population": population.id, "examples": len(texts), "requested": event.moment}

    def add(self, connection: Connection, population: Population, texts: list[str], moment: str, actor: str) -> None:
        """Add a row for each example that has none yet."""
        present: set[str] = set()
        t = erasures
        for start in range(0, len(texts), AT_ONCE):
            part = t.c.id_digest.in_(texts[start : start + AT_ONCE])
            query = sa.select(t.c.id_digest).where(t.c.population == population.id, part)
            present.update(connection.execute(query).scalars())
        row = {"population": population.id, "state": REQUESTED, "requested": moment, "requested_by": actor}
        rows = [{"id": "era_" + secrets.token_hex(12), "id_digest": d} | row for d in texts if d not in present]
        for start in range(0, len(rows), AT_ONCE):
            connection.execute(sa.insert(t), rows[start : start + AT_ONCE])

    def mac(self, population: Population, run: Run) -> str:
        """Return a MAC of the ids: only this party can tell whether two requests concern the same ids."""
        return self.secrets.mac("erased:" + population.id, *run_parts(run))

    # --- execution --------------------------------------------------------------------------------------

    def finish(self, stopped: Callable[[], bool] = lambda: False) -> int:
        """Carry out requests unless a draw is in progress; return the count of requests that still wait."""
        self._delete_replaced()
        waiting = self.database.read("erasure.waiting", self._waiting)
        for population in waiting:
            if stopped():
                break
            try:
                with self.hold(f"erasures {population}") as alone:
                    if alone:
                        self._finish(population)
            except LabelDPError as error:  # it is retried; the other populations go on
                extra = event("erasures-wait", population=population, code=error.code)
                log.warning("erasures of population %s wait: %s", population, error.code, extra=extra)
        query = sa.select(sa.func.count()).select_from(erasures).where(erasures.c.state == REQUESTED)
        return self.database.read("erasure.left", lambda c: int(c.execute(query).scalar_one())) if waiting else 0

    @staticmethod
    def _waiting(connection: Connection) -> list[str]:
        query = sa.select(erasures.c.population).where(erasures.c.state == REQUESTED).distinct()
        return list(connection.execute(query).scalars())

    def _finish(self, population_id: str) -> None:
        work = self.database.read("erasure.work", lambda c: self._work(c, population_id))
        blocked = False
        for batch, runs in work.batches:
            digests = only(work.asked, among(work.asked, (self.vault.run(s.key) for s in runs)))
            if not len(digests[0]):
                continue
            try:
                self._erase(work.population, batch, digests)
            except (StaleBatch, FileNotFoundError):
                blocked = True
        if not blocked:
            # the rest is in no sealed batch: the seal of an open one leaves their labels out
            self.database.write("erasure.rest", lambda c: self._done(c, work, work.asked))
        self._delete_replaced()

    def _work(self, connection: Connection, population_id: str) -> ErasureWork:
        population = self.populations.get(connection, population_id)
        t = erasures
        query = sa.select(t.c.id_digest).where(t.c.population == population_id, t.c.state == REQUESTED)
        requested = run_of(list(connection.execute(query).scalars()))
        sealed = [b for b in self.batches.of_population(connection, population_id) if b.sealed is not None]
        return ErasureWork(
            population, requested, [(b, self.batches.segments(connection, b.id, RUNS, SEALED)) for b in sealed]
        )

    def _erase(self, population: Population, batch: Batch, digests: Run) -> None:
        """Rewrite the sealed batch without the labels of `digests`, and replace the old one."""
        stored = self.database.read("erasure.sealed", lambda c: self.batches.segments(c, batch.id, SEALED))
        if not stored:  # purged
            self.database.write("erasure.purged", lambda c: self._replace(c, population, batch, digests, {}))
            return
        keys = {old: f"{batch.id}/sealed-{secrets.token_hex(8)}.parquet" for old in stored}
        try:
            for old, key in keys.items():
                self.vault.put(key, self._without(population, old.key, digests), label_schema())
            self.database.fault("erasure.written")
            self.database.write("erasure.replace", lambda c: self._replace(c, population, batch, digests, keys))
        except (StaleBatch, FileNotFoundError):
            delete(self.vault, keys.values())
            raise

    def _without(self, population: Population, old: str, digests: Run) -> Iterator[pa.RecordBatch]:
        """Yield the rows of object `old`, those of `digests` with the missing-label value."""
        index = population.missing_index
        assert index is not None
        id_key = digest_key(self.secrets, population.label)
        for rows in self.vault.scan(old):
            ids: Any = rows.column(0)
            gone = contains(digests, *siphash128(ids, id_key))
            yield label_rows(ids, np.where(gone, np.uint32(index), positions_of(rows)))

    def _replace(
        self, connection: Connection, population: Population, batch: Batch, digests: Run, keys: dict[Segment, str]
    ) -> None:
        """Replace the old objects by `keys` (empty for a purged batch), and record the erasure."""
        batch_uses = standing(connection, batch.id)
        now = self.batches.segments(connection, batch.id, SEALED)
        # a draw in progress reads the old object; its release is published first, then this comes
        if any(s.drawing for s in batch_uses) or now != list(keys):
            raise StaleBatch("A release of this batch is being drawn, or the batch changed meanwhile.")
        # a purge that has begun may have listed what it deletes: nothing new comes in between
        if keys and self.batches.get(connection, batch.id)[0].purged is not None:
            raise StaleBatch("This batch is being purged.")
        published = [s.id for s in batch_uses if s.state == PUBLISHED]
        s = segments
        for old, key in keys.items():
            where = (s.c.batch == batch.id, s.c.kind == SEALED, s.c.number == old.number)
            connection.execute(sa.update(s).where(*where).values(key=key))
            self.batches.add_segment(connection, batch.id, ERASED, old.key, old.rows)
        if keys:
            self.batches.retire_uploads(connection, batch.id)  # they hold the labels as well
            self.batches.retire_predictors(connection, batch.id)  # they learned from them
        effect = PURGED if not keys else AFTER if published else BEFORE
        details = {"examples": len(digests[0]), "effect": effect, "published": published}
        details |= {"ids_mac": self.mac(population, digests)}
        subject = Subject(population.id, population.name, population.label, batch.id)
        self.audit.append(connection, Event(LABEL_ERASED, subject, actor="worker", details=details))
        self._mark(connection, population, digests, {"batch": batch.id, "effect": effect})

    def _done(self, connection: Connection, work: ErasureWork, digests: Run) -> None:
        """Mark requests outside sealed batches as done; a batch sealed meanwhile left these labels out."""
        self._mark(connection, work.population, digests, {})

    def _mark(self, connection: Connection, population: Population, run: Run, values: dict[str, str]) -> None:
        t, texts = erasures, text_of(*run)
        values = {"state": DONE, "applied": timestamp(self.clock())} | values
        for start in range(0, len(texts), AT_ONCE):
            part = t.c.id_digest.in_(texts[start : start + AT_ONCE])
            still = (t.c.population == population.id, t.c.state == REQUESTED, part)
            connection.execute(sa.update(t).where(*still).values(**values))

    def _delete_replaced(self) -> None:
        """Delete replaced objects, then the rows that note them; safe to repeat."""
        query = sa.select(segments.c.batch, segments.c.number, segments.c.key).where(segments.c.kind == ERASED)
        for batch, number, key in self.database.read("erasure.replaced", lambda c: c.execute(query).all()):
            self.vault.delete(key)
            self.database.fault("erasure.deleted")
            self.database.write("erasure.forget", partial(self._forget, batch=batch, number=number))

    def _forget(self, connection: Connection, batch: str, number: int) -> None:
        self.batches.drop_segments(connection, batch, ERASED, [number])

    # --- list ---------------------------------------------------------------------------------------------

    def list(
        self,
        connection: Connection,
        population: Population,
        *,
        ids: list[str | int],
        after: str,
        limit: int,
        units: Sequence[str] = (),
    ) -> list[ErasureOut]:
        """List requests in order of id, or those of the examples `ids` or of `units` (digests): state and releases not
        recallable. Made of public facts: which batch has an id, never whether it had a label."""
        t = erasures
        query = sa.select(t).where(t.c.population == population.id, t.c.id > after).order_by(t.c.id).limit(limit)
        if ids:
            query = query.where(t.c.id_digest.in_(text_of(*self.digests(population, ids))))
        if units:
            query = query.where(t.c.unit_digest.in_(units))
        names = names_of(connection, api_keys)
        rows = connection.execute(query).all()
        return [self.told(connection, row, population, names) for row in rows]

    @staticmethod
    def told(connection: Connection, row: sa.Row[Any], population: Population, names: Mapping[str, str]) -> ErasureOut:
        """Describe one request."""
        releases: list[Recall] = []
        if row.batch is not None and row.applied is not None:
            published = [s for s in standing(connection, row.batch) if s.state == PUBLISHED and s.published]
            for release in sorted(published, key=lambda s: str(s.published)):
                if str(release.published) <= row.applied:
                    releases.append({"work": release.id, "published": str(release.published)[:10]})
        return {
            "id": row.id,
            "state": row.state,
            "effect": row.effect,
            "requested": row.requested,
            "batch": row.batch,
            "requested_by": row.requested_by,
            "applied": row.applied,
            "cannot_be_recalled": releases,
            "audiences": [*population.audiences] if releases else [],
            "requested_by_name": name_of(row.requested_by, names),
        }
