"""Retention: a batch's labels are deleted; ledger, messages and digests of ids stay (invariant budget-outlives-labels).

One transaction sets the state, adds the audit event and erases the batch's key. Then objects are deleted, the key is
scrubbed from the database's files, and the rows go. After a crash at any point the next run deletes the rest.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from label_dp.audit.events import BATCH_PURGED, Event, Subject
from label_dp.audit.store import AuditStore
from label_dp.errors import Conflict, LabelDPError, Unavailable
from label_dp.logs import event
from label_dp.schemas.replies import BatchOut
from label_dp.store.database import Database
from label_dp.store.idempotency import NO_KEY, IdempotentCall, Reply, forget_old
from labels_party.labels.batch_uses import ACCEPTED, WORKING, standing
from labels_party.labels.batches import (
    ERASED,
    EVENTS,
    EXAMPLES,
    FEATURES,
    LABELS,
    PREDICTOR,
    PURGED,
    RUNS,
    SEALED,
    Batches,
    timestamp,
)
from labels_party.labels.vault import LabelVault
from labels_party.storage.tables import batches, idempotency, populations, segments, work
from labels_party.work.decisions import Decisions
from labels_party.work.leases import Leases

log = logging.getLogger("label_dp.retention")
# objects under the batch's key, or that reveal whether an id has a label
OF_LABELS = sa.or_(
    segments.c.kind.in_((EXAMPLES, LABELS, EVENTS, SEALED, ERASED, PREDICTOR, FEATURES)),
    sa.and_(segments.c.kind == RUNS, segments.c.of == LABELS),
)


class Retention:
    """Purges of batches, by request and by age."""

    def __init__(
        self,
        database: Database,
        batches_: Batches,
        decisions: Decisions,
        vault: LabelVault,
        audit: AuditStore,
        leases: Leases,
    ) -> None:
        self.database, self.batches, self.decisions = database, batches_, decisions
        self.vault, self.audit, self.leases = vault, audit, leases
        self.clock = batches_.clock

    def purge(self, batch_id: str, actor: str, call: IdempotentCall = NO_KEY, why: str = "asked for") -> Reply:
        """Delete the labels of a sealed batch; does nothing if they are purged. Returns (200, the batch). Raises
        Conflict (open, or a release of it is being drawn), Unavailable (deletion continues by itself later)."""

        def begin(connection: Connection) -> Reply:
            return call.once(connection, lambda: (200, self._begin(connection, batch_id, actor, why)))

        answer = self.database.write("purge.begin", begin)
        self._finish(batch_id)
        return answer

    def _begin(self, connection: Connection, batch_id: str, actor: str, why: str) -> BatchOut:
        batch, population = self.batches.get(connection, batch_id)
        if batch.state == PURGED:
            return batch.as_json()
        if batch.state != "sealed":
            raise Conflict(f"Batch '{batch_id}' is {batch.state}; labels are purged once it is sealed.")
        working = [s for s in standing(connection, batch_id) if s.working]
        if working:
            what = working[0].what.capitalize()
            raise Conflict(f"{what} '{working[0].id}' of this batch is being drawn; purge it once that is published.")
        for waiting in self.decisions.works.of_batch(connection, batch_id):
            if waiting.state == ACCEPTED:  # nobody could approve it any more
                reason = "the labels of its batch were purged"
                unapproved = Conflict(f"T{reason[1:]} before a second person approved it; nothing was charged.")
                self.decisions.end(connection, waiting, population, actor, reason, unapproved)
        self.batches.retire_predictors(connection, batch_id)
        self.batches.keys.erase(connection, batch_id)
        now = timestamp(self.clock())
        values = {"state": PURGED, "purged": now, "schedule_problem": None}
        connection.execute(sa.update(batches).where(batches.c.id == batch_id).values(**values))
        subject = Subject(population.id, population.name, population.label, batch_id)
        details = {"n": batch.n, "why": why}
        self.audit.append(connection, Event(BATCH_PURGED, subject, unit=population.unit, actor=actor, details=details))
        return self.batches.get(connection, batch_id)[0].as_json()

    def _finish(self, batch_id: str) -> None:
        """Finish a purge unless another process does; the next run takes over from one that died."""
        with self.leases.hold(f"purge {batch_id}") as leased:
            if leased:
                self._delete(batch_id)

    def _delete(self, batch_id: str) -> None:
        """Delete every object of a purged batch except the digests of its ids and units; safe to repeat."""
        query = sa.select(segments.c.key).where(segments.c.batch == batch_id, sa.not_(OF_LABELS))
        digests = set(self.database.read("purge.look", lambda c: c.execute(query).scalars().all()))
        self.database.fault("purge.delete:begin")
        try:
            # also what a killed process stored without a row that names it
            for key in self.vault.keys(f"{batch_id}/"):
                if key not in digests:
                    self.vault.delete(key)
                    self.database.fault("purge.delete:one")
        except OSError as error:
            raise Unavailable(f"Labels cannot be deleted yet ({error.strerror}); it is tried again.") from None
        if not self.database.scrub():
            raise Unavailable(
                "The labels cannot be read any more, but their key is still in the database's log; it is tried again."
            )

        def forget(connection: Connection) -> None:
            connection.execute(sa.delete(segments).where(segments.c.batch == batch_id, OF_LABELS))
            connection.execute(sa.delete(idempotency).where(idempotency.c.batch == batch_id))

        self.database.write("purge.forget", forget)

    # --- automatic ---------------------------------------------------------------------------------------

    def due(self, connection: Connection) -> list[str]:
        """List sealed batches whose first publication is older than their population's retention."""
        now = self.clock()
        query = (
            sa.select(batches.c.id, populations.c.retention_days, sa.func.min(work.c.published))
            .join(populations, populations.c.id == batches.c.population)
            .join(work, work.c.batch == batches.c.id)
            .where(batches.c.state == "sealed", populations.c.retention_days.is_not(None))
            .group_by(batches.c.id, populations.c.retention_days)
            .having(sa.func.min(work.c.published).is_not(None), sa.func.count().filter(work.c.state.in_(WORKING)) == 0)
        )
        return [row[0] for row in connection.execute(query) if row[2] <= timestamp(now - dt.timedelta(days=row[1]))]

    def unfinished(self, connection: Connection) -> list[str]:
        """List purged batches that still name labels, left by a crash."""
        query = (
            sa.select(batches.c.id)
            .join(segments, segments.c.batch == batches.c.id)
            .where(batches.c.state == PURGED, OF_LABELS)
            .distinct()
        )
        return list(connection.execute(query).scalars())

    def run_due(self, stopped: Callable[[], bool] = lambda: False) -> int:
        """Purge due batches and finish started purges; return how many. Forgets old calls."""
        forget_old(self.database, idempotency)
        unfinished, due = self.database.read("retention.look", lambda c: (self.unfinished(c), self.due(c)))
        purged = 0
        for batch_id in [*unfinished, *due]:
            if stopped():
                break
            try:
                if batch_id in unfinished:
                    self._finish(batch_id)
                else:
                    self.purge(batch_id, "worker", why="retention")
                purged += 1
            except LabelDPError as error:
                extra = event("purge-waits", batch=batch_id, code=error.code)
                log.warning("labels of batch %s are not purged yet: %s", batch_id, error.code, extra=extra)
        return purged
