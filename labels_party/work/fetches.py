"""First and last day on which each audience key fetched a release or an answer.

Fetches never wait for their note: the database may be locked for long, or take no writes. A day costs one write per key
and work. Receipts, not these notes, prove arrival.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from label_dp.audit.store import Clock
from label_dp.errors import Unavailable
from label_dp.store.apikeys import Principal
from label_dp.store.database import Database
from labels_party.storage.tables import fetches as t

DAY = "%Y-%m-%d"
REMEMBERED = 100_000  # stored notes of today that this process remembers
Note = tuple[str, str, str, str]  # work, key, audience, day


@dataclass
class Fetches:
    """Background writer of the notes."""

    database: Database
    clock: Clock
    _kept: set[Note] = field(default_factory=set)
    _waiting: set[Note] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _thread: threading.Thread | None = None

    def note(self, work: str, caller: Principal) -> None:
        """Note a fetch of `work` by the caller, if it is an audience."""
        if caller.role != "features" or caller.audience is None:
            return
        note = (work, caller.key_id, caller.audience, self.clock().strftime(DAY))
        with self._lock:
            if note in self._kept or note in self._waiting:
                return
            self._waiting.add(note)
            if self._thread is None:
                self._thread = threading.Thread(target=self._write, name="fetches", daemon=True)
                self._thread.start()

    def wait(self) -> None:
        """Wait until no note is being written."""
        thread = self._thread
        if thread is not None:
            thread.join()

    def _write(self) -> None:
        while True:
            with self._lock:
                notes = sorted(self._waiting)
                self._waiting.clear()
                if not notes:
                    self._thread = None
                    return
            with suppress(Unavailable):  # the next fetch of the day tries again
                self.database.write("fetches.note", partial(_keep, notes))
                with self._lock:
                    if len(self._kept) > REMEMBERED:
                        self._kept.clear()
                    self._kept.update(notes)


def _keep(notes: list[Note], connection: Connection) -> None:
    for work, key, audience, day in notes:
        same = (t.c.work == work, t.c.key == key)
        changed = connection.execute(sa.update(t).where(*same, t.c.last < day).values(last=day)).rowcount
        if not changed and connection.execute(sa.select(t.c.work).where(*same)).first() is None:
            connection.execute(sa.insert(t).values(work=work, key=key, audience=audience, first=day, last=day))
