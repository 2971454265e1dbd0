"""Named transactions: one writer at a time, retried, with fault points.

Every write transaction holds a lock on the whole database (`BEGIN IMMEDIATE` on SQLite, an advisory lock on
PostgreSQL), so that both engines have the same, simple semantics: inside a write transaction nothing else writes. Long
work (files, sorting, drawing) is done outside; transactions only read and write rows.

Fault points of a transaction `name`: `name:begin`, `name:before-commit`, `name:after-commit`.
"""

from __future__ import annotations

import random
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from label_dp.errors import InvalidSettings, Unavailable, printable
from label_dp.installing import pip_install
from label_dp.numbers import BadSpelling, whole_of
from label_dp.store.faults import FaultHook, no_faults
from label_dp.store.folders import private_file

T = TypeVar("T")

WRITER_LOCK = 0x6C6162656C6470  # "labeldp": the advisory lock that makes writers take turns on PostgreSQL
ATTEMPTS = 12
LOCK_SECONDS = 30  # how long a writer waits for its turn before it counts as an attempt, on both engines
SCRUB_MS = 2000
WRITERS = 8  # connections of writers that wait for their turn: the others are left to readers
IDLE_SECONDS = 120  # ends the transaction of a frozen process: every writer waits for it
# first statement of a PostgreSQL transaction: settings for this transaction only, then the writers' lock
READING = f"SELECT set_config('idle_in_transaction_session_timeout', '{IDLE_SECONDS}s', true)"
WRITING = f"{READING}, set_config('lock_timeout', '{LOCK_SECONDS}s', true), pg_advisory_xact_lock({WRITER_LOCK})"
OPTIONS = ("prepare_threshold",)  # of a PostgreSQL URL, beside those of libpq
# libpq itself waits for ever for a server that went away
WAITS = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}


def create_engine(url: str) -> Engine:
    """Create an engine with this project's settings for SQLite or PostgreSQL. Raises InvalidSettings for other URLs."""
    try:
        parsed = sa.make_url(url)
    except SQLAlchemyError:
        raise InvalidSettings(
            "The database URL cannot be read; it looks like sqlite:////path/file.db or postgresql://…"
        ) from None
    backend = parsed.get_backend_name()
    if backend == "sqlite":
        if parsed.database and parsed.database != ":memory:" and not parsed.database.startswith("file:"):
            for end in ("", "-wal", "-shm", "-journal"):
                private_file(Path(parsed.database + end), "the database's URL", make=not end)
        engine = sa.create_engine(
            parsed,
            connect_args={"timeout": LOCK_SECONDS, "check_same_thread": False},
            pool_size=8,
            max_overflow=16,
            hide_parameters=True,
        )
        event.listen(engine, "connect", _sqlite_connect)
        event.listen(engine, "begin", _sqlite_begin)
        return engine
    if backend == "postgresql":
        parsed = parsed.set(drivername="postgresql+psycopg")
        return sa.create_engine(
            parsed.difference_update_query(OPTIONS),
            connect_args=_postgresql_options(parsed),
            pool_size=8,
            max_overflow=16,
            pool_pre_ping=True,
            hide_parameters=True,
            # a stricter default of the server would fix the snapshot before the writers' lock is held
            isolation_level="READ COMMITTED",
        )
    raise InvalidSettings(f"Databases of kind '{backend}' are not supported; use SQLite or PostgreSQL.")


