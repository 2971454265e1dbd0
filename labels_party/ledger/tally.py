"""Running totals of the ledger in memory: events never change, so only new ones are read."""

from __future__ import annotations

import threading
from collections import Counter

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from label_dp.audit import events
from label_dp.audit.store import net
from labels_party.storage.tables import audit_events as t

CHARGES = (events.CHARGED, events.RETURNED)
ENDS = {
    events.PUBLISHED: ("release", "published"),
    events.FAILED: ("release", "failed"),
    events.DECLINED: ("release", "declined"),
    events.CANCELLED: ("release", "cancelled"),
    events.ANSWER_PUBLISHED: ("answer", "published"),
    events.ANSWER_FAILED: ("answer", "failed"),
}


class Tally:
    """Totals up to event `last`: nano-ε by population and batch, and counts of work by outcome."""

    def __init__(self) -> None:
        self.last = 0
        self.spent: dict[str, Counter[str]] = {}
        self.ends: Counter[tuple[str, str]] = Counter(dict.fromkeys(ENDS.values(), 0))
        self._lock = threading.Lock()

    def read(self, connection: Connection) -> None:
        """Add the events since the last call, in one snapshot."""
        with self._lock:
            new = t.c.sequence > self.last
            newest = int(connection.execute(sa.select(sa.func.max(t.c.sequence))).scalar() or 0)
            charges = sa.select(t.c.population, t.c.batch, net(t.c.kind, t.c.epsilon_nano))
            charges = charges.where(t.c.kind.in_(CHARGES), new).group_by(t.c.population, t.c.batch)
            ended = sa.select(t.c.kind, sa.func.count()).where(t.c.kind.in_(ENDS), new).group_by(t.c.kind)
            # all is read before any is added: if the database fails in between, the next call reads all again
            sums, ends = connection.execute(charges).all(), connection.execute(ended).all()
            for population, batch, nano in sums:
                self.spent.setdefault(population, Counter())[batch] += int(nano)
            for kind, count in ends:
                self.ends[ENDS[kind]] += int(count)
            self.last = newest

    def most(self, population: str) -> int:
        """Return the largest nano-ε spent by any batch of the population: an upper bound per example."""
        return max(self.spent.get(population, Counter()).values(), default=0)
