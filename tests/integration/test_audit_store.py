"""The audit store on both engines: the database refuses changes, and what gets past it is found."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sqlalchemy.exc import DBAPIError

from label_dp.audit.events import BATCH_SEALED, CHARGED, Event, Subject
from label_dp.audit.store import AuditStore, read_export
from label_dp.documents.canonical import canonical_bytes
from label_dp.documents.canonical import digest as sha256
from label_dp.documents.signing import EXPORT_TYPE, MANIFEST_TYPE, SigningKey
from label_dp.errors import AuditChainBroken, MalformedManifest, SignatureInvalid, Unavailable
from label_dp.privacy import ZERO, Epsilon, EpsilonSplit
from label_dp.store.database import Database
from label_dp.store.migrations import append_only_drop, upgrade
from labels_party.bootstrap import MIGRATIONS
from labels_party.storage.tables import HEAD, audit_events

KEY = SigningKey(Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
NOON = dt.datetime(2026, 1, 2, 12, tzinfo=dt.UTC)


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    opened = Database(database_url)
    upgrade(opened, MIGRATIONS, HEAD)
    yield opened
    opened.dispose()


@pytest.fixture
def store() -> AuditStore:
    return AuditStore(audit_events, "labels-party", lambda: NOON)


@pytest.fixture
def filled(database: Database, store: AuditStore) -> Database:
    for i in range(4):
        database.write("append", lambda c, i=i: store.append(c, charge(i)) and None)
    database.write("append", lambda c: store.append(c, Event(BATCH_SEALED, Subject("pop_1", batch="bat_1"))) and None)
    return database


def charge(i: int) -> Event:
    subject = Subject("pop_1", "shop", "revenue", f"bat_{i % 2}", f"rel_{i}")
    return Event(CHARGED, subject, EpsilonSplit(ZERO, ZERO, Epsilon(10 + i)), actor="test")


def sql(database: Database, *statements: str, **values: object) -> None:
    """What somebody with the database's password can do."""

    def work(connection: sa.Connection) -> None:
        for statement in statements:
            connection.execute(sa.text(statement), values)

    database.write("attack", work)


def disarm(database: Database) -> None:
    sql(database, *append_only_drop(database.dialect, "audit_events"))


def test_events_are_chained_in_order_behind_a_first_one(filled: Database, store: AuditStore) -> None:
    events = filled.read("r", store.events)
    assert [e.sequence for e in events] == [1, 2, 3, 4, 5, 6]
    assert events[0].kind == "store-created"
    assert [e.previous for e in events[1:]] == [e.digest for e in events[:-1]]
    assert {e.store for e in events} == {events[0].store}
    assert {(e.time, e.at) for e in events} == {("2026-01-02", "2026-01-02T12:00:00Z")}
    assert all(b"12:00:00" not in e.body() for e in events)
    assert filled.read("v", store.verify) == (6, events[-1].digest)


def test_an_empty_store_verifies(database: Database, store: AuditStore) -> None:
    assert database.read("v", store.verify) == (0, "0" * 64)


def test_events_can_be_filtered_and_paged(filled: Database, store: AuditStore) -> None:
    by_batch = filled.read("r", lambda c: store.events(c, batch="bat_1"))
    assert [e.sequence for e in by_batch] == [3, 5, 6]
    assert [e.kind for e in filled.read("r", lambda c: store.events(c, kind=BATCH_SEALED))] == [BATCH_SEALED]
    page = filled.read("r", lambda c: store.events(c, after=2, limit=2))
    assert [e.sequence for e in page] == [3, 4]
    assert filled.read("r", lambda c: store.events(c, after=2**62)) == []


def test_an_event_and_its_effect_commit_together_or_not_at_all(filled: Database, store: AuditStore) -> None:
    def work(connection: sa.Connection) -> None:
        store.append(connection, charge(9))
        raise KeyError

    with pytest.raises(KeyError):
        filled.write("w", work)
    assert filled.read("v", store.verify)[0] == 6


CHANGES = [
    "UPDATE audit_events SET epsilon_nano = 0 WHERE sequence = 2",
    "UPDATE audit_events SET body = body",
    "DELETE FROM audit_events WHERE sequence = 6",
    "DELETE FROM audit_events",
]


def test_the_database_refuses_to_change_or_delete(filled: Database, store: AuditStore) -> None:
    before = filled.read("v", store.verify)
    for statement in CHANGES:
        with pytest.raises((DBAPIError, Unavailable)):
            sql(filled, statement)
        assert filled.read("v", store.verify) == before, statement


