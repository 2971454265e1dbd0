"""Leases: rows by which one of several replicas does a piece of work; heartbeats extend them, dead holders lose them.

A lease saves duplicate work and decides nothing. Each change is checked again in its transaction, so a holder that was
suspended and resumes finds it done.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from label_dp.errors import LabelDPError, Unavailable
from label_dp.store.database import Database
from labels_party.storage.tables import leases
from labels_party.work.identity import Workplace

PATIENCE = 600.0  # seconds to wait for a turn
LOOK_AGAIN = 0.25


@contextlib.contextmanager
def heartbeat(database: Database, name: str, every: float, extend: Callable[[Connection], None]) -> Iterator[None]:
    """Run `extend` in transaction `name` every `every` seconds, in a thread; failures are left to the next beat."""
    stop = threading.Event()

    def beat() -> None:
        while not stop.wait(every):
            with contextlib.suppress(LabelDPError):
                database.write(name, extend)

    thread = threading.Thread(target=beat, name="lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


class Leases:
    """Leases of this process."""

    def __init__(self, database: Database, workplace: Workplace, seconds: float) -> None:
        self.database, self.workplace, self.seconds = database, workplace, seconds
        self._mine: set[str] = set()
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def hold(self, work: str) -> Iterator[bool]:
        """Yield whether this process alone may do `work` now, until the end of the block."""
        with self._lock:
            here = work in self._mine
            self._mine.add(work)
        if here:
            yield False
            return
        leased = False
        try:
            leased = self.database.write("lease.take", lambda c: self._take(c, work))
            beat = heartbeat(self.database, "lease.heartbeat", self.seconds / 3, lambda c: self._extend(c, work))
            with beat if leased else contextlib.nullcontext():
                yield leased
        finally:
            self._mine.discard(work)
            if leased:
                with contextlib.suppress(LabelDPError):  # then it runs out
                    self.database.write("lease.end", lambda c: self._end(c, work))

    @contextlib.contextmanager
    def turn(self, work: str) -> Iterator[None]:
        """Wait until no other process does `work`, then hold it. Raises Unavailable after PATIENCE seconds."""
        end = time.monotonic() + PATIENCE
        while True:
            with self.hold(work) as leased:
                if leased:
                    yield
                    return
            if time.monotonic() > end:
                raise Unavailable("Another process has been at this for long; look at it, and try again.")
            time.sleep(LOOK_AGAIN)

    def _take(self, connection: Connection, work: str) -> bool:
        now, name = self.database.now(connection), self.workplace.identity.name
        row = connection.execute(sa.select(leases).where(leases.c.work == work)).first()
        # our own name without work behind it: a reply of the database was lost
        if row is not None and row.owner != name and self.workplace.identity.holds(row.owner, row.until - now):
            return False
        connection.execute(sa.delete(leases).where(leases.c.work == work))
        connection.execute(sa.insert(leases).values(work=work, owner=name, until=now + self.seconds))
        return True

    def _extend(self, connection: Connection, work: str) -> None:
        until = self.database.now(connection) + self.seconds
        connection.execute(sa.update(leases).where(*self._own(work)).values(until=until))

    def _end(self, connection: Connection, work: str) -> None:
        connection.execute(sa.delete(leases).where(*self._own(work)))

    def _own(self, work: str) -> tuple[sa.ColumnElement[bool], ...]:
        return leases.c.work == work, leases.c.owner == self.workplace.identity.name
