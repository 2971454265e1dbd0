"""Heads of chains: of our own day by day, and of other parties', one for each export that agreed, which the next must
contain.

Digests are chained, so one head at its place proves all events before it. A chain that lacks a head seen before is
another history than the one shown then, or to another receiver.
"""

from __future__ import annotations

from itertools import takewhile
from weakref import WeakKeyDictionary

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from label_dp.audit.compare import FORK, ROLLBACK, StoreComparison
from label_dp.audit.store import PAGE, AuditStore, Clock, Export, utc_now
from label_dp.documents.members import ChainHead

_HINTS: WeakKeyDictionary[AuditStore, ChainHead] = WeakKeyDictionary()


class Heads:
    """Stored heads; works on the caller's write transaction."""

    def __init__(self, table: sa.Table, clock: Clock = utc_now) -> None:
        self.table, self.clock = table, clock

    def compare(self, connection: Connection, export: Export, key_ids: list[str]) -> StoreComparison:
        """Compare `export`, verified, with every earlier head of its party, whose keys are `key_ids`."""
        comparison, t = StoreComparison(), self.table
        store = export.events[0].store if export.events else ""
        rows = connection.execute(
            sa.select(t).where((t.c.store == store) | t.c.key_id.in_(key_ids)).order_by(t.c.sequence)
        ).all()
        if rows and not any(row.store == store for row in rows):
            comparison.find(
                FORK,
                f"The export is of audit store {store or 'none'}, but one with the same key, seen {rows[-1].seen}, was "
                f"of store {rows[-1].store}: the store was replaced, or there are two.",
            )
            return comparison
        for row in (row for row in rows if row.store == store):
            if row.sequence <= len(export.events):
                if export.events[row.sequence - 1].digest != row.digest:
                    comparison.find(
                        FORK,
                        f"Event {row.sequence} of the export is another than in the export that was seen {row.seen}: "
                        "its party shows two histories.",
                        event=row.sequence,
                    )
                    return comparison
            elif export.made >= row.made:
                comparison.find(
                    ROLLBACK,
                    f"The export ends at event {len(export.events)} and says it was made {export.made}, but one made "
                    f"{row.made or 'before'} and seen {row.seen} ended at event {row.sequence}: its store was rolled "
                    "back.",
                    event=len(export.events),
                )
                return comparison
            else:
                comparison.notes.append(
                    f"the export says it was made {export.made}, before one that was seen {row.seen} and ends at event "
                    f"{row.sequence}: only what both hold is compared; that head stays the newest seen"
                )
        return comparison

    def keep(self, connection: Connection, export: Export, key_id: str) -> None:
        """Store the head of an export that agreed with all earlier ones."""
        if not export.events:
            return
        t, last = self.table, export.events[-1]
        same = (t.c.store == last.store) & (t.c.sequence == last.sequence)
        if connection.execute(sa.select(t.c.digest).where(same)).first() is None:
            today = self.clock().strftime("%Y-%m-%dT%H:%M:%SZ")
            row = {"store": last.store, "sequence": last.sequence, "digest": last.digest}
            connection.execute(sa.insert(t).values(**row, key_id=key_id, made=export.made, seen=today))


def day_head(store: AuditStore, connection: Connection) -> ChainHead | None:
    """Return the day of a store's newest event and the digest of that day's first event; None for an empty store."""
    if not (page := store.newest(connection, limit=1)):
        return None
    first, day, hint = page[0], page[0].time, _HINTS.get(store)
    # the transaction that saw it may have been rolled back
    if hint and hint.day == day and store.events(connection, digest=hint.digest):
        return hint
    while of_day := list(takewhile(lambda event: event.time == day, page)):
        first = of_day[-1]
        page = store.newest(connection, before=first.sequence, limit=PAGE)
    _HINTS[store] = head = ChainHead(day=day, digest=first.digest)
    return head


def compare_exports(one: Export, other: Export) -> StoreComparison:
    """Compare two exports of one party: the shorter must be the beginning of the longer, and not made later."""
    comparison = StoreComparison()
    for first, second in zip(one.events, other.events, strict=False):
        if first.digest != second.digest:
            comparison.find(
                FORK,
                f"From event {first.sequence} on the exports have different histories ({first.kind}, {second.kind}): "
                "their party shows two.",
                event=first.sequence,
            )
            return comparison
    shorter, longer = sorted((one, other), key=lambda export: len(export.events))
    more = len(longer.events) - len(shorter.events)
    if more and shorter.made > longer.made:
        comparison.find(
            ROLLBACK,
            f"The export made {shorter.made} ends at event {len(shorter.events)}, the one made {longer.made} at event "
            f"{len(longer.events)}: their party's store was rolled back in between.",
            event=len(shorter.events),
        )
    elif more:
        comparison.notes.append(f"one export holds {more} more events, at its end")
    return comparison
