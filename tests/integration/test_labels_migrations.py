"""Migrations of the labels party on both engines: up, down, up; the same schema as the tables; newer is refused."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator

import alembic.command
import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from label_dp.errors import Unavailable
from label_dp.store import migrations
from label_dp.store.database import Database
from label_dp.store.migrations import current_revision, downgrade, prepare, upgrade
from labels_party.bootstrap import MIGRATIONS
from labels_party.storage.tables import APPEND_ONLY, HEAD, metadata

is_empty = migrations.is_empty

pytestmark = pytest.mark.usefixtures("migrations_themselves")


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    opened = Database(database_url)
    yield opened
    opened.dispose()


def tables(database: Database) -> set[str]:
    return set(database.read("tables", lambda c: sa.inspect(c).get_table_names())) - {"alembic_version"}


def triggers(database: Database) -> set[str]:
    query = (
        "SELECT name FROM sqlite_master WHERE type = 'trigger'"
        if database.dialect == "sqlite"
        else "SELECT tgname FROM pg_trigger WHERE NOT tgisinternal"
    )
    return set(database.read("triggers", lambda c: c.execute(sa.text(query)).scalars().all()))


def test_up_down_up(database: Database) -> None:
    assert current_revision(database) is None
    upgrade(database, MIGRATIONS, HEAD)
    assert current_revision(database) == HEAD
    first = tables(database), triggers(database)
    assert first[0] == set(metadata.tables)
    assert first[1]
    downgrade(database, MIGRATIONS, "base")
    assert tables(database) == set()
    assert triggers(database) == set()
    upgrade(database, MIGRATIONS, HEAD)
    assert (tables(database), triggers(database)) == first


def test_upgrading_twice_changes_nothing(database: Database) -> None:
    upgrade(database, MIGRATIONS, HEAD)
    insert = sa.text("INSERT INTO installation VALUES (1, 'x', 1)")
    database.write("w", lambda c: c.execute(insert) and None)
    upgrade(database, MIGRATIONS, HEAD)
    rows = database.read("r", lambda c: c.execute(sa.text("SELECT * FROM installation")).all())
    assert [tuple(r) for r in rows] == [(1, "x", 1)]


def _migrate(url: str) -> None:
    own = Database(url)
    upgrade(own, MIGRATIONS, HEAD)
    own.dispose()


@pytest.mark.processes
def test_processes_that_start_together_migrate_once(database_url: str) -> None:
    context = multiprocessing.get_context("fork")
    started = [context.Process(target=_migrate, args=(database_url,)) for _ in range(4)]
    for process in started:
        process.start()
    for process in started:
        process.join()
    assert [process.exitcode for process in started] == [0, 0, 0, 0]
    database = Database(database_url)
    assert current_revision(database) == HEAD
    assert tables(database) == set(metadata.tables)
    database.dispose()


def test_the_migrated_schema_is_that_of_the_tables(database: Database) -> None:
    upgrade(database, MIGRATIONS, HEAD)

    def differences(connection: sa.Connection) -> list[object]:
        return list(compare_metadata(MigrationContext.configure(connection, opts={"compare_type": True}), metadata))

    assert database.read("compare", differences) == []


def test_columns_keys_and_uniqueness_agree_one_by_one(database: Database) -> None:
    upgrade(database, MIGRATIONS, HEAD)

    def check(connection: sa.Connection) -> None:
        inspector = sa.inspect(connection)
        for name, table in metadata.tables.items():
            found = {c["name"]: c for c in inspector.get_columns(name)}
            assert set(found) == {c.name for c in table.columns}, name
            for column in table.columns:
                assert found[column.name]["nullable"] == column.nullable, (name, column.name)
                length = getattr(column.type, "length", None)
                if length is not None and not isinstance(column.type, sa.LargeBinary):
                    assert found[column.name]["type"].length == length, (name, column.name)
            assert inspector.get_pk_constraint(name)["constrained_columns"] == [c.name for c in table.primary_key], name
            wanted = {tuple(c.name for c in u.columns) for u in table.constraints if isinstance(u, sa.UniqueConstraint)}
            assert {tuple(u["column_names"]) for u in inspector.get_unique_constraints(name)} == wanted, name
            keys = {(k["constrained_columns"][0], k["referred_table"]) for k in inspector.get_foreign_keys(name)}
            assert keys == {(k.parent.name, k.column.table.name) for k in table.foreign_keys}, name

    database.read("check", check)


def test_a_newer_database_is_refused_and_left_alone(database: Database) -> None:
    upgrade(database, MIGRATIONS, HEAD)
    newer = sa.text("UPDATE alembic_version SET version_num = '9999'")
    database.write("newer", lambda c: c.execute(newer) and None)
    with pytest.raises(Unavailable, match="newer version"):
        upgrade(database, MIGRATIONS, HEAD)
    assert current_revision(database) == "9999"
    assert tables(database) == set(metadata.tables)


def test_a_failed_migration_leaves_the_old_schema(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_of: str) -> list[str]:
        return ["CREATE TABLE half (a INTEGER)", "THIS IS NOT SQL"]

    monkeypatch.setattr("label_dp.store.migrations.append_only_ddl", broken)
    with pytest.raises(Unavailable):
        upgrade(database, MIGRATIONS, HEAD)
    assert tables(database) == set()
    assert current_revision(database) is None
    monkeypatch.undo()
    upgrade(database, MIGRATIONS, HEAD)
    assert tables(database) == set(metadata.tables)


def shape(database: Database) -> list[object]:
    """Everything of a schema that the engine tells, in order."""

    def look(connection: sa.Connection) -> list[object]:
        if database.dialect == "sqlite":
            query = "SELECT type, name, sql FROM sqlite_master ORDER BY 1, 2"
            return [tuple(row) for row in connection.execute(sa.text(query))]
        inspector = sa.inspect(connection)
        parts = ("columns", "pk_constraint", "unique_constraints", "foreign_keys", "indexes", "check_constraints")
        return [
            (
                name,
                part,
                sorted(map(str, found))
                if isinstance(found := getattr(inspector, f"get_{part}")(name), list)
                else str(found),
            )
            for name in sorted(inspector.get_table_names())
            for part in parts
        ]

    return [*database.read("shape", look), *sorted(triggers(database)), current_revision(database)]


def test_an_empty_database_gets_at_once_what_migrations_lead_to(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    upgrade(database, MIGRATIONS, HEAD)
    migrated = shape(database)
    downgrade(database, MIGRATIONS, "base")
    database.write("drop", lambda c: c.execute(sa.text("DROP TABLE alembic_version")) and None)
    monkeypatch.setattr(migrations, "is_empty", is_empty)
    monkeypatch.setattr(alembic.command, "upgrade", lambda *_: pytest.fail("Alembic was asked"))
    prepare(database, MIGRATIONS, HEAD, metadata, APPEND_ONLY)
    assert shape(database) == migrated
    prepare(database, MIGRATIONS, HEAD, metadata, APPEND_ONLY)
    assert shape(database) == migrated


def test_a_database_that_holds_anything_is_left_to_alembic(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    database.write("w", lambda c: c.execute(sa.text("CREATE TABLE installation (a INTEGER)")) and None)
    monkeypatch.setattr(migrations, "is_empty", is_empty)
    with pytest.raises(Unavailable):
        prepare(database, MIGRATIONS, HEAD, metadata, APPEND_ONLY)
    assert current_revision(database) is None
    assert tables(database) == {"installation"}


def test_the_newest_script_is_the_one_the_code_asks_for() -> None:
    assert ScriptDirectory(str(MIGRATIONS)).get_heads() == [HEAD]
