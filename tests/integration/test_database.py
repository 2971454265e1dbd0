"""The one door to the database, on both engines: writers take turns, nothing half-done stays, errors quote nothing."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError, OperationalError

from label_dp.errors import InvalidSettings, Unavailable
from label_dp.store import database as module
from label_dp.store.database import ATTEMPTS, Database

SECRET = "73194.625"


class Faults:
    def __init__(self) -> None:
        self.seen: list[str] = []
        self.at: dict[str, Exception] = {}

    def __call__(self, point: str) -> None:
        self.seen.append(point)
        if point in self.at:
            raise self.at[point]


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture
def database(database_url: str, faults: Faults) -> Iterator[Database]:
    opened = Database(database_url, faults=faults)
    opened.write(
        "make", lambda c: c.execute(sa.text("CREATE TABLE t (name VARCHAR(50) PRIMARY KEY, n BIGINT)")) and None
    )
    opened.write("fill", lambda c: c.execute(sa.text("INSERT INTO t VALUES ('count', 0)")) and None)
    faults.seen.clear()
    yield opened
    opened.dispose()


def count(connection: sa.Connection) -> int:
    return int(connection.execute(sa.text("SELECT n FROM t WHERE name = 'count'")).scalar_one())


def put(connection: sa.Connection, n: int) -> None:
    connection.execute(sa.text("UPDATE t SET n = :n WHERE name = 'count'"), {"n": n})


def test_eight_writers_of_fifty_lose_nothing(database: Database) -> None:
    def work() -> None:
        for _ in range(50):
            # read, then write: only writers that take turns keep every increment
            database.write("increment", lambda c: put(c, count(c) + 1))

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(work) for _ in range(8)]:
            done.result()
    assert database.read("count", count) == 400


def test_inside_a_write_nothing_else_writes(database: Database, database_url: str) -> None:
    inside, overlap, barrier = threading.Lock(), [], threading.Barrier(4)

    def work(own: Database) -> None:
        barrier.wait()

        def write(connection: sa.Connection) -> None:
            overlap.append(inside.acquire(blocking=False))
            put(connection, count(connection) + 1)
            inside.release()

        for _ in range(10):
            own.write("w", write)

    others = [Database(database_url) for _ in range(4)]  # as four processes would
    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(work, own) for own in others]:
            done.result()
    for own in others:
        own.dispose()
    assert all(overlap)
    assert database.read("count", count) == 40


def test_an_error_rolls_everything_back(database: Database) -> None:
    def work(connection: sa.Connection) -> None:
        put(connection, 5)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        database.write("w", work)
    assert database.read("count", count) == 0
    assert database.write("w", lambda c: put(c, 1) or count(c)) == 1


def test_fault_points_are_named_and_in_order(database: Database, faults: Faults) -> None:
    database.write("release.charge", lambda c: put(c, 1))
    assert faults.seen == ["release.charge:begin", "release.charge:before-commit", "release.charge:after-commit"]
    faults.seen.clear()
    database.read("look", count)
    assert faults.seen == []


@pytest.mark.parametrize(("point", "expected"), [("begin", 0), ("before-commit", 0), ("after-commit", 7)])
def test_a_fault_leaves_all_or_nothing(point: str, expected: int, database: Database, faults: Faults) -> None:
    faults.at[f"w:{point}"] = RuntimeError("power cut")
    with pytest.raises(RuntimeError):
        database.write("w", lambda c: put(c, 7))
    assert database.read("count", count) == expected


def _busy(database: Database) -> OperationalError:
    """What the driver says when a transaction certainly did not commit."""
    orig: Exception = sqlite3.OperationalError("database is locked")
    if database.dialect == "postgresql":
        import psycopg

        orig = psycopg.errors.SerializationFailure("could not serialize access")
    return OperationalError("UPDATE t", {"label": SECRET}, orig)


def _lost(database: Database) -> OperationalError:
    """What it says when the connection went away: the commit may have happened."""
    orig: Exception = sqlite3.OperationalError("disk I/O error")
    if database.dialect == "postgresql":
        import psycopg

        orig = psycopg.OperationalError(f"server closed the connection unexpectedly {SECRET}")
    return OperationalError("COMMIT", {"label": SECRET}, orig)


def test_what_certainly_did_not_commit_is_retried(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.time, "sleep", lambda _: None)
    tries: list[int] = []

    def work(connection: sa.Connection) -> None:
        tries.append(1)
        put(connection, count(connection) + 1)
        if len(tries) < 4:
            raise _busy(database)

    database.write("w", work)
    assert len(tries) == 4
    assert database.read("count", count) == 1


def test_retries_end(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.time, "sleep", lambda _: None)
    tries: list[int] = []

    def work(_: sa.Connection) -> None:
        tries.append(1)
        raise _busy(database)

    with pytest.raises(Unavailable):
        database.write("w", work)
    assert len(tries) == ATTEMPTS


def test_what_may_have_committed_is_never_retried(database: Database, faults: Faults) -> None:
    tries: list[int] = []

    def work(connection: sa.Connection) -> None:
        tries.append(1)
        put(connection, 1)
        raise _lost(database)

    with pytest.raises(Unavailable) as refusal:
        database.write("w", work)
    assert len(tries) == 1
    assert SECRET not in refusal.value.detail
    assert "w:after-commit" not in faults.seen


def test_a_read_cannot_write_on_postgresql(database: Database) -> None:
    if database.dialect == "sqlite":
        # SQLite has no read-only transaction; there, a read that writes is simply part of no fault point
        assert database.read("r", count) == 0
        return
    with pytest.raises(Unavailable):
        database.read("r", lambda c: put(c, 9))
    assert database.read("r", count) == 0


def test_a_read_sees_one_moment(database: Database) -> None:
    def twice(connection: sa.Connection) -> tuple[int, int]:
        first = count(connection)
        database.write("between", lambda c: put(c, count(c) + 1))
        return first, count(connection)

    first, second = database.read("twice", twice)
    assert first == second == 0
    assert database.read("count", count) == 1


def test_no_error_text_carries_a_parameter(database: Database) -> None:
    value = {"name": SECRET, "n": 1}
    insert = sa.text("INSERT INTO t VALUES (:name, :n)")
    database.write("w", lambda c: c.execute(insert, value) and None)
    with pytest.raises(IntegrityError) as duplicate:
        database.write("w", lambda c: c.execute(insert, value) and None)
    assert "[parameters" not in str(duplicate.value)
    with pytest.raises(Unavailable) as wrong:
        database.write("w", lambda c: c.execute(sa.text("INSERT INTO nowhere VALUES (:name)"), value) and None)
    assert SECRET not in str(wrong.value) + repr(wrong.value) + str(wrong.value.__cause__)
    assert "'w'" in wrong.value.detail
    with pytest.raises(Unavailable) as unread:
        database.read("r", lambda c: c.execute(sa.text("SELECT :name FROM nowhere"), value))
    assert SECRET not in str(unread.value) + str(unread.value.__cause__)


def test_a_pool_without_a_free_connection_is_unavailable(database: Database) -> None:
    database.engine.pool._timeout = 0.05  # type: ignore[attr-defined]  # thirty seconds would be a long test
    held = [database.engine.raw_connection() for _ in range(24)]
    with pytest.raises(Unavailable, match="busy"):
        database.read("r", count)
    with pytest.raises(Unavailable, match="busy"):
        database.write("w", lambda c: put(c, 1))
    for connection in held:
        connection.close()
    assert database.read("r", count) == 0


@pytest.mark.parametrize("url", ["mysql://u:hunter2@h/d", "oracle://u:hunter2@h/d", "no url: hunter2", ""])
def test_other_databases_are_refused_without_their_password(url: str) -> None:
    with pytest.raises(InvalidSettings) as refusal:
        Database(url)
    assert "hunter2" not in refusal.value.detail


def test_a_damaged_file_and_an_absent_folder_are_unavailable(tmp_path: Path) -> None:
    (tmp_path / "bad.sqlite").write_bytes(b"garbage" * 1000)
    for path in (tmp_path / "bad.sqlite", tmp_path / "absent" / "x.sqlite"):
        broken = Database(f"sqlite:///{path}")
        with pytest.raises(Unavailable):
            broken.write("w", lambda _c: None)
        with pytest.raises(Unavailable):
            broken.read("r", lambda _c: None)
        broken.dispose()


def test_sqlite_keeps_its_promises(storage_itself: None, tmp_path: Path) -> None:
    opened = Database(f"sqlite:///{tmp_path / 'x.sqlite'}")

    def settings(connection: sa.Connection) -> dict[str, object]:
        names = ("journal_mode", "synchronous", "foreign_keys", "trusted_schema")
        return {name: connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in names}

    assert opened.read("r", settings) == {
        "journal_mode": "wal",
        "synchronous": 2,
        "foreign_keys": 1,
        "trusted_schema": 0,
    }
    opened.dispose()
