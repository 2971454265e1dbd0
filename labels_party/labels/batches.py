"""Batches and their segments in the database: open → sealed → purged."""

from __future__ import annotations

import datetime as dt
import secrets
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from label_dp.errors import Conflict, InvalidInput, NotFound
from label_dp.schemas.replies import BatchOut
from labels_party.labels.batch_keys import BatchKeys
from labels_party.labels.batch_uses import RETIRED
from labels_party.ledger.populations import Population, Populations, label_scope
from labels_party.storage.tables import batches, event_windows, idempotency, predictors, segments, set_aside

ID_LIST, PUBLIC = "id-list", "public"
PURGED = "purged"
STATES = ("open", "sealed", PURGED)
EXAMPLES, LABELS, SEALED, RUNS, UNITS = "examples", "labels", "sealed", "runs", "units"
MEMBERS = "members"  # which examples belong to which unit (`members.py`)
FEATURES, PREDICTOR = "features", "predictor"  # the owner's own table, and states of predictors
EVENTS = "events"  # of a window; of a sealed batch, what became of them
HISTORY = "history"  # a run of the digests of several sealed batches
ERASED = "erased"  # replaced objects, noted until they are deleted
DAY, LONGEST_PREFIX = "{day}", 200  # in a prefix of ids: the UTC day on which the batch is opened; in characters
INSERT, UPSERT, DELETE = "insert", "upsert", "delete"  # modes of uploads of labels
DROP, REPLACE = "drop", "replace"  # decisions of an owner on an upload set aside
REPEAT = "repeat"  # of a byte-identical upload of the same key: nothing to decide


@dataclass(frozen=True)
class Batch:
    """Row of the batches table; `n`, `id_bytes`, `ids_mac` are set at the seal."""

    id: str
    population: str
    label: str
    state: str
    presence: str
    version: int
    created: str
    sealed: str | None
    seal_order: int | None
    n: int | None
    id_bytes: int | None
    ids_mac: str | None
    examples_beyond: int | None = None  # the bound on units, where there is one; of ids and units alone
    seal_at: str | None = None
    release_template: dict[str, Any] | None = None
    scheduled_by: str | None = None
    schedule_problem: dict[str, Any] | None = None
    scheduled_release: str | None = None
    purged: str | None = None
    closed: str | None = None
    id_prefix: str | None = None
    merged_into: str | None = None  # see `history.py`
    set_aside: int = 0  # uploads that wait for the owner's decision
    events_since: int | None = None  # window of events before its opening, where labels come from events

    def beyond(self, population: Population) -> str:
        """Describe examples beyond the unit bound in a sentence; empty if none."""
        return population.unit.beyond(self.examples_beyond or 0, self.n or 1, population.missing_label)

    def as_json(self) -> BatchOut:
        return {
            "id": self.id,
            "population": self.population,
            "state": self.state,
            "presence": self.presence,
            "id_prefix": self.id_prefix,
            "created": self.created,
            "sealed": self.sealed,
            "examples": self.n,
            "examples_beyond": self.examples_beyond,
            "seal_at": self.seal_at,
            "release_template": self.release_template,
            "schedule_problem": self.schedule_problem,
            "scheduled_release": self.scheduled_release,
            "purged": self.purged,
            "closed": self.closed,
            "set_aside": self.set_aside,
        }


@dataclass(frozen=True)
class Segment:
    """Stored rows of a batch: `rows` rows of the object `key`, from row `start`."""

    kind: str
    number: int
    key: str
    rows: int
    of: str = ""
    mode: str = INSERT
    start: int = 0  # the first of its rows in the object `key`

    def without(self, gaps: Iterable[tuple[int, int]]) -> Iterator[Segment]:
        """Yield the parts outside `gaps`, each gap (first row in the object, rows), in order."""
        at, end = self.start, self.start + self.rows
        for start, rows in (*gaps, (end, 0)):
            if start > at:
                yield replace(self, start=at, rows=start - at)
            at = start + rows


