"""The features party's schema, up and down, on both engines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa

from features_party.storage import tables
from shared.errors import Unavailable
from shared.service.database import Database
from shared.service.migrations import current_revision, downgrade
from tests.support.calibrations import signed
from tests.support.features_api import message_files, running
from tests.support.messages import Sender


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


def test_0002_keeps_what_0001_stored_and_goes_back_to_it(database: Database) -> None:
    from shared.service.migrations import upgrade

    upgrade(database, tables.MIGRATIONS, "0001")
    first = database.read("test", shape)
    row = {
        "id": "tr_1",
        "state": "succeeded",
        "request": "{}",
        "step": "done",
        "share": 1.0,
        "attempts": 1,
        "created": "t",
    }
    names = ", ".join(row)
    values = ", ".join(f":{name}" for name in row)
    insert = sa.text(f"INSERT INTO trainings ({names}) VALUES ({values})")
    database.write("test", lambda c: c.execute(insert, row) and None)
    tables.migrate(database)
    (found,) = database.read("test", lambda c: c.execute(sa.select(tables.trainings)).all())
    assert (found.name, found.note, found.started) == (None, None, None)
    assert (found.revision, found.cancel_requested) == (1, False)
    cancelled = sa.update(tables.trainings).values(state="cancelled")
    database.write("test", lambda c: c.execute(cancelled) and None)
    downgrade(database, tables.MIGRATIONS, "0001")
    assert database.read("test", shape) == first
    # a worker of the first schema would know nothing of this state
    assert database.read("test", lambda c: c.execute(sa.text("SELECT state FROM trainings")).scalar()) == "failed"


def test_0006_tells_the_calibrations_of_models_that_were_made_before_it(tmp_path: Path, database_url: str) -> None:
    sender = Sender()
    with running(tmp_path, sender, database_url=database_url) as api:
        api.accept(message_files(sender, tmp_path / "sent"))
        source = api.trained()
        gone, database = api.trained(), api.services.database
        made = {}
        for name, model, lines in (("ans_1", source, False), ("ans_2", source, True), ("ans_3", gone, False)):
            envelope = json.loads(signed(sender.key, np.array([0.5, 8.5]), [20], answer=name))
            path = f"/v1/models/{model}/calibrations" + ("?interpolate=true" if lines else "")
            made[api.trainer.post(path, json=envelope).json()["id"]] = name
        assert api.trainer.delete(f"/v1/models/{gone}").status_code == 204
        t, answers = tables.models, tables.answers
        query = sa.select(t.c.id, t.c.calibration)
        before = {row.id: row.calibration for row in database.read("t", lambda c: c.execute(query).all())}
        assert before == made | {source: None}
        names = sa.select(answers.c.answer, answers.c.population_name).order_by(answers.c.answer)
        listed = database.read("t", lambda c: c.execute(names).all())
        assert [tuple(row) for row in listed] == [("ans_1", "shop"), ("ans_2", "shop"), ("ans_3", "shop")]
        downgrade(database, tables.MIGRATIONS, "0005")
        assert "calibration" not in database.read("t", shape)["models"]
        assert "population_name" not in database.read("t", shape)["answers"]
        tables.migrate(database)
        assert {row.id: row.calibration for row in database.read("t", lambda c: c.execute(query).all())} == before
        assert database.read("t", lambda c: c.execute(names).all()) == listed


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
