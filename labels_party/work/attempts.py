"""Attempts at charged work: lease one, draw, publish it if it is still the current one.

Crash rules (invariant charge-first): before transaction 1 nothing exists. Between the transactions a new attempt draws
again without a second charge, since nobody saw the abandoned draw; or it continues with the draft that the row names.
After transaction 2 the publication never changes. Only the attempt whose number is in the row may publish (fencing).
"""

from __future__ import annotations

import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from label_dp.documents.members import ChainHead
from label_dp.errors import LabelDPError, Unavailable
from label_dp.logs import event
from label_dp.privacy import Epsilon
from label_dp.problems import problem
from labels_party.labels.batch_uses import CHARGED, DRAWING, FAILED, PUBLISHED
from labels_party.labels.batches import SEALED, Batch, timestamp
from labels_party.ledger.populations import Population
from labels_party.ledger.rules import Account
from labels_party.storage.tables import work as table
from labels_party.work.identity import WorkerIdentity, Workplace
from labels_party.work.kind import FAMILIES, Work
from labels_party.work.leases import heartbeat
from labels_party.work.store import Works

TAKEN, UNKNOWN, FREE = "taken", "unknown", "free"


def noun_of(work_id: str) -> str:
    """Return the noun of a work's family."""
    return next((family.noun for family in FAMILIES if work_id.startswith(family.prefix)), "work")


class Fenced(Exception):
    """Loss of the work to another worker; this attempt's output is discarded unseen."""


@dataclass(frozen=True)
class Lease:
    """Attempt at a work, with its batch and population."""

    work: Work
    batch: Batch
    population: Population
    sealed: tuple[str, ...]  # objects of the vault, in order of ids
    attempt: int

    @property
    def n(self) -> int:
        assert self.batch.n is not None
        return self.batch.n