def test_the_database_refuses_to_replace_and_to_truncate(filled: Database, store: AuditStore) -> None:
    before = filled.read("v", store.verify)
    columns = "sequence, digest, body, kind, population, batch, release, epsilon_nano, delta_atto"
    changed = columns.replace("epsilon_nano", "0").replace("digest", "'x'")
    if filled.dialect == "sqlite":
        attacks = [f"INSERT OR REPLACE INTO audit_events ({columns}) SELECT {changed} FROM audit_events"]
        attacks.append("UPDATE OR REPLACE audit_events SET sequence = 1 WHERE sequence = 2")
    else:
        attacks = ["TRUNCATE audit_events", "TRUNCATE audit_events CASCADE"]
        attacks.append(
            f"INSERT INTO audit_events ({columns}) SELECT {changed} FROM audit_events WHERE sequence = 2 "
            "ON CONFLICT (sequence) DO UPDATE SET epsilon_nano = 0"
        )
    for attack in attacks:
        with pytest.raises((DBAPIError, Unavailable)):
            sql(filled, attack)
    assert filled.read("v", store.verify) == before


Attack = Callable[[sa.Connection], object]


def forge(change: Callable[[dict[str, Any]], object]) -> Attack:
    """Change the body of event 3 and make its own digest fit."""

    def attack(connection: sa.Connection) -> None:
        stored = connection.execute(sa.text("SELECT body FROM audit_events WHERE sequence = 3")).scalar_one()
        data = json.loads(bytes(stored))
        change(data)
        body = canonical_bytes(data)
        update = sa.text("UPDATE audit_events SET body = :body, digest = :digest WHERE sequence = 3")
        connection.execute(update, {"body": body, "digest": sha256(body)})

    return attack


def _cheaper(data: dict[str, Any]) -> None:
    data["epsilon_nano"] |= {"randomize": 1, "total": 1}


def run(*statements: str) -> Attack:
    return lambda connection: [connection.execute(sa.text(s)) for s in statements]


ATTACKS: dict[str, Attack] = {
    "a body with a smaller charge": forge(_cheaper),
    "a body with another actor": forge(lambda d: d.update(actor="somebody")),
    "a body with another time": forge(lambda d: d.update(time="2020-01-01T00:00:00Z")),
    "a body that is no event": run("UPDATE audit_events SET body = '{}' WHERE sequence = 3"),
    "a copy with a smaller charge": run("UPDATE audit_events SET epsilon_nano = 0 WHERE sequence = 3"),
    "a copy with another batch": run("UPDATE audit_events SET batch = 'bat_9' WHERE sequence = 3"),
    "a copy without its work": run("UPDATE audit_events SET work = NULL WHERE sequence = 3"),
    "a copy of another kind": run("UPDATE audit_events SET kind = 'model-trained' WHERE sequence = 3"),
    "a copy of another population": run("UPDATE audit_events SET population = 'p' WHERE sequence = 3"),
    "a copy with a δ": run("UPDATE audit_events SET delta_atto = 1 WHERE sequence = 3"),
    "a second of another day": run("UPDATE audit_events SET at = '2020-01-01T00:00:00Z' WHERE sequence = 3"),
    "another digest": run("UPDATE audit_events SET digest = 'x' WHERE sequence = 3"),
    "an event removed in the middle": run("DELETE FROM audit_events WHERE sequence = 3"),
    "the first event removed": run("DELETE FROM audit_events WHERE sequence = 1"),
    "an event removed and the rest renumbered": run(
        "DELETE FROM audit_events WHERE sequence = 5", "UPDATE audit_events SET sequence = 5 WHERE sequence = 6"
    ),
    "two events swapped": run(
        "UPDATE audit_events SET sequence = 99 WHERE sequence = 3",
        "UPDATE audit_events SET sequence = 3 WHERE sequence = 4",
        "UPDATE audit_events SET sequence = 4 WHERE sequence = 99",
    ),
}


class Undo(Exception):
    pass