def _sqlite_connect(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # the driver must not begin or commit on its own
    cursor = connection.cursor()
    for pragma in (
        "journal_mode=WAL",
        "synchronous=FULL",
        "foreign_keys=ON",
        f"busy_timeout={1000 * LOCK_SECONDS}",
        "trusted_schema=OFF",
        "secure_delete=ON",
    ):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _postgresql_options(url: sa.URL) -> dict[str, Any]:
    """Return the options of a connection, beside those of the URL. Raises InvalidSettings.

    No session state outlives a transaction: a pooler (PgBouncer in transaction mode) gives the next one another
    connection. So no statement is prepared at the server, unless the URL sets prepare_threshold.
    """
    try:
        from psycopg.pq import Conninfo
    except ImportError:
        raise InvalidSettings(f"PostgreSQL needs its driver: {pip_install('postgres')}.") from None

    keywords = {option.keyword.decode() for option in Conninfo.get_defaults()}
    for name in sorted(set(url.query) - keywords - set(OPTIONS)):
        raise InvalidSettings(f"The database URL has the option '{printable(name)}', which PostgreSQL does not know.")
    text = url.query.get("prepare_threshold", "0")
    try:
        threshold = whole_of(text)
        if threshold < 0:
            raise BadSpelling
    except BadSpelling:
        raise InvalidSettings(
            "The option prepare_threshold of the database URL is a whole number: after how many executions a statement "
            "is prepared at the server; 0, the default: never."
        ) from None
    defaults = {name: value for name, value in WAITS.items() if name not in url.query}
    return defaults | {"prepare_threshold": threshold or None}


def _sqlite_begin(connection: Connection) -> None:
    read_only = connection.get_execution_options().get("read_only", False)
    connection.exec_driver_sql("BEGIN" if read_only else "BEGIN IMMEDIATE")


class Database:
    """Runner of named transactions. `write` may run its function more than once: it must have no other side effects."""

    def __init__(self, url: str, *, faults: FaultHook = no_faults) -> None:
        self.engine = create_engine(url)
        self.fault = faults
        self.dialect = self.engine.dialect.name
        self._writers = threading.BoundedSemaphore(WRITERS)

    def dispose(self) -> None:
        self.engine.dispose()

    def write(self, name: str, work: Callable[[Connection], T]) -> T:
        """Run `work` in one write transaction, repeated if the engine certainly did not commit."""
        if not self._writers.acquire(timeout=LOCK_SECONDS):
            raise Unavailable(f"Too many calls waited to write when '{name}' was due; nothing was changed. Try again.")
        try:
            return self._write(name, work)
        finally:
            self._writers.release()

    def _write(self, name: str, work: Callable[[Connection], T]) -> T:
        for attempt in range(ATTEMPTS):
            committing = False
            try:
                with self._transaction(name, read_only=False) as connection:
                    result = work(connection)
                    committing = True
            except OperationalError as error:
                if attempt + 1 < ATTEMPTS and self._did_not_commit(error):
                    # spreads writers out, decides nothing about privacy
                    time.sleep(random.uniform(0.002, 0.02) * (attempt + 1))  # noqa: S311 - no secret
                    continue
                raise self._unavailable(name, error, committing) from error
            except IntegrityError:
                raise
            except (DBAPIError, PoolTimeout) as error:
                raise self._unavailable(name, error, committing) from error
            self.fault(f"{name}:after-commit")
            return result
        raise AssertionError("unreachable")

    def read(self, name: str, work: Callable[[Connection], T]) -> T:
        """Run `work` in one read-only transaction (a consistent snapshot)."""
        try:
            with self._transaction(name, read_only=True) as connection:
                return work(connection)
        except (DBAPIError, PoolTimeout) as error:
            raise self._unavailable(name, error) from error

    def scrub(self) -> bool:
        """Remove deleted rows from the database's files; False if another connection is in the way. Only SQLite can: a
        server keeps old rows and its log as it likes."""
        if self.dialect != "sqlite":
            return True
        try:
            with self.engine.connect() as connection:
                driver: Any = connection.connection.driver_connection
                driver.execute(f"PRAGMA busy_timeout={SCRUB_MS}")
                try:
                    busy, _, _ = driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                finally:
                    driver.execute(f"PRAGMA busy_timeout={1000 * LOCK_SECONDS}")
                return not busy
        except (sqlite3.OperationalError, DBAPIError, PoolTimeout):
            return False

    def now(self, connection: Connection) -> float:
        """Return seconds of the epoch by the clock that all processes of this database share; leases use it."""
        if self.dialect == "sqlite":
            return time.time()
        return float(connection.execute(sa.text("SELECT extract(epoch FROM clock_timestamp())")).scalar_one())

    @contextmanager
    def _transaction(self, name: str, *, read_only: bool) -> Iterator[Connection]:
        with self.engine.connect() as connection:
            connection = connection.execution_options(read_only=read_only)
            if self.dialect == "postgresql" and read_only:
                connection = connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
            with connection.begin():
                if self.dialect == "postgresql":
                    connection.execute(sa.text(READING if read_only else WRITING))
                if not read_only:
                    self.fault(f"{name}:begin")
                yield connection
                if not read_only:
                    self.fault(f"{name}:before-commit")

    def _did_not_commit(self, error: OperationalError) -> bool:
        if self.dialect == "sqlite":
            return "database is locked" in str(error.orig) or "database table is locked" in str(error.orig)
        return getattr(error.orig, "sqlstate", None) in ("40001", "40P01", "55P03")

    @staticmethod
    def _unavailable(name: str, error: DBAPIError | PoolTimeout, committing: bool = False) -> Unavailable:
        if isinstance(error, PoolTimeout):
            return Unavailable(f"Every connection to the database was busy during '{name}'; try again.")
        # the driver's text may quote parameters, so only the type of the failure is passed on
        kind = type(error.orig).__name__ if error.orig is not None else type(error).__name__
        if committing:
            return Unavailable(
                f"The database failed while '{name}' was being stored ({kind}); it is not known whether it was. Check "
                "its disk and connection, then repeat the call with the same Idempotency-Key, or look first."
            )
        return Unavailable(
            f"The database failed during '{name}' ({kind}); nothing was changed. "
            "Check its disk and connection, then try again."
        )
