"""The first database is brought to the head, a backup of an older revision too; a newer one is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from features_party.backups import features_party
from features_party.settings import Settings as FeaturesSettings
from label_dp.audit.verification import verify_store
from label_dp.backup.port import Party
from label_dp.backup.restoring import RestoreRequest, restore
from label_dp.errors import Unavailable
from label_dp.store.database import Database
from label_dp.store.migrations import current_revision
from labels_party.backups import SCHEMA, labels_party
from labels_party.settings import Settings
from labels_party.work.receipts import ReceiptBook
from labels_party.work.restored import RestoredLedger
from tests.support.backups import keys_of, taken
from tests.support.first_databases import FIRST, load_first, public_key, told
from tests.support.labels import LabelsParty, label_table
from tests.support.labels_cli import Run

SECOND = '''"""A column more."""
import sqlalchemy as sa
from alembic import op
revision, down_revision = "0002", "0001"
def upgrade():
    op.add_column("installation", sa.Column("note", sa.String(20), server_default="new"))
def downgrade():
    op.drop_column("installation", "note")
'''


@pytest.fixture(params=["labels", "features"])
def party(request: pytest.FixtureRequest, tmp_path: Path, database_url: str) -> Party:
    home: dict[str, Any] = {"home": tmp_path / "home", "database_url": database_url}
    if request.param == "labels":
        return labels_party(settings=Settings(**home))
    return features_party(settings=FeaturesSettings(**home))


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    opened = Database(database_url)
    yield opened
    opened.dispose()


def test_the_first_database_is_brought_along(party: Party, database: Database) -> None:
    """Its chain is as it was, byte for byte, and so is what was spent."""
    database.write("first", lambda c: load_first(c, party))
    assert current_revision(database) == FIRST
    party.schema.prepare(database)
    assert current_revision(database) == party.schema.head
    wanted: dict[str, Any] = told(party)
    found = database.read("verify", lambda c: verify_store(c, party.audit, public_key(party)))
    assert (found["events"], found["head"]) == (wanted["events"], wanted["head"])
    ledger = RestoredLedger().ledger
    for batch, nano in wanted["spent"].items():
        assert database.read("spent", lambda c, of=batch: ledger.spent(c, of)).nano == nano
    if party.side == "labels":
        book: Any = ReceiptBook.__new__(ReceiptBook)
        book.audit = party.audit
        database.read("receipts", book.check)


@pytest.fixture
def newer(tmp_path: Path) -> Any:
    """The schema of a later version: one migration more."""
    scripts = tmp_path / "migrations"
    shutil.copytree(SCHEMA.scripts, scripts)
    (scripts / "versions" / "0002_note.py").write_text(SECOND, "utf-8")
    return replace(SCHEMA, scripts=scripts, head="0002")


@pytest.mark.usefixtures("migrations_themselves")
def test_a_backup_of_an_older_revision_is_brought_to_the_head(
    party_on: LabelsParty, newer: Any, tmp_path: Path
) -> None:
    batch = party_on.sealed_batch(label_table(20))
    party_on.release(batch, "1")
    taken(party_on, tmp_path / "b.zip")
    keys = keys_of(party_on, tmp_path / "keys")
    party = replace(labels_party(settings=Settings(home=tmp_path / "again")), schema=newer)
    found = restore(party, RestoreRequest(tmp_path / "b.zip", keys, newest=True))
    assert (found["from_revision"], found["revision"]) == ("0001", "0002")
    database = party.existing()
    assert database.read("note", lambda c: c.execute(sa.text("SELECT note FROM installation")).scalar()) == "new"
    assert str(database.read("spent", lambda c: RestoredLedger().ledger.spent(c, batch))) == "1"
    database.dispose()


@pytest.mark.usefixtures("migrations_themselves")
def test_a_backup_of_a_newer_version_is_refused(party_on: LabelsParty, newer: Any, tmp_path: Path) -> None:
    newer.prepare(party_on.services.database)
    party = replace(labels_party(settings=party_on.settings), schema=newer)
    from label_dp.backup.taking import back_up

    back_up(party, tmp_path / "b.zip")
    old = labels_party(settings=Settings(home=tmp_path / "again"))
    with pytest.raises(Unavailable, match="newer version"):
        restore(old, RestoreRequest(tmp_path / "b.zip", keys_of(party_on, tmp_path / "keys"), newest=True))
    assert not (tmp_path / "again").exists()


@pytest.mark.usefixtures("migrations_themselves")
def test_status_and_upgrade_by_command(run: Run, home: Path, newer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("db", "status").code == 1
    assert not home.exists()
    run("keygen")
    assert json.loads(run("db", "status", "--json").out)["pending"] == []
    with monkeypatch.context() as patch:
        patch.setattr("labels_party.backups.SCHEMA", newer)
        found = json.loads(run("db", "status", "--json").out)
        assert (found["database"], found["program"]) == ("0001", "0002")
        assert found["pending"] == [{"revision": "0002", "does": "A column more."}]
        refused = run("backup", "--out", "b.zip")
        assert (refused.code, "db upgrade" in refused.err) == (1, True)
        assert json.loads(run("db", "upgrade", "--json").out)["applied"] == found["pending"]
        assert json.loads(run("db", "status", "--json").out)["pending"] == []
    for command in ("status", "upgrade"):
        refused = run("db", command)
        assert (refused.code, "newer version" in refused.err) == (1, True)
