"""The features party's schema, up and down, on both engines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from features_party.storage import tables
from label_dp.errors import Unavailable
from label_dp.store.database import Database
from label_dp.store.migrations import current_revision, downgrade

pytestmark = pytest.mark.usefixtures("migrations_themselves")


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    opened = Database(database_url)
    yield opened
    opened.dispose()


def shape(connection: sa.Connection) -> dict[str, dict[str, bool]]:
    found = sa.inspect(connection)
    return {
        name: {c["name"]: c["nullable"] for c in found.get_columns(name)}
        for name in found.get_table_names()
        if name != "alembic_version"
    }


def test_up_gives_exactly_the_declared_tables_and_down_removes_them(database: Database) -> None:
    tables.migrate(database)
    tables.migrate(database)  # nothing to do the second time
    assert current_revision(database) == tables.HEAD
    declared = {t.name: {c.name: bool(c.nullable) for c in t.columns} for t in tables.metadata.sorted_tables}
    assert database.read("test", shape) == declared
    indexes = database.read(
        "test", lambda c: {i["name"] for t in declared for i in sa.inspect(c).get_indexes(t) if not i["unique"]}
    )
    assert indexes == {i.name for t in tables.metadata.sorted_tables for i in t.indexes if not i.unique}
    downgrade(database, tables.MIGRATIONS, "base")
    assert database.read("test", shape) == {}
    tables.migrate(database)
    assert database.read("test", shape) == declared


def test_the_database_itself_keeps_audit_events(database: Database) -> None:
    tables.migrate(database)
    row = {"sequence": 1, "digest": "0" * 64, "body": b"x", "kind": "k", "epsilon_nano": 0, "delta_atto": 0}
    database.write("test", lambda c: c.execute(sa.insert(tables.audit_events).values(**row)) and None)
    for statement in (sa.update(tables.audit_events).values(kind="y"), sa.delete(tables.audit_events)):
        with pytest.raises((sa.exc.DBAPIError, Unavailable)):
            database.write("test", lambda c, s=statement: c.execute(s) and None)  # type: ignore[misc]  # bound now


def test_a_newer_database_is_refused(database: Database) -> None:
    tables.migrate(database)
    database.write("test", lambda c: c.execute(sa.text("UPDATE alembic_version SET version_num = '9999'")) and None)
    with pytest.raises(Unavailable, match="upgrade"):
        tables.migrate(database)


def test_migrations_ship_with_the_package() -> None:
    assert (Path(tables.MIGRATIONS) / "env.py").is_file()
