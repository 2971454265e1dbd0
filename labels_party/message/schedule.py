"""Conversion windows: at `seal_at` a batch seals, and releases as its template says, by itself and once.

Exactly once over restarts and several workers: the seal is one transaction that also sees whether the schedule is still
the same, and the charge notes its release on the batch in the transaction that charges. Of several replicas one at a
time works on a batch, so that a large one is not sorted by all of them. What is refused is kept with
the batch, for its owner, and tried again when an upload or a change of the schedule may have mended it; what may pass
by itself (a full disk, a lost database) is tried again with growing pauses. What a key asked for is not done once it
was revoked: the transaction that would do it looks.
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
from label_dp.logs import event
from label_dp.places import place_of
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
    """The batch or its schedule is not as it was looked at: look again. Never reaches a caller."""


def parse_time(text: str) -> dt.datetime:
    """An RFC 3339 time in whole seconds UTC, a fraction rounded up. Raises InvalidInput."""
    try:
        read = dt.datetime.fromisoformat(text)
        if read.tzinfo is None or len(text) < 20 or text[10] not in "Tt ":
            raise ValueError
        utc = read.astimezone(dt.UTC)
        return utc if utc.microsecond == 0 else utc.replace(microsecond=0) + dt.timedelta(seconds=1)
    except (ValueError, OverflowError):
        raise InvalidInput("seal_at is a time with its offset (RFC 3339), such as 2030-01-31T04:00:00Z.") from None


class Scheduler:
    """Seals and releases that batches have scheduled."""

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
        """`stands` says whether what an actor left to be done may be done."""
        self.stands = stands
        self.database, self.batches, self.sealer, self.works = database, batches, sealer, works
        self.message, self.leases, self.clock = message, leases, batches.clock
        self._pauses: dict[str, tuple[float, float]] = {}  # batch → (not before, this pause), on the monotonic clock

    # --- setting it ---------------------------------------------------------------------------------------

    def check(self, population: Population, changes: dict[str, Any]) -> dict[str, Any]:
        """`changes` (members `seal_at`, `release`) with a normal form of the time, after all checks without labels.
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
        """Apply checked changes to a batch. Without `seal_at` there is no template either. Raises Conflict."""
        if SEAL_AT in changes:
            require_open(batch)
        elif batch.state != OPEN and (batch.state != SEALED or batch.scheduled_release or batch.seal_at is None):
            raise Conflict(f"Batch '{batch.id}' is {batch.state}; its schedule can no longer change.")
        when = changes.get(SEAL_AT, batch.seal_at)
        template = changes.get(RELEASE, batch.release_template if when is not None else None)
        if template is not None and when is None:
            raise InvalidInput("A release template belongs to a time: give seal_at as well.")
        # who wrote the template asks for its release: a colleague who moves the time does not stand in for them
        kept = template is not None and template == batch.release_template
        if RELEASE in changes and batch.scheduled_by is not None and not self.stands(connection, batch.scheduled_by):
            kept = False  # whoever names it once more asks for it in the place of a key that was revoked
        by = batch.scheduled_by if kept else actor
        values = {"seal_at": when, "release_template": template, "scheduled_by": by, "schedule_problem": None}
        if SEAL_AT in changes:
            values["closed"] = None
        connection.execute(sa.update(batches_table).where(batches_table.c.id == batch.id).values(**values))
        return self.batches.get(connection, batch.id)[0]

    def change(self, batch_id: str, changes: dict[str, Any], actor: str, call: IdempotentCall = NO_KEY) -> Reply:
        """Change or remove (None) what `changes` names. Raises Conflict, InvalidInput, BudgetExceeded."""
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
        """Batches whose time has come and which are not done, nor refused for what still stands."""
        t, now = batches_table, timestamp(self.clock())
        query = (
            sa.select(t)
            .where(
                t.c.scheduled_release.is_(None),
                # once sealed on time its time stays come, also when the clock is set back
                sa.or_(t.c.seal_at <= now, t.c.seal_at <= t.c.sealed),
                sa.or_(t.c.state == OPEN, sa.and_(t.c.state == SEALED, t.c.release_template.is_not(None))),
            )
            .order_by(t.c.seal_at, t.c.id)
        )
        batches = [Batch(**row._mapping) for row in connection.execute(query)]
        return [b for b in batches if b.schedule_problem is None or b.schedule_problem.get("status", 0) >= 500]

    def run_due(self, stopped: Callable[[], bool] = lambda: False) -> int:
        """Seal and release what is due; a refusal or failure keeps nothing else waiting. Returns how many were due."""
        waiting = self.database.read("schedule.due", self.due)
        for batch in waiting:
            if stopped():
                break
            if self._pauses.get(batch.id, (0.0, 0.0))[0] <= time.monotonic():
                self._run(batch)
        return len(waiting)

    def _run(self, batch: Batch) -> None:
        try:
            with self.leases.hold(f"schedule {batch.id}") as mine:
                if not mine:
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
        except Exception as error:  # whatever it is, the other batches of the day go on
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
        """Keep why with the batch, unless it changed meanwhile; pause where it may pass by itself."""
        failure = (
            error if isinstance(error, LabelDPError) else LabelDPError("An internal error; see the service's log.")
        )
        if isinstance(failure, MissingLabels):  # which ids have none is told to who asks, and kept nowhere
            failure = MissingLabels(
                "Some examples have no label, and the population has no missing-label value. Sealing by hand names "
                "them; once their labels are sent, the schedule tries again."
            )
        body = problem(failure)[1]
        if isinstance(error, Unavailable) or not isinstance(error, LabelDPError):
            kind, at = type(error).__name__, place_of(error.__traceback__)
            said = event("schedule-waits", batch=batch.id, error=kind, at=at)
            log.warning("schedule of batch %s waits: %s at %s", batch.id, kind, at, extra=said)
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
        except LabelDPError as failure:  # then it is tried again, and kept then
            said = event("schedule-waits", batch=batch.id, code=failure.code)
            log.warning("schedule of batch %s: %s", batch.id, failure.code, extra=said)


def _watched(batch: Batch) -> tuple[object, ...]:
    return batch.state, batch.seal_at, batch.release_template, batch.scheduled_by, batch.scheduled_release