def timestamp(now: dt.datetime) -> str:
    """Format `now` in UTC, to the second, as ISO 8601."""
    return now.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Batches:
    """Batches, their segments and uploads in the database."""

    def __init__(self, populations: Populations, keys: BatchKeys, clock: Callable[[], dt.datetime]) -> None:
        self.populations, self.keys, self.clock = populations, keys, clock

    def create(
        self, connection: Connection, population: Population, presence: str, id_prefix: str | None = None
    ) -> Batch:
        """Store a new open batch."""
        batch = self.draft(population, presence, id_prefix)
        if population.events is not None:
            batch = replace(batch, events_since=self.end_window(connection, population.events.data_set_id))
        self.insert(connection, batch)
        return batch

    @staticmethod
    def end_window(connection: Connection, data_set: str) -> int:
        """End the current window of a data set's events; return the number of the last window of all."""
        t = event_windows
        connection.execute(sa.update(t).where(t.c.data_set == data_set, ~t.c.over).values(over=True))
        return int(connection.execute(sa.select(sa.func.max(t.c.number))).scalar() or 0)

    def draft(self, population: Population, presence: str, id_prefix: str | None = None) -> Batch:
        """Build a new open batch without storing it. Raises InvalidInput. `presence`: `id-list` (the ids come as a
        list) or `public`. `id_prefix`: prefix of every id; DAY in it becomes today's date."""
        if presence not in (ID_LIST, PUBLIC):
            raise InvalidInput(
                "presence is 'id-list' (send the example ids first) or 'public' (which ids appear is public)."
            )
        if population.events is not None and presence != ID_LIST:
            raise InvalidInput(
                "Labels of this population come from events, so its batches need a list of example ids: which examples "
                "there are must not come from events. Leave presence out."
            )
        created = timestamp(self.clock())
        if id_prefix is not None:
            id_prefix = id_prefix.replace(DAY, created[:10])
            if not id_prefix or not id_prefix.isprintable() or len(id_prefix) > LONGEST_PREFIX:
                raise InvalidInput(f"`id_prefix` is 1 to {LONGEST_PREFIX} printable characters.")
        name = "bat_" + secrets.token_hex(12)
        self.keys.draft(name)
        return Batch(
            id=name,
            population=population.id,
            label=label_scope(population.label),
            state="open",
            presence=presence,
            version=0,
            created=created,
            sealed=None,
            seal_order=None,
            n=None,
            id_bytes=None,
            ids_mac=None,
            id_prefix=id_prefix,
        )

    def insert(self, connection: Connection, batch: Batch) -> None:
        stored = {name: value for name, value in batch.__dict__.items() if name in batches.c}
        connection.execute(sa.insert(batches).values(**stored))
        self.keys.insert(connection, batch.id)

    def get(self, connection: Connection, batch: str) -> tuple[Batch, Population]:
        # what is not printable is no id, and not every database takes it as a parameter
        row = batch.isprintable() and connection.execute(sa.select(batches).where(batches.c.id == batch)).first()
        if not row:
            raise NotFound(f"There is no batch '{batch}'.")
        batch_row = Batch(**row._mapping)
        return batch_row, self.populations.get(connection, batch_row.population)

    def of_population(self, connection: Connection, population: str) -> list[Batch]:
        query = sa.select(batches).where(batches.c.population == population).order_by(batches.c.created, batches.c.id)
        return [Batch(**row._mapping) for row in connection.execute(query)]

    def segments(self, connection: Connection, batch: str, kind: str, of: str | None = None) -> list[Segment]:
        query = (
            sa.select(segments).where(segments.c.batch == batch, segments.c.kind == kind).order_by(segments.c.number)
        )
        if of is not None:
            query = query.where(segments.c.of == of)
        return [Segment(r.kind, r.number, r.key, r.rows, r.of, r.mode, r.start) for r in connection.execute(query)]

    def records(self, connection: Connection, batch: str) -> list[Segment]:
        """List the labels that count, in order: all uploads except inserts set aside."""
        t, gaps = set_aside, defaultdict[str, list[tuple[int, int]]](list)
        query = sa.select(t.c.key, t.c.start, t.c.rows).where(t.c.batch == batch, t.c.aside).order_by(t.c.start)
        for key, start, rows in connection.execute(query):
            gaps[key].append((start, rows))
        uploads = self.segments(connection, batch, LABELS)  # an upsert counts, also one of what was set aside
        return [part for s in uploads for part in (s.without(gaps[s.key]) if s.mode == INSERT else (s,))]

    def held_back(self, connection: Connection, batch: str) -> list[Segment]:
        """List inserts set aside that replaced nothing; their digests are among those of the batch."""
        t = set_aside
        replaced = t.c.decision.is_not_distinct_from(REPLACE)
        query = sa.select(t.c.key, t.c.rows, t.c.start).where(t.c.batch == batch, t.c.aside, ~replaced)
        return [Segment(LABELS, 0, r.key, r.rows, start=r.start) for r in connection.execute(query.order_by(t.c.id))]

    def add_segment(
        self,
        connection: Connection,
        batch: str,
        kind: str,
        key: str,
        rows: int,
        of: str = "",
        mode: str = INSERT,
        start: int = 0,
    ) -> None:
        s: Any = segments.c
        values: dict[str, Any] = {"key": key, "rows": rows, "of": of, "mode": mode, "start": start}
        last = sa.select(sa.func.coalesce(sa.func.max(s.number), 0)).where(s.batch == batch, s.kind == kind)
        connection.execute(
            sa.insert(segments).values(batch=batch, kind=kind, number=last.scalar_subquery() + 1, **values)
        )

    def drop_segments(self, connection: Connection, batch: str, kind: str, numbers: list[int]) -> None:
        connection.execute(
            sa.delete(segments).where(
                segments.c.batch == batch, segments.c.kind == kind, segments.c.number.in_(numbers)
            )
        )

    def retire_uploads(self, connection: Connection, batch: str) -> None:
        """Mark the uploaded labels of a sealed batch for deletion."""
        uploads = self.segments(connection, batch, LABELS)
        self.drop_segments(connection, batch, LABELS, [u.number for u in uploads])
        for upload in uploads:
            self.add_segment(connection, batch, ERASED, upload.key, upload.rows)

    def retire_predictors(self, connection: Connection, batch: str, only: str | None = None) -> None:
        """End all predictors of a batch, or `only` one, and mark their states for deletion."""
        p = predictors
        ended = [p.c.batch == batch, p.c.state != RETIRED, *([p.c.id == only] if only is not None else [])]
        keys = set(connection.execute(sa.select(p.c.state_key).where(*ended)).scalars())
        connection.execute(sa.update(p).where(*ended).values(state=RETIRED))
        for learned in self.segments(connection, batch, PREDICTOR):
            if learned.key in keys:
                self.drop_segments(connection, batch, PREDICTOR, [learned.number])
                self.add_segment(connection, batch, ERASED, learned.key, learned.rows)

    def discard(self, connection: Connection, batch: Batch) -> list[str]:
        """Remove an open batch; return the keys of its stored objects. Raises Conflict if it is sealed."""
        require_open(batch)
        self.bump(connection, batch)
        keys = list(connection.execute(sa.select(segments.c.key).where(segments.c.batch == batch.id)).scalars())
        connection.execute(sa.delete(segments).where(segments.c.batch == batch.id))
        connection.execute(sa.delete(set_aside).where(set_aside.c.batch == batch.id))
        connection.execute(sa.delete(idempotency).where(idempotency.c.batch == batch.id))
        self.keys.erase(connection, batch.id)
        connection.execute(sa.delete(batches).where(batches.c.id == batch.id))
        return keys

    def close(self, connection: Connection, batch: str) -> None:
        """Refuse further labels from keys that may only send labels: they must not see the outcome of the seal."""
        t, now = batches, timestamp(self.clock())
        still = (t.c.id == batch, t.c.state == "open", t.c.closed.is_(None))
        connection.execute(sa.update(t).where(*still).values(closed=now))

    def seal(self, connection: Connection, batch: Batch, **values: int | str | None) -> None:
        """Store the values of a sealed batch: `seal_order`, `n`, `id_bytes`, `ids_mac`, `examples_beyond`."""
        sealed = {"state": SEALED, "sealed": timestamp(self.clock())} | values
        connection.execute(sa.update(batches).where(batches.c.id == batch.id).values(**sealed))

    def bump(self, connection: Connection, batch: Batch, waiting: int = 0) -> None:
        """Count an accepted upload, and `waiting` more that await a decision. Raises StaleBatch if the batch changed
        meanwhile."""
        t = batches
        changed = connection.execute(
            sa.update(t)
            .where(t.c.id == batch.id, t.c.version == batch.version, t.c.state == "open")
            # what refused a scheduled seal may be mended now
            .values(version=batch.version + 1, schedule_problem=None, set_aside=t.c.set_aside + waiting)
        ).rowcount
        if changed != 1:
            raise StaleBatch(f"Batch '{batch.id}' changed meanwhile.")


