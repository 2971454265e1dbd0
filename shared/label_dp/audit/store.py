"""Audit table of a party: append-only, chained, verified on demand; and its signed export."""

from __future__ import annotations

import datetime as dt
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from label_dp.audit.events import CHARGED, CREATED, DAY, GENESIS, Event, check_chain
from label_dp.documents.canonical import canonical_bytes, digest, parse_canonical
from label_dp.documents.export import AuditExport
from label_dp.documents.signing import SigningKey, VerifyingKey
from label_dp.errors import AuditChainBroken
from label_dp.moments import Clock as Clock
from label_dp.moments import utc_now as utc_now

PAGE = 500


def audit_table(metadata: sa.MetaData) -> sa.Table:
    """Declare the table of events. `body` holds the exact bytes that are hashed; the other columns are copies for
    queries."""
    return sa.Table(
        "audit_events",
        metadata,
        sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("digest", sa.String(64), nullable=False, unique=True),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("kind", sa.String(40), nullable=False),
        sa.Column("population", sa.String(64)),
        sa.Column("batch", sa.String(64)),
        sa.Column("work", sa.String(64)),
        sa.Column("epsilon_nano", sa.BigInteger, nullable=False),
        sa.Column("delta_atto", sa.BigInteger, nullable=False),
        sa.Column("limit_of", sa.String(64)),
        # the second, for its own party; the day is hashed and exported. Null if an earlier version hashed the second
        sa.Column("at", sa.String(20)),
        # every charge and acceptance sums the charges of its batch
        sa.Index("ix_audit_events_batch_kind", "batch", "kind"),
        sa.Index("ix_audit_events_limit_batch", "limit_of", "batch"),
        # a filtered timeline is read from either end
        *(sa.Index(f"ix_audit_events_{name}", name, "sequence") for name in ("kind", "population", "batch", "work")),
    )


def heads_table(metadata: sa.MetaData) -> sa.Table:
    """Declare the table of other parties' heads (`label_dp.audit.heads`)."""
    return sa.Table(
        "seen_heads",
        metadata,
        sa.Column("store", sa.String(64), primary_key=True),
        sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("key_id", sa.String(80), nullable=False, index=True),
        sa.Column("made", sa.String(20), nullable=False),
        sa.Column("seen", sa.String(20), nullable=False),
    )


# condition of an event that an insert would replace
SAME_EVENT = "sequence = NEW.sequence OR digest = NEW.digest"


