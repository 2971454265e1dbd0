"""Restored ledgers: unfinished work of a backup ends before the party goes on.

Charged, unfinished work may have been published since the backup, so drawing it would be a second draw on one charge.
It fails and its charge stays. Work that waited for an approval is declined, and schedules stop.
"""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from label_dp.audit import events
from label_dp.audit.judged import JudgedStore
from label_dp.audit.show import counted
from label_dp.audit.store import utc_now
from label_dp.errors import Conflict, Refusal
from label_dp.problems import problem
from labels_party.labels.batch_uses import ACCEPTED, FAILED, WORKING
from labels_party.labels.key_service import KeyService
from labels_party.labels.lost_batches import ASKED_BY
from labels_party.ledger.populations import Population, Populations
from labels_party.ledger.store import Ledger
from labels_party.notify.outbox import Outbox
from labels_party.storage.tables import audit_events, batches, installation, webhooks, work
from labels_party.work.kind import FAMILIES


class Restored(Refusal):
    """Problem of work that was unfinished in a backup from which the database was restored."""

    code = "restored"
    title = "Restored from a backup"


class RestoredLedger:
    """Ledger of a restored backup. Writes in the transaction that inserted its rows."""

    def __init__(self) -> None:
        self.audit = JudgedStore(audit_events, "labels-party", utc_now)
        self.populations = Populations(self.audit)
        self.ledger = Ledger(self.audit, Outbox(utc_now))

    def check_keys(self, connection: Connection, keys: KeyService) -> None:
        """Check that the keys are the backup's. Raises Conflict."""
        row = connection.execute(sa.select(installation)).first()
        if row is None:
            return
        keys.require(row.wrapping_key)  # first: reading a secret makes one if there is none
        if keys.secret().mac("installation", b"label-dp") != row.secret_check:
            raise Conflict(
                "The secret of ids (keys/secret.key, or the token's) is not the one that this backup was made with; "
                "nothing was made."
            )

    def end_unfinished(self, connection: Connection) -> list[str]:
        """End unfinished work and stop schedules; return sentences on what was done."""
        t = work
        rows = connection.execute(sa.select(t).where(t.c.state.in_((ACCEPTED, *WORKING))).order_by(t.c.id)).all()
        sentences = []
        for row in rows:
            self._end(connection, row)
        if failed := sum(row.state != ACCEPTED for row in rows):
            sentences.append(
                f"{counted(failed, 'unfinished release or answer')} ended as failed: it may have been published since, "
                "so its charge stays and it is not drawn again"
            )
        if declined := sum(row.state == ACCEPTED for row in rows):
            sentences.append(f"{counted(declined, 'request')} that waited for an approval ended, uncharged; ask again")
        return sentences + self._stop_schedules(connection)

    def population_of(self, connection: Connection, batch: str) -> Population:
        query = sa.select(batches.c.population).where(batches.c.id == batch)
        return self.populations.get(connection, connection.execute(query).scalar_one())

    # --- parts --------------------------------------------------------------------------------------------

    def _end(self, connection: Connection, row: sa.Row[tuple[object, ...]]) -> None:
        population = self.population_of(connection, row.batch)
        about = (population, row.batch, row.id, ASKED_BY)
        if row.state == ACCEPTED:
            why = Restored("The database was restored from a backup before this was approved; nothing was charged.")
            details = {"requested_by": row.requested_by, "reason": "restored from a backup"}
            self.ledger.note(connection, events.DECLINED, *about, details)
        else:
            why = Restored(
                "The database was restored from a backup that had this unfinished. It may have been published since, "
                "so its charge stays; ask for a further one, which is charged on top."
            )
            self.fail(connection, population, row.batch, row.id, row.asked.get("answer"), why.code)
        changed = {"state": FAILED, "lease_owner": None, "lease_until": None, "problem": problem(why)[1]}
        connection.execute(sa.update(work).where(work.c.id == row.id).values(**changed))

    def fail(
        self, connection: Connection, population: Population, batch: str, name: str, answer: str | None, code: str
    ) -> None:
        """Record the failure of work whose charge is kept."""
        family = next(family for family in FAMILIES if name.startswith(family.prefix))
        details = {"code": code, "charge": "kept"} | ({} if answer is None else {"answer": answer})
        self.ledger.note(connection, family.failed, population, batch, name, ASKED_BY, details)

    @staticmethod
    def _stop_schedules(connection: Connection) -> list[str]:
        t = batches
        why = Restored("The database was restored from a backup, so nothing is sealed by itself; set a new time.")
        stopped = connection.execute(
            sa.update(t)
            .where(t.c.state == "open", t.c.seal_at.is_not(None))
            .values(seal_at=None, schedule_problem=problem(why)[1])
        ).rowcount
        sentences = [f"{counted(stopped, 'schedule')} of open batches stopped; set a new time"] if stopped else []
        if connection.execute(sa.select(sa.func.count()).select_from(webhooks)).scalar():
            sentences.append("webhooks send again what the backup had not sent yet")
        return sentences