class StaleBatch(Conflict):
    """Conflict with a concurrent change: check again and retry. Never reaches a caller."""


def require_open(batch: Batch) -> None:
    """Raise Conflict unless the batch is open."""
    if batch.state != "open":
        raise Conflict(
            f"Batch '{batch.id}' is {batch.state}; a sealed batch never changes. Open a new batch for new examples."
        )


def require_window(batch: Batch, now: dt.datetime) -> None:
    """Raise Conflict if keys that may only send labels can send no more to this batch. A batch past its seal time and
    a sealed one reply alike: success of the seal depends on labels."""
    timely = batch.seal_at is None or timestamp(now) < batch.seal_at
    if batch.state != "open" or batch.closed is not None or not timely:
        raise Conflict(f"Batch '{batch.id}' takes no more labels. Open a new batch for new examples.")


def require_sendable(batch: Batch, now: dt.datetime, *, owner: bool) -> None:
    """Raise Conflict if the batch takes no labels."""
    if owner:
        require_open(batch)
    else:
        require_window(batch, now)


def require_sealed(batch: Batch) -> None:
    """Raise Conflict unless the batch is sealed and not purged."""
    if batch.state == PURGED:
        raise Conflict(
            f"The labels of batch '{batch.id}' were purged at {batch.purged}, so nothing more can be drawn or counted "
            "of it; the messages of its earlier releases stay."
        )
    if batch.state != "sealed":
        raise Conflict(f"Batch '{batch.id}' is {batch.state}; seal it first; no example may come to it afterwards.")