class AuditStore:
    """Audit events, appended and read in the caller's transaction, so that an event and its effect commit together."""

    def __init__(self, table: sa.Table, party: str, clock: Clock = utc_now) -> None:
        self.table = table
        self.party = party
        self.clock = clock

    def now(self) -> str:
        """Read the clock, to the second: for an event whose details name its own day."""
        return self.clock().astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def append(self, connection: Connection, event: Event) -> Event:
        """Chain `event` to the last one, at its own time if it has one. Must run inside a write transaction."""
        t = self.table
        last = connection.execute(
            sa.select(t.c.sequence, t.c.digest, t.c.body).order_by(t.c.sequence.desc()).limit(1)
        ).first()
        if last is None:
            sequence, previous, store = 0, GENESIS, secrets.token_hex(16)
            if event.kind != CREATED:
                self._insert(connection, Event(CREATED), 1, GENESIS, store)
                return self.append(connection, event)
        else:
            if digest(last.body) != last.digest:
                raise AuditChainBroken(
                    "The last audit event does not match its digest; nothing is added to a damaged store."
                )
            sequence, previous, store = last.sequence, last.digest, Event.from_body(last.body).store
        return self._insert(connection, event, sequence + 1, previous, store)

    def adopt(self, connection: Connection, event: Event) -> None:
        """Add the next event of this very chain unchanged. Raises AuditChainBroken if it does not follow."""
        last = self.newest(connection, limit=1)
        place = (last[0].sequence + 1, last[0].digest, last[0].store) if last else (1, GENESIS, event.store)
        if (event.sequence, event.previous, event.store) != place or event.party != self.party:
            raise AuditChainBroken(f"Audit event {event.sequence} does not go on from where this store ends.")
        self._insert(connection, event, event.sequence, event.previous, event.store)

    def _insert(self, connection: Connection, event: Event, sequence: int, previous: str, store: str) -> Event:
        time = event.moment or self.now()
        placed = event.placed(store=store, party=self.party, sequence=sequence, previous=previous, time=time)
        body = placed.body()
        connection.execute(
            sa.insert(self.table).values(
                sequence=sequence,
                digest=digest(body),
                body=body,
                kind=placed.kind,
                population=placed.subject.population,
                batch=placed.subject.batch,
                work=placed.subject.work,
                epsilon_nano=placed.split.total.nano,
                delta_atto=placed.split.delta_atto,
                limit_of=placed.limit,
                at=placed.at or None,
            )
        )
        return placed

    def charged_against(self, connection: Connection, batch: str, *limits: str) -> int:
        """Sum the nano-ε of a batch's charges that count against one of `limits` (`Event.limit`)."""
        t = self.table
        query = sa.select(sa.func.sum(t.c.epsilon_nano)).where(t.c.batch == batch, t.c.limit_of.in_(limits))
        return int(connection.execute(query).scalar() or 0)

    def events(self, connection: Connection, *, after: int = 0, limit: int | None = None, **equal: str) -> list[Event]:
        """List events in order, filtered by population=, batch=, work= or kind=."""
        t = self.table
        query = sa.select(t.c.body, t.c.at).where(t.c.sequence > after).order_by(t.c.sequence)
        for column, value in equal.items():
            query = query.where(t.c[column] == value)
        return [
            replace(Event.from_body(bytes(row.body)), at=row.at or "")
            for row in connection.execute(query if limit is None else query.limit(limit))
        ]

    def newest(self, connection: Connection, *, before: int | None = None, limit: int, **equal: str) -> list[Event]:
        """List the last events before `before`, newest first, filtered as `events`."""
        t = self.table
        query = sa.select(t.c.body, t.c.at).order_by(t.c.sequence.desc()).limit(limit)
        if before is not None:
            query = query.where(t.c.sequence < before)
        for column, value in equal.items():
            query = query.where(t.c[column] == value)
        return [replace(Event.from_body(bytes(row.body)), at=row.at or "") for row in connection.execute(query)]

    def last(self, connection: Connection) -> int:
        """Return the number of the newest event; 0 if there is none."""
        number = connection.execute(sa.select(sa.func.max(self.table.c.sequence))).scalar()
        return int(number or 0)

    def scan(self, connection: Connection) -> Iterator[Event]:
        """Yield all events in order, read a page at a time."""
        after = 0
        while page := self.events(connection, after=after, limit=PAGE):
            yield from page
            after = page[-1].sequence

    def verify(self, connection: Connection) -> tuple[int, str]:
        """Check the whole chain and the query columns against the bodies. Raises AuditChainBroken."""
        t = self.table
        rows = connection.execute(sa.select(t).order_by(t.c.sequence)).all()
        if not all(isinstance(row.body, bytes | memoryview) for row in rows):  # SQLite stores any type in any column
            raise AuditChainBroken("An audit event is not stored as bytes: the store was changed.")
        count, head = check_chain(bytes(row.body) for row in rows)
        for row in rows:
            event = Event.from_body(bytes(row.body))
            copies = (row.sequence, row.digest, row.kind, row.population, row.batch, row.work, row.limit_of)
            amounts = (row.epsilon_nano, int(row.delta_atto))
            subject = event.subject
            truth = (
                event.sequence,
                digest(bytes(row.body)),
                event.kind,
                subject.population,
                subject.batch,
                subject.work,
                event.limit,
            )
            another_day = row.at is not None and row.at[:DAY] != event.time
            if copies != truth or amounts != (event.split.total.nano, event.split.delta_atto) or another_day:
                raise AuditChainBroken(
                    f"Audit event {row.sequence} does not match its query columns: the store was changed."
                )
        return count, head

    def export(self, connection: Connection, key: SigningKey) -> bytes:
        """Sign all events: a DSSE envelope that `read_export` checks without any database."""
        count, head = self.verify(connection)
        query = sa.select(self.table.c.body).order_by(self.table.c.sequence)
        events = [parse_canonical(bytes(body)) for body in connection.execute(query).scalars()]
        return AuditExport(party=self.party, made=self.now(), count=count, head=head, events=events).sign(key)


@dataclass(frozen=True)
class Export:
    """Verified export; `made` is its time by its party's clock."""

    events: list[Event]
    made: str

    @property
    def head(self) -> str:
        return self.events[-1].digest if self.events else ""


def net(kind: sa.ColumnElement[str], amount: sa.ColumnElement[int]) -> sa.ColumnElement[Any]:
    """Sum `amount` over charges less returns, of events of these two kinds."""
    return sa.func.sum(sa.case((kind == CHARGED, amount), else_=-amount))


def read_export(envelope: bytes, key: VerifyingKey) -> Export:
    """Read a signed export and check signature, chain, count and head. Raises MalformedManifest, SignatureInvalid,
    UnsupportedVersion or AuditChainBroken."""
    document, _ = AuditExport.opened(envelope, key)
    bodies = [canonical_bytes(event) for event in document.events]
    count, head = check_chain(bodies)
    if (count, head) != (document.count, document.head):
        raise AuditChainBroken("The export's count or head does not match its events.")
    return Export([Event.from_body(body) for body in bodies], document.made)
