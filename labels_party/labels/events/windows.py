"""Windows of a data set: the events between two openings or seals of its batches, in segments of their own key.

An event counts in the batches that were open when it came: a batch remembers the last window before its opening, and a
new one begins there. No id is compared when an event comes, so that its sender learns nothing from the answer, its time
or its cost (invariant no-oracle). A window that no open batch needs is erased with its key.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from label_dp.store.database import Database
from labels_party.labels.batch_keys import BatchKeys
from labels_party.labels.batches import EVENTS, Batches, Segment, StaleBatch
from labels_party.labels.changes import delete
from labels_party.labels.vault import LabelVault
from labels_party.storage.tables import batches, event_windows, populations, segments


@dataclass(frozen=True)
class Window:
    """Row of the table of windows; `id` is the folder of its objects."""

    number: int
    id: str
    data_set: str
    over: bool


class EventWindows:
    """Windows in the database, and their objects."""

    def __init__(self, database: Database, batches_: Batches, keys: BatchKeys, vault: LabelVault) -> None:
        self.database, self.batches, self.keys, self.vault = database, batches_, keys, vault

    def current(self, data_set: str) -> Window:
        """Return the window that new events of a data set go to; begin one if there is none."""
        query = sa.select(event_windows).where(event_windows.c.data_set == data_set, ~event_windows.c.over)
        row = self.database.read("events.window", lambda c: c.execute(query).first())
        if row is None:
            return self.database.write("events.begin", lambda c: self._begun(c, data_set))
        return Window(**row._mapping)

    def _begun(self, connection: Connection, data_set: str) -> Window:
        query = sa.select(event_windows).where(event_windows.c.data_set == data_set, ~event_windows.c.over)
        row = connection.execute(query).first()
        if row is None:
            name = "evw_" + secrets.token_hex(12)
            self.keys.draft(name)
            connection.execute(sa.insert(event_windows).values(id=name, data_set=data_set, over=False))
            self.keys.insert(connection, name)
            row = connection.execute(query).one()
        return Window(**row._mapping)

    def add(self, connection: Connection, window: Window, key: str, rows: int) -> None:
        """Name an object of events. Raises StaleBatch if the window was erased meanwhile."""
        here = sa.select(event_windows.c.number).where(event_windows.c.number == window.number)
        if connection.execute(here).first() is None:
            raise StaleBatch("The window of these events was erased meanwhile.")
        self.batches.add_segment(connection, window.id, EVENTS, key, rows)

    def segments(self, connection: Connection, data_set: str, since: int) -> list[Segment]:
        """List the stored events of a data set behind window `since`, in the order in which they came."""
        t, s = event_windows, segments
        query = (
            sa.select(s.c.kind, s.c.number, s.c.key, s.c.rows)
            .join(t, t.c.id == s.c.batch)
            .where(t.c.data_set == data_set, t.c.number > since, s.c.kind == EVENTS)
            .order_by(t.c.number, s.c.number)
        )
        return [Segment(**row._mapping) for row in connection.execute(query)]

    def retire(self) -> int:
        """Erase the windows that no open batch needs, with their keys; return how many. Without an open batch of its
        data set not even the current one is kept: nobody would ever count its events."""
        names: list[str] = []
        keys = self.database.write("events.retire", lambda c: self._retired(c, names))
        if names:
            delete(self.vault, keys)
            self.database.scrub()
        return len(names)

    def _retired(self, connection: Connection, names: list[str]) -> list[str]:
        t, s, b = event_windows, segments, batches
        needs = sa.select(populations.c.events, b.c.events_since).join(b, b.c.population == populations.c.id)
        first: dict[str, int] = {}  # of each data set: the last window that its oldest open batch does not need
        for events, since in connection.execute(needs.where(b.c.state == "open", b.c.events_since.is_not(None))):
            name = events["data_set_id"]
            first[name] = min(since, first.get(name, since))
        windows = connection.execute(sa.select(t.c.id, t.c.data_set, t.c.number, t.c.over)).all()
        names[:] = [
            row.id for row in windows if row.data_set not in first or (row.over and row.number <= first[row.data_set])
        ]
        keys = list(connection.execute(sa.select(s.c.key).where(s.c.batch.in_(names))).scalars())
        connection.execute(sa.delete(s).where(s.c.batch.in_(names)))
        for name in names:
            self.keys.erase(connection, name)
        connection.execute(sa.delete(t).where(t.c.id.in_(names)))
        return keys
