"""A new column of populations is three files.

`shared/label_dp/schemas/population.py`: what is declared. `labels_party/storage/tables.py`: its column, and the newest
revision. `labels_party/storage/migrations/versions/NUMBER.py`: how an older database gets it, and loses it.
"""

from __future__ import annotations

import importlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa
from pydantic import Field

from label_dp.cli.commands import command
from label_dp.documents.export import AuditExport
from label_dp.schemas.population import Population
from labels_party import bootstrap
from labels_party.api import intake
from labels_party.cli import app, privatize
from labels_party.ledger import populations as ledger
from tests.architecture.doors import awaited, blocking, grown, shell
from tests.support import shared_routes
from tests.support.labels import LabelsParty, label_table

pytestmark = pytest.mark.extended

SHOP: dict[str, Any] = {"label": "revenue", "domain": "0:10", "lifetime_epsilon": "3"}
MIGRATION = """
import sqlalchemy as sa
from alembic import op

revision = "9999"
down_revision = "{head}"


def upgrade() -> None:
    with op.batch_alter_table("populations") as table:
        table.add_column(sa.Column("region", sa.String(40)))


def downgrade() -> None:
    with op.batch_alter_table("populations") as table:
        table.drop_column("region")
"""


@pytest.fixture
def region(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, migrations_themselves: None) -> Iterator[None]:
    """The three files, for the length of a test; and the call and the command, which are made once."""
    column = ledger.populations.to_metadata(sa.MetaData())
    column.append_column(sa.Column("region", sa.String(40)))
    monkeypatch.setattr(ledger, "populations", column)
    migrations = shutil.copytree(bootstrap.MIGRATIONS, tmp_path / "migrations")
    (migrations / "versions" / "9999_region.py").write_text(MIGRATION.format(head=bootstrap.tables.HEAD))
    monkeypatch.setattr(bootstrap, "MIGRATIONS", migrations)
    monkeypatch.setattr(bootstrap.tables, "HEAD", "9999")
    monkeypatch.setattr(app, "registered_commands", [*app.registered_commands])
    monkeypatch.setattr(shared_routes, "_known", {})
    told = Field(default=None, max_length=40, description="Where its people live.")
    with grown(Population, "region", Annotated[str | None, "where"], told):
        command(app)(privatize.privatize)
        importlib.reload(intake)
        yield
    importlib.reload(intake)


@pytest.mark.usefixtures("migrations_themselves")
def test_an_older_home_gets_it_and_every_door_takes_it(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    with LabelsParty(tmp_path / "home", worker=False) as before:
        old = before.client().post("/v1/populations", json=SHOP | {"name": "old"})
        assert "region" not in old.json()
        assert before.client().post("/v1/populations", json=SHOP | {"name": "x", "region": "north"}).status_code == 422
    request.getfixturevalue("region")
    with LabelsParty(tmp_path / "home", worker=False) as party:
        owner = party.client()
        assert owner.get("/v1/populations/old").json()["region"] is None
        schema = owner.get("/openapi.json").json()["components"]["schemas"]["Population"]
        assert schema["properties"]["region"]["description"] == "Where its people live."
        made = owner.post("/v1/populations", json=SHOP | {"name": "new", "region": "north"})
        assert made.json()["region"] == owner.get("/v1/populations/new").json()["region"] == "north"
        assert owner.post("/v1/populations", json=SHOP | {"name": "y", "region": "x" * 41}).status_code == 422
        for door in (blocking, awaited):
            asked = SHOP | {"name": door.__name__, "region": "south"}
            assert door(party, lambda client, asked=asked: client.create_population(**asked))["region"] == "south"
        created = [e for e in owner.get("/v1/audit/events").json() if e["kind"] == "population-created"]
        assert [event["details"].get("region") for event in created] == [None, "north", "south", "south"]
        party.services.database.read("verify", party.services.audit.verify)
        pq.write_table(label_table(40), tmp_path / "labels.parquet")
        options = {"labels": "labels.parquet", "id-column": "example_id", "label-column": "label", "domain": "0:10"}
        options |= {"population": "shop", "budget": "2", "epsilon": "1", "mechanism": "rr", "region": "west"}
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        told = json.loads(shell(party, tmp_path, "privatize", *words, "--out", "m.parquet", "--json"))
        assert owner.get(f"/v1/populations/{told['population']}").json()["region"] == "west"
        again = [*words[:-1], "east", "--out", "2.parquet"]
        assert "region" in shell(party, tmp_path, "privatize", *again, code=1)
        export = owner.get("/v1/audit/export").content
        assert "west" in AuditExport.opened(export, party.services.key.public)[0].model_dump_json()