class Attempts(ABC):
    """Protocol of attempts. Names of its transactions begin with the work's noun, "release" or "answer"."""

    log = logging.getLogger("label_dp.work")

    def __init__(self, works: Works, workplace: Workplace, lease_seconds: float) -> None:
        self.works, self.workplace, self.lease_seconds = works, workplace, lease_seconds
        self.database, self.batches, self.ledger = works.database, works.batches, works.ledger
        self._active: set[tuple[str, int]] = set()  # (work, attempt) that this object works on

    # --- what is done with it -----------------------------------------------------------------------------

    @abstractmethod
    def run(self, work_id: str) -> bool:
        """Take one attempt. False if somebody else works on it or it is finished. Raises Unavailable for what may pass
        (disk, randomness): the work stays charged and can be run again."""

    @abstractmethod
    def failed(self, connection: Connection, lease: Lease, error: Exception) -> LabelDPError:
        """Record a permanent failure and return the error that callers may see."""

    @abstractmethod
    def ended(self, lease: Lease, outcome: str) -> None:
        """Remove files that are no longer needed after `outcome`: PUBLISHED, FAILED, FREE, or TAKEN (by another)."""

    # --- the protocol -------------------------------------------------------------------------------------

    @property
    def worker(self) -> WorkerIdentity:
        return self.workplace.identity

    def close(self) -> None:
        self.workplace.close()

    def run_due(self, stopped: Callable[[], bool] = lambda: False) -> int:
        """Run all waiting work once; return how many were published. Raises the last failure, after all others ran."""
        failure: Exception | None = None
        count = 0
        for work in self.database.read("work.waiting", self.works.waiting):
            if stopped():
                break
            try:
                count += self.run(work.id)
            except Unavailable as error:
                self._say("waits", work, error)
                failure = error
            except LabelDPError as error:
                self._say("failed", work, error)
            except Exception as error:
                failure = error  # a bug with one must not stop the others
        if failure is not None:
            raise failure
        return count

    def _say(self, what: str, work: Work, error: LabelDPError) -> None:
        record = event(f"work-{what}", work=work.id, kind=work.kind, code=error.code)
        self.log.warning("%s %s %s: %s", work.kind, work.id, what, error.code, extra=record)

    def attempted(self, work_id: str, attempt: Callable[[Lease], None]) -> bool:
        """Do `attempt`, which ends with `publish`, under a lease. Returns and raises as `run`."""
        lease = self.database.write(f"{noun_of(work_id)}.lease", lambda c: self.take(c, work_id))
        if lease is None:
            return False
        work = (work_id, lease.attempt)
        self._active.add(work)
        try:
            return self.under(lease, attempt)
        finally:
            self._active.discard(work)

    def under(self, lease: Lease, attempt: Callable[[Lease], None]) -> bool:
        try:
            with self._heartbeat(lease):
                attempt(lease)
        except Fenced:
            self.ended(lease, TAKEN)
            return False
        except BaseException as error:
            outcome = self._abandon(lease, error)
            if isinstance(error, LabelDPError) and outcome in (PUBLISHED, TAKEN):
                # the commit went through although its reply was lost, or we were fenced off
                return outcome == PUBLISHED
            raise
        self.ended(lease, PUBLISHED)
        return True

    def take(self, connection: Connection, work_id: str) -> Lease | None:
        """Lease a new attempt; None if another worker has it or it is finished."""
        work, now = self.works.get(connection, work_id), self.database.now(connection)
        if work.state not in (CHARGED, DRAWING):
            return None
        if work.lease_owner == self.worker.name:
            # our own name without work behind it: a reply of the database was lost
            if (work_id, work.attempt) in self._active:
                return None
        elif self.worker.holds(work.lease_owner, work.lease_until and work.lease_until - now):
            return None
        attempt, until = work.attempt + 1, now + self.lease_seconds
        connection.execute(
            sa.update(table)
            .where(table.c.id == work_id, table.c.attempt == work.attempt)
            .values(state=DRAWING, attempt=attempt, lease_owner=self.worker.name, lease_until=until)
        )
        batch, population = self.works.about(connection, work)
        sealed = tuple(s.key for s in self.batches.segments(connection, batch.id, SEALED))
        assert sealed
        return Lease(work, batch, population, sealed, attempt)

    def publish(self, connection: Connection, lease: Lease, **values: object) -> None:
        """Publish the attempt (transaction 2). Raises Fenced if it no longer holds the lease."""
        now = timestamp(self.batches.clock())
        ended = {"state": PUBLISHED, "published": now, "lease_owner": None, "lease_until": None, "draft": None}
        self.change(connection, lease, **ended, **values)

    def change(self, connection: Connection, lease: Lease, **values: object) -> None:
        """Set columns of the work. Raises Fenced if the attempt no longer holds its lease."""
        t = table
        holds = (t.c.attempt == lease.attempt, t.c.state == DRAWING, t.c.lease_owner == self.worker.name)
        if connection.execute(sa.update(t).where(t.c.id == lease.work.id, *holds).values(**values)).rowcount != 1:
            raise Fenced

    def spent(self, lease: Lease) -> tuple[Account, Epsilon, ChainHead]:
        """Return the batch's account, and what `Ledger.beside` returns."""
        of, batch, ledger = lease.population, lease.batch.id, self.ledger
        name = f"{noun_of(lease.work.id)}.spent"
        return self.database.read(name, lambda c: (ledger.account(c, of, batch), *ledger.beside(c, of)))

    def note(self, connection: Connection, kind: str, lease: Lease, details: dict[str, Any]) -> None:
        """Record an event of the attempt."""
        about = (lease.population, lease.batch.id, lease.work.id)
        self.ledger.note(connection, kind, *about, "worker", details, lease.attempt, tuple(lease.work.audiences))

    # --- parts --------------------------------------------------------------------------------------------

    def _abandon(self, lease: Lease, error: BaseException) -> str:
        """Free the work after a failed attempt, or fail it if the failure may have depended on the draw."""
        # failed work keeps its charge and is not drawn again; full disks, failures of database or randomness, and
        # interrupts do not depend on the draw, but the memory that a solve needs may depend on the prior
        refused = error if isinstance(error, Exception) and not isinstance(error, Unavailable) else None
        try:
            name = f"{noun_of(lease.work.id)}.abandon"
            outcome = self.database.write(name, lambda c: self._settle(c, lease, refused))
        except LabelDPError:
            return UNKNOWN  # files stay until the next attempt is published
        self.ended(lease, outcome)
        return outcome

    def _settle(self, connection: Connection, lease: Lease, refusal: Exception | None) -> str:
        now = self.works.get(connection, lease.work.id)
        if now.attempt != lease.attempt or now.state != DRAWING:
            return PUBLISHED if now.attempt == lease.attempt and now.state == PUBLISHED else TAKEN
        free: dict[str, object] = {"lease_owner": None, "lease_until": None}
        update = sa.update(table).where(table.c.id == now.id)
        if refusal is None:
            connection.execute(update.values(**free))
            return FREE
        connection.execute(update.values(**free, state=FAILED))
        failure = self.failed(connection, lease, refusal)
        connection.execute(update.values(problem=problem(failure)[1]))
        return FAILED

    def _heartbeat(self, lease: Lease) -> contextlib.AbstractContextManager[None]:
        """Extend the lease while working; `publish` notices its loss by the fencing number."""

        def extend(connection: Connection) -> None:
            connection.execute(
                sa.update(table)
                .where(table.c.id == lease.work.id, table.c.attempt == lease.attempt)
                .values(lease_until=self.database.now(connection) + self.lease_seconds)
            )

        return heartbeat(self.database, f"{noun_of(lease.work.id)}.heartbeat", self.lease_seconds / 3, extend)