def test_verification_finds_every_change_that_gets_past_the_triggers(filled: Database, store: AuditStore) -> None:
    disarm(filled)
    for name, attack in ATTACKS.items():

        def work(connection: sa.Connection, attack: Attack = attack) -> None:
            attack(connection)
            with pytest.raises(AuditChainBroken):
                store.verify(connection)
            with pytest.raises(AuditChainBroken):
                store.export(connection, KEY)
            raise Undo

        with pytest.raises(Undo):
            filled.write("attack", work)
        assert filled.read("v", store.verify)[0] == 6, name


def test_nothing_is_added_behind_a_damaged_event(filled: Database, store: AuditStore) -> None:
    disarm(filled)
    sql(filled, "UPDATE audit_events SET digest = 'x' WHERE sequence = 6")
    with pytest.raises(AuditChainBroken, match="damaged"):
        filled.write("w", lambda c: store.append(c, charge(9)) and None)


def test_a_cut_tail_is_not_seen_inside_but_by_an_earlier_export(filled: Database, store: AuditStore) -> None:
    """The chain alone cannot tell that its newest events are gone; whoever holds an export can."""
    events = read_export(filled.read("e", lambda c: store.export(c, KEY)), KEY.public).events
    disarm(filled)
    sql(filled, "DELETE FROM audit_events WHERE sequence > 4")
    count, head = filled.read("v", store.verify)
    assert count == 4 < len(events)
    assert head == events[3].digest


# --- export ------------------------------------------------------------------------------------------------


def test_an_export_verifies_with_the_public_key_alone(filled: Database, store: AuditStore) -> None:
    envelope = filled.read("e", lambda c: store.export(c, KEY))
    assert read_export(envelope, KEY.public).events == [replace(e, at="") for e in filled.read("r", store.events)]
    assert envelope == filled.read("e", lambda c: store.export(c, KEY))


def test_an_export_of_an_empty_store_verifies(database: Database, store: AuditStore) -> None:
    assert read_export(database.read("e", lambda c: store.export(c, KEY)), KEY.public).events == []


def test_every_flipped_byte_of_an_export_is_refused(
    store: AuditStore, tmp_path_factory: pytest.TempPathFactory
) -> None:
    database = Database(f"sqlite:///{tmp_path_factory.mktemp('audit') / 'x.sqlite'}")
    upgrade(database, MIGRATIONS, HEAD)
    database.write("append", lambda c: store.append(c, charge(1)) and None)
    envelope = database.read("e", lambda c: store.export(c, KEY))
    database.dispose()
    for position in range(len(envelope)):
        for flip in (0x01, 0x80, 0xFF):
            forged = bytearray(envelope)
            forged[position] ^= flip
            with pytest.raises((MalformedManifest, SignatureInvalid)):
                read_export(bytes(forged), KEY.public)


def test_another_key_another_type_and_text_are_refused(filled: Database, store: AuditStore) -> None:
    envelope = filled.read("e", lambda c: store.export(c, KEY))
    with pytest.raises(SignatureInvalid):
        read_export(envelope, SigningKey.generate().public)
    with pytest.raises(SignatureInvalid):
        read_export(KEY.sign(MANIFEST_TYPE, {"format": "label-dp-audit-export/1"}), KEY.public)
    for other in (b"", b"{}", envelope[:-1], envelope + b"\n"):
        with pytest.raises(MalformedManifest):
            read_export(other, KEY.public)


def test_a_signed_export_that_lies_is_refused(filled: Database, store: AuditStore) -> None:
    events = [json.loads(e.body()) for e in filled.read("r", store.events)]
    head = filled.read("v", store.verify)[1]
    good = {
        "format": "label-dp-audit-export/1",
        "party": "labels-party",
        "made": "2026-11-20",
        "count": 6,
        "head": head,
    }
    good["events"] = events
    assert len(read_export(KEY.sign(EXPORT_TYPE, good), KEY.public).events) == 6
    for lie in (
        {"count": 5},
        {"head": "0" * 64},
        {"events": events[:-1], "count": 5},
        {"events": events[1:]},
        {"events": [*events[:2], events[3], events[2], *events[4:]]},
        {"format": "label-dp-audit-export/0"},
        {"made": ""},
        {"events": None},
        {"events": "x"},
    ):
        with pytest.raises((AuditChainBroken, MalformedManifest)):
            read_export(KEY.sign(EXPORT_TYPE, good | lie), KEY.public)
    for member in ("count", "head", "events", "made"):
        with pytest.raises((AuditChainBroken, MalformedManifest)):
            read_export(KEY.sign(EXPORT_TYPE, {k: v for k, v in good.items() if k != member}), KEY.public)
