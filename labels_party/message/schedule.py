"""Conversion windows: at `seal_at` a batch is sealed, and released as its template says, automatically and once.

Exactly once over restarts and several workers: the transaction that seals checks that the schedule is unchanged, and
the transaction that charges stores the release's id with the batch. One replica at a time works on a batch, so a large
one is sorted once. Refusals are stored with the batch for its owner, and retried after an upload or a change of the
schedule; temporary failures (a full disk, a lost database) are retried with growing pauses. Each transaction checks
that the key which scheduled it has not been revoked.
"""

from __future__ import annotations

import datetime as dt
import logging
import time
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from label_dp.actors import SCHEDULE
from label_dp.errors import BudgetExceeded, Conflict, InvalidInput, LabelDPError, MissingLabels, Unavailable
from label_dp.logs import event, place_of
from label_dp.privacy import ZERO, Epsilon
from label_dp.problems import problem
from label_dp.schemas.release import Release
from label_dp.store.database import Database
from label_dp.store.idempotency import NO_KEY, IdempotentCall, Reply
from labels_party.labels.batches import Batch, Batches, require_open, timestamp
from labels_party.labels.seal import Sealer
from labels_party.ledger.populations import Population
from labels_party.ledger.rules import Account, judge
from labels_party.message.kind import MessageKind
from labels_party.message.plan import ReleaseRequest, make_plan
from labels_party.message.request import make_request
from labels_party.storage.tables import batches as batches_table
from labels_party.work.leases import Leases
from labels_party.work.store import Works

log = logging.getLogger("label_dp.schedule")
OPEN, SEALED = "open", "sealed"
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 300.0
SEAL_AT, RELEASE = "seal_at", "release"


class Changed(Conflict):
    """Change of the batch or its schedule since they were read: read again. Never reaches a caller."""


def parse_time(text: str) -> dt.datetime:
    """Parse an RFC 3339 time to whole seconds UTC, rounded up. Raises InvalidInput."""
    try:
        read = dt.datetime.fromisoformat(text)
        if read.tzinfo is None or len(text) < 20 or text[10] not in "Tt ":
            raise ValueError
        utc = read.astimezone(dt.UTC)
        return utc if utc.microsecond == 0 else utc.replace(microsecond=0) + dt.timedelta(seconds=1)
    except (ValueError, OverflowError):
        raise InvalidInput("seal_at is a time with its offset (RFC 3339), such as 2030-01-31T04:00:00Z.") from None


