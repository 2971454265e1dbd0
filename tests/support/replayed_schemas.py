"""The schema of a fresh database without Alembic's 60 ms: by the statements it issued for the first one of a process.

On PostgreSQL even those are only issued once a database: `park` empties the tables of a test and hides them in a schema
of their own, from which the next test's upgrade takes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import alembic.command
import psycopg
import pytest
import sqlalchemy as sa
from alembic.config import Config
from sqlalchemy.engine import Connection

from label_dp.store import migrations

upgrade_itself = alembic.command.upgrade
Statement = tuple[str, Any]
EMPTY = {
    "sqlite": "SELECT count(*) = 0 FROM sqlite_master",
    "postgresql": "SELECT count(*) = 0 FROM pg_class WHERE relnamespace = 'public'::regnamespace",
}
# what a test may change of a schema: relations, columns, functions, and triggers with their state
SHAPE = """
SELECT coalesce(md5(string_agg(line, ',' ORDER BY line)), '') FROM (
  SELECT concat_ws(' ', c.oid, c.relname, a.attname, a.attnotnull) AS line
    FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
    WHERE c.relnamespace = 'public'::regnamespace AND a.attnum > 0 AND NOT a.attisdropped
  UNION ALL SELECT concat_ws(' ', t.oid, t.tgname, t.tgenabled)
    FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid WHERE c.relnamespace = 'public'::regnamespace
  UNION ALL SELECT concat_ws(' ', p.oid, p.proname, md5(p.prosrc)) FROM pg_proc p
    WHERE p.pronamespace = 'public'::regnamespace
  UNION ALL SELECT concat_ws(' ', o.oid, o.conname) FROM pg_constraint o
    WHERE o.connamespace = 'public'::regnamespace) AS lines
"""
OTHERS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
# without triggers: an audit trail refuses to lose a row
EMPTIED = """
DO $$
DECLARE of_public record;
BEGIN
  SET LOCAL session_replication_role = replica;
  FOR of_public IN SELECT relname, relkind FROM pg_class WHERE relnamespace = 'public'::regnamespace LOOP
    IF of_public.relkind = 'r' THEN EXECUTE format('DELETE FROM public.%I', of_public.relname); END IF;
    IF of_public.relkind = 'S' THEN EXECUTE format('SELECT setval(''public.%I'', 1, false)', of_public.relname); END IF;
  END LOOP;
END $$
"""


class ReplayedSchemas:
    """In the place of `alembic.command.upgrade`; databases that hold anything are left to Alembic."""

    def __init__(self) -> None:
        self._statements: dict[tuple[str, str, str], list[Statement]] = {}

    def __call__(self, config: Config, revision: str) -> None:
        connection: Connection = config.attributes["connection"]
        dialect, scripts = connection.dialect.name, str(config.get_main_option("script_location"))
        if not connection.exec_driver_sql(EMPTY[dialect]).scalar():
            upgrade_itself(config, revision)
            return
        key = (dialect, scripts, revision)
        parked = f"parked_{Path(scripts).parents[1].name}_{revision}".lower()
        if dialect == "postgresql" and _unpark(connection, parked):
            return
        if key in self._statements:
            self._replay(connection, self._statements[key])
        else:
            self._statements[key] = self._recorded(connection, lambda: upgrade_itself(config, revision))
        if dialect == "postgresql":
            shape = connection.exec_driver_sql(SHAPE).scalar()
            connection.exec_driver_sql(f"COMMENT ON SCHEMA public IS '{parked} {revision} {shape}'")

    @staticmethod
    def _recorded(connection: Connection, work: Callable[[], None]) -> list[Statement]:
        found: list[Statement] = []

        def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
            if not statement.lstrip().upper().startswith(("SELECT", "PRAGMA")):
                found.append((statement, parameters))

        sa.event.listen(connection, "before_cursor_execute", note)
        try:
            work()
        finally:
            sa.event.remove(connection, "before_cursor_execute", note)
        return found

    @staticmethod
    def _replay(connection: Connection, statements: list[Statement]) -> None:
        cursor = connection.connection.cursor()
        for statement, parameters in statements:
            cursor.execute(statement, parameters)
        cursor.close()


def _unpark(connection: Connection, name: str) -> bool:
    """Take the empty tables that an earlier test of this database left."""
    if not connection.exec_driver_sql(f"SELECT to_regnamespace('{name}') IS NOT NULL").scalar():
        return False
    connection.exec_driver_sql("DROP SCHEMA public")
    connection.exec_driver_sql(f"ALTER SCHEMA {name} RENAME TO public")
    return True


def park(url: str) -> None:
    """Leave a database empty for the next test; tables whose shape a test changed are dropped. Ends its connections."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(OTHERS)
        noted = (connection.execute("SELECT obj_description('public'::regnamespace)").fetchone() or (None,))[0]
        name, revision, shape = (noted or "- - -").split(" ") if (noted or "").startswith("parked_") else ("", "", "-")
        if connection.execute(SHAPE).fetchone() != (shape,):
            connection.execute("DROP SCHEMA public CASCADE")
        else:
            connection.execute(EMPTIED)
            connection.execute("INSERT INTO alembic_version VALUES (%s)", [revision])
            connection.execute(f"ALTER SCHEMA public RENAME TO {name}")  # type: ignore[call-overload]  # made above
        connection.execute("CREATE SCHEMA public")


@contextmanager
def replayed_schemas() -> Iterator[None]:
    """Everything that migrates in this process does so by replaying."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(alembic.command, "upgrade", ReplayedSchemas())
        patch.setattr(migrations, "is_empty", lambda _: False)  # nothing is made at once either
        yield
