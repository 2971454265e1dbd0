"""What other tests stand on: a replayed schema is Alembic's, and one test's rows and changes never reach the next."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa

from features_party.storage import tables as features
from label_dp.store.database import Database
from label_dp.store.migrations import current_revision, upgrade
from labels_party.bootstrap import MIGRATIONS
from labels_party.storage.tables import HEAD
from tests.support.postgres import Databases
from tests.support.replayed_schemas import replayed_schemas

PARTIES = {"labels": lambda d: upgrade(d, MIGRATIONS, HEAD), "features": features.migrate}

GUARDS = """SELECT count(*) FROM pg_trigger
  WHERE NOT tgisinternal AND tgenabled = 'O' AND tgrelid = to_regclass('audit_events')"""


def schema(path: Path) -> list[tuple[str, str, str]]:
    return sqlite3.connect(path).execute("SELECT type, name, sql FROM sqlite_master ORDER BY 1, 2").fetchall()


@pytest.mark.parametrize("migrate", PARTIES.values(), ids=PARTIES)
def test_the_second_database_has_the_schema_of_the_first(migrate: Callable[[Database], None], tmp_path: Path) -> None:
    with replayed_schemas():
        for name in ("by-alembic", "replayed"):
            database = Database(f"sqlite:///{tmp_path / name}")
            migrate(database)
            migrate(database)
            database.dispose()
    assert schema(tmp_path / "replayed") == schema(tmp_path / "by-alembic")
    assert len(schema(tmp_path / "replayed")) > 5


@pytest.mark.parametrize("change", ["", "DROP TABLE webhooks CASCADE", "ALTER TABLE api_keys ADD COLUMN more INTEGER"])
def test_a_parked_database_begins_empty_and_unchanged(change: str, postgres_databases: Databases) -> None:
    urls = list[str]()
    for _ in range(2):
        with postgres_databases.empty() as url:
            urls.append(url)
            database = Database(url)
            assert current_revision(database) is None
            upgrade(database, MIGRATIONS, HEAD)
            columns = {c["name"] for c in sa.inspect(database.engine).get_columns("api_keys")}
            rows = database.read("test", lambda c: [len(c.execute(sa.text(f"SELECT * FROM {t}")).all()) for t in (
                "api_keys", "webhooks", "installation")])  # fmt: skip
            assert (rows, "more" in columns) == ([0, 0, 0], False)
            database.write("test", lambda c: c.execute(sa.text("INSERT INTO installation VALUES (1, 'x', 1)")) and None)
            if change:
                database.write("test", lambda c: c.execute(sa.text(change)) and None)
            database.dispose()
    assert urls[0] == urls[1]


def test_a_parked_trail_refuses_changes_again(postgres_databases: Databases) -> None:
    for _ in range(2):
        with postgres_databases.empty() as url:
            database = Database(url)
            upgrade(database, MIGRATIONS, HEAD)
            found = database.read("test", lambda c: c.execute(sa.text(GUARDS)).scalar())
            database.dispose()
            assert found
