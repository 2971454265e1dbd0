"""Intake of conversion events. Nothing of it looks at ids or labels that came before (invariant no-oracle)."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy.engine import Connection

from label_dp.errors import InvalidEvents, LabelDPError, Unavailable
from label_dp.schemas.events import DataSet, EventRule
from label_dp.schemas.json_types import JsonObject
from label_dp.store.database import Database
from label_dp.store.idempotency import NO_KEY, IdempotentCall, Reply, earlier_of, remember
from labels_party.labels.at_rest import event_keys
from labels_party.labels.batches import EVENTS, StaleBatch
from labels_party.labels.changes import commit, delete, until_current
from labels_party.labels.digests import EventKeys
from labels_party.labels.events.bodies import EventRows, Events, one_body, stored_events
from labels_party.labels.events.windows import EventWindows, Window
from labels_party.labels.vault import LabelVault
from labels_party.ledger.event_rules import data_sets
from labels_party.ledger.populations import Populations
from labels_party.storage.secrets import Secrets

RETRIES = 50
OBJECT_ROWS = 1 << 20  # events that wait in memory before an object of a large upload is written
BUSY = "Too many events at once, or a part of them is lost; try again."


@dataclass(frozen=True)
class EventUpload:
    """Upload of events; a call of `rows` reads what some data sets need, once if it does not lie in memory."""

    rows: Callable[[Collection[DataSet]], Iterable[EventRows]]
    call: IdempotentCall
    size: int = 0  # bytes of the body


@dataclass
class _Objects:
    """Objects written for uploads that are not part of a window yet."""

    windows: dict[str, Window] = field(default_factory=dict)  # by data set
    rows: list[tuple[str, str, int]] = field(default_factory=list)  # data set, key and rows of each object

    @property
    def keys(self) -> list[str]:
        return [key for _, key, _ in self.rows]


class EventIntake:
    """Intake of uploads of events: all events of one or none."""

    def __init__(
        self, database: Database, populations: Populations, windows: EventWindows, vault: LabelVault, secrets_: Secrets
    ) -> None:
        self.database, self.populations, self.windows = database, populations, windows
        self.vault, self.secrets = vault, secrets_
        self._rules: list[JsonObject] = []
        self._known: dict[str, DataSet] = {}
        self._keys: dict[str, EventKeys] = {}

    def add(self, upload: EventUpload) -> Reply:
        """Store an upload of any size, read once. Raises InvalidEvents, InvalidFile, TooLarge, Unavailable."""
        earlier = self.database.read("events.seen", upload.call.earlier) if upload.call.key is not None else None
        if earlier is not None:
            return earlier
        sets, objects, count = self._sets(), _Objects(), 0
        waiting: dict[str, list[Events]] = {}
        try:
            for rows in upload.rows(sets.values()):
                count += len(rows)
                for name, events in stored_events(rows, sets, self._keys).items():
                    waiting.setdefault(name, []).append(events)
                if sum(len(part) for parts in waiting.values() for part in parts) >= OBJECT_ROWS:
                    self._write(objects, waiting)
            upload.call.settle()
            self._write(objects, waiting)
            self.database.fault("events.received")
        except BaseException:
            delete(self.vault, objects.keys)
            raise
        try:
            return self._record(objects, (200, {"accepted": count}), upload.call)
        except StaleBatch:
            raise Unavailable(BUSY) from None

    def add_small(self, uploads: Sequence[EventUpload]) -> list[Reply | Exception]:
        """Run `add` for each, with one object for each data set and one transaction for all without faults; return a
        reply or error each."""
        earlier = self.database.read("events.seen", lambda c: earlier_of(c, [upload.call for upload in uploads]))
        answers: list[Reply | Exception | None] = [*earlier]
        keys = [(upload.call.caller, upload.call.key) for upload in uploads]
        sets, read = self._sets(), dict[int, list[EventRows]]()
        for i, upload in enumerate(uploads):
            if answers[i] is not None or (keys[i][1] is not None and keys.index(keys[i]) < i):
                continue
            try:
                rows = list(upload.rows(sets.values()))
                upload.call.settle()
            except Exception as error:  # the caller's own
                answers[i] = error
            else:
                read[i] = rows
        waiting, faults = self._checked(read, sets)
        for i, fault in faults.items():
            del read[i]
            answers[i] = fault
        fit = [(i, (200, {"accepted": sum(map(len, parts))})) for i, parts in read.items()]
        try:
            until_current(lambda: self._store(waiting, [(uploads[i].call, reply) for i, reply in fit]), RETRIES, BUSY)
        except LabelDPError as error:
            for i, _ in fit:
                answers[i] = error
        else:
            for i, reply in fit:
                answers[i] = reply
        return [self.add(uploads[i]) if answer is None else answer for i, answer in enumerate(answers)]

    # --- parts --------------------------------------------------------------------------------------------------

    def _checked(
        self, read: Mapping[int, list[EventRows]], sets: dict[str, DataSet]
    ) -> tuple[dict[str, list[Events]], dict[int, Exception]]:
        """Return the events of uploads by data set, and the faults of uploads that have one. Without a fault all are
        checked as one, which is forty times as quick for events that come one by one."""
        with contextlib.suppress(InvalidEvents):
            whole = one_body([rows for parts in read.values() for rows in parts])
            return {name: [events] for name, events in stored_events(whole, sets, self._keys).items()}, {}
        waiting, faults = dict[str, list[Events]](), dict[int, Exception]()
        for i, parts in read.items():
            try:
                stored = [stored_events(rows, sets, self._keys) for rows in parts]
            except InvalidEvents as fault:
                faults[i] = fault
                continue
            for of_sets in stored:
                for name, events in of_sets.items():
                    waiting.setdefault(name, []).append(events)
        return waiting, faults

    def _sets(self) -> dict[str, DataSet]:
        rules = self.database.read("events.look", self.populations.event_rules)
        if rules != self._rules:
            sets = data_sets(map(EventRule.model_validate, rules))
            self._keys |= {name: event_keys(self.secrets, name) for name in sets.keys() - self._keys.keys()}
            self._rules, self._known = rules, sets
        return self._known

    def _store(self, waiting: Mapping[str, list[Events]], replies: list[tuple[IdempotentCall, Reply]]) -> Reply:
        objects = _Objects()
        try:
            self._write(objects, {**waiting})
            self.database.fault("events.received")
        except BaseException:
            delete(self.vault, objects.keys)
            raise
        return self._record(objects, (200, {}), replies=replies)

    def _record(
        self,
        objects: _Objects,
        reply: Reply,
        call: IdempotentCall = NO_KEY,
        replies: Sequence[tuple[IdempotentCall, Reply]] = (),
    ) -> Reply:
        """Make the objects part of their windows and store the replies, in one transaction. Raises StaleBatch."""

        def effect(connection: Connection) -> tuple[Reply, list[str]]:
            if any(earlier_of(connection, [one for one, _ in replies])):
                raise StaleBatch("One of these calls was answered meanwhile.")
            for name, key, rows in objects.rows:
                self.windows.add(connection, objects.windows[name], key, rows)
            remember(connection, replies)
            return reply, []

        return commit(self.database, self.vault, "events.store", call, effect, objects.keys)

    def _write(self, objects: _Objects, waiting: dict[str, list[Events]]) -> None:
        """Write what waits, an object for each data set, and forget it. Raises Unavailable, FileNotFoundError."""
        for name, parts in waiting.items():
            window = objects.windows.get(name) or objects.windows.setdefault(name, self.windows.current(name))
            key = f"{window.id}/{EVENTS}-{secrets.token_hex(8)}.rows"
            if rows := sum(len(part) for part in parts):
                objects.rows.append((name, key, rows))
                self.vault.put_records(key, parts)
        waiting.clear()