class Scheduler:
    """Scheduler of seals and releases."""

    def __init__(
        self,
        database: Database,
        batches: Batches,
        sealer: Sealer,
        works: Works,
        message: MessageKind,
        leases: Leases,
        stands: Callable[[Connection, str], bool],
    ) -> None:
        """`stands(connection, actor)`: may scheduled work of this actor still run?"""
        self.stands = stands
        self.database, self.batches, self.sealer, self.works = database, batches, sealer, works
        self.message, self.leases, self.clock = message, leases, batches.clock
        self._pauses: dict[str, tuple[float, float]] = {}  # batch → (not before, this pause), on the monotonic clock

    # --- setting it ---------------------------------------------------------------------------------------

    def check(self, population: Population, changes: dict[str, Any]) -> dict[str, Any]:
        """Check `changes` (members `seal_at`, `release`) without labels; return them with a normalised time.
        Raises InvalidInput and its kinds, BudgetExceeded (more than the lifetime ε)."""
        checked = dict(changes)
        if checked.get(SEAL_AT) is not None:
            when = parse_time(checked[SEAL_AT])
            if when <= self.clock():
                raise InvalidInput("seal_at lies in the past; seal the batch at once instead, or name a later time.")
            checked[SEAL_AT] = timestamp(when)
        template = checked.get(RELEASE)
        if template is not None:
            if template.get("prior_epsilon", "auto") not in ("auto", "theorem7"):
                Epsilon.parse(template["prior_epsilon"], positive=True, name="ε for the prior")
            plan = make_plan(self._request(population, template), population, 1)
            verdict = judge(Account(population.lifetime, ZERO), plan.split)
            if isinstance(verdict, BudgetExceeded):
                raise verdict
        return checked

    def _request(self, population: Population, template: dict[str, Any]) -> ReleaseRequest:
        return make_request(self.message.priors, population, Release.model_validate(template))

    def set(self, connection: Connection, batch: Batch, changes: dict[str, Any], actor: str) -> Batch:
        """Apply checked changes to a batch; removing `seal_at` removes the template. Raises Conflict, InvalidInput (a
        template without a time)."""
        if SEAL_AT in changes:
            require_open(batch)
        elif batch.state != OPEN and (batch.state != SEALED or batch.scheduled_release or batch.seal_at is None):
            raise Conflict(f"Batch '{batch.id}' is {batch.state}; its schedule can no longer change.")
        when = changes.get(SEAL_AT, batch.seal_at)
        template = changes.get(RELEASE, batch.release_template if when is not None else None)
        if template is not None and when is None:
            raise InvalidInput("A release template belongs to a time: give seal_at as well.")
        # the author of the template requests its release: a colleague who moves the time does not replace them
        same = template is not None and template == batch.release_template
        if RELEASE in changes and batch.scheduled_by is not None and not self.stands(connection, batch.scheduled_by):
            same = False  # naming the same template again replaces a revoked author
        by = batch.scheduled_by if same else actor
        values = {"seal_at": when, "release_template": template, "scheduled_by": by, "schedule_problem": None}
        if SEAL_AT in changes:
            values["closed"] = None
        connection.execute(sa.update(batches_table).where(batches_table.c.id == batch.id).values(**values))
        return self.batches.get(connection, batch.id)[0]

    def change(self, batch_id: str, changes: dict[str, Any], actor: str, call: IdempotentCall = NO_KEY) -> Reply:
        """Set the members of `changes`; None removes one. Raises Conflict, InvalidInput, BudgetExceeded."""
        earlier = self.database.read("schedule.seen", call.earlier)
        if earlier is not None:
            return earlier
        batch, population = self.database.read("schedule.look", lambda c: self.batches.get(c, batch_id))
        if not changes:
            raise InvalidInput("Name what is to change: seal_at, release, or both; null removes.")
        if SEAL_AT in changes:
            require_open(batch)
        checked = self.check(population, changes)

        def store(connection: Connection) -> Reply:
            def effect() -> Reply:
                now, _ = self.batches.get(connection, batch_id)
                return 200, self.set(connection, now, checked, actor).as_json()

            return call.once(connection, effect)

        answer = self.database.write("schedule.store", store)
        self._pauses.pop(batch_id, None)
        return answer

    # --- doing it -----------------------------------------------------------------------------------------

    def due(self, connection: Connection) -> list[Batch]:
        """Return due batches that are not done, except those with a refusal that only a change can mend."""
        t, now = batches_table, timestamp(self.clock())
        query = (
            sa.select(t)
            .where(
                t.c.scheduled_release.is_(None),
                # a batch that was sealed on time stays due, also if the clock is set back
                sa.or_(t.c.seal_at <= now, t.c.seal_at <= t.c.sealed),
                sa.or_(t.c.state == OPEN, sa.and_(t.c.state == SEALED, t.c.release_template.is_not(None))),
            )
            .order_by(t.c.seal_at, t.c.id)
        )
        batches = [Batch(**row._mapping) for row in connection.execute(query)]
        return [b for b in batches if b.schedule_problem is None or b.schedule_problem.get("status", 0) >= 500]

    def run_due(self, stopped: Callable[[], bool] = lambda: False) -> int:
        """Seal and release due batches; a refusal or failure does not delay the others. Returns how many were due."""
        waiting = self.database.read("schedule.due", self.due)
        for batch in waiting:
            if stopped():
                break
            if self._pauses.get(batch.id, (0.0, 0.0))[0] <= time.monotonic():
                self._run(batch)
        return len(waiting)

    def _run(self, batch: Batch) -> None:
        try:
            with self.leases.hold(f"schedule {batch.id}") as leased:
                if not leased:
                    return
                self.database.read("schedule.same", lambda c: self._same(c, batch))
                if batch.state == OPEN:
                    by = f"{SCHEDULE}{batch.scheduled_by}"
                    self.sealer.seal(batch.id, by, guard=lambda c: self._same(c, batch))
                    batch = self.database.read("schedule.look", lambda c: self.batches.get(c, batch.id))[0]
                if batch.state == SEALED and batch.release_template is not None and batch.scheduled_release is None:
                    self._release(batch)
                self._pauses.pop(batch.id, None)
        except Changed:
            return
        except Exception as error:  # the other batches go on
            self._refused(batch, error)

    def _release(self, batch: Batch) -> None:
        assert batch.release_template is not None
        _, population = self.database.read("schedule.look", lambda c: self.batches.get(c, batch.id))
        request = self._request(population, batch.release_template)

        def claim(connection: Connection, release_id: str) -> None:
            self._same(connection, batch)
            t = batches_table
            values = {"scheduled_release": release_id, "schedule_problem": None}
            connection.execute(sa.update(t).where(t.c.id == batch.id).values(**values))

        self.works.ask(self.message, batch.id, request, batch.scheduled_by or "schedule", claim=claim)

    def _same(self, connection: Connection, batch: Batch) -> None:
        now, _ = self.batches.get(connection, batch.id)
        if _watched(now) != _watched(batch):
            raise Changed(f"The schedule of batch '{batch.id}' changed meanwhile.")
        if batch.scheduled_by is not None and not self.stands(connection, batch.scheduled_by):
            raise Conflict(
                f"The key that asked for this, '{batch.scheduled_by}', was revoked or has expired, so it is not done. "
                f"An owner names it once more: PATCH /v1/batches/{batch.id} with its release, or with seal_at where "
                "it has none."
            )

    def _refused(self, batch: Batch, error: Exception) -> None:
        """Store the refusal with the batch, unless it changed meanwhile; pause after a temporary failure."""
        failure = (
            error if isinstance(error, LabelDPError) else LabelDPError("An internal error; see the service's log.")
        )
        if isinstance(failure, MissingLabels):  # the ids without labels are shown to a caller and stored nowhere
            failure = MissingLabels(
                "Some examples have no label, and the population has no missing-label value. Sealing by hand names "
                "them; once their labels are sent, the schedule tries again."
            )
        body = problem(failure)[1]
        if isinstance(error, Unavailable) or not isinstance(error, LabelDPError):
            kind, at = type(error).__name__, place_of(error.__traceback__)
            record = event("schedule-waits", batch=batch.id, error=kind, at=at)
            log.warning("schedule of batch %s waits: %s at %s", batch.id, kind, at, extra=record)
            pause = min(LONGEST_PAUSE, 2 * self._pauses.get(batch.id, (0.0, FIRST_PAUSE / 2))[1])
            self._pauses[batch.id] = time.monotonic() + pause, pause
        if body == batch.schedule_problem:
            return

        def keep(connection: Connection) -> None:
            now, _ = self.batches.get(connection, batch.id)
            if _watched(now) == _watched(batch) and now.version == batch.version:
                t = batches_table
                connection.execute(sa.update(t).where(t.c.id == batch.id).values(schedule_problem=body))

        try:
            self.database.write("schedule.refused", keep)
        except LabelDPError as failure:  # then it is tried again, and stored then
            record = event("schedule-waits", batch=batch.id, code=failure.code)
            log.warning("schedule of batch %s: %s", batch.id, failure.code, extra=record)


def _watched(batch: Batch) -> tuple[object, ...]:
    return batch.state, batch.seal_at, batch.release_template, batch.scheduled_by, batch.scheduled_release
