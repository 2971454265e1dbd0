"""A new field of a release is two files, from REST and command to the manifest: the schema, and the manifest's member.

`shared/label_dp/schemas/release.py`: a member that goes `to` the manifest.
`shared/label_dp/documents/manifest.py`: its form there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pyarrow.parquet as pq
import pytest
from fastapi import FastAPI
from pydantic import Field

from label_dp.cli.commands import command
from label_dp.documents.manifest import Manifest
from label_dp.documents.members import Text
from label_dp.schemas.base import Word
from label_dp.schemas.release import Release
from labels_party.api.asking import router_of
from labels_party.cli import app, privatize
from tests.architecture.doors import awaited, blocking, grown, shell
from tests.support import shared_routes
from tests.support.labels import LabelsParty, label_table
from tests.support.receipts import pair

pytestmark = pytest.mark.extended

PURPOSE = "weekly revenue"
LABELS = label_table(40)


@pytest.fixture(autouse=True)
def purpose(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The two files, for the length of a test; and the command, which is made once, when it is imported."""
    told = Field(default=None, max_length=200, description="What its message is for.")
    with (
        grown(Release, "purpose", Annotated[str | None, Word(to="manifest")], told),
        grown(Manifest, "purpose", Text | None, None),
    ):
        monkeypatch.setattr(app, "registered_commands", [*app.registered_commands])
        command(app)(privatize.privatize)
        monkeypatch.setattr(shared_routes, "_known", {})
        yield


@pytest.fixture
def party(tmp_path: Path) -> Iterator[LabelsParty]:
    with LabelsParty(tmp_path / "home", worker=False) as party:
        yield party


def stated(party: LabelsParty, release: str) -> str | None:
    assert party.services.pipeline.run(release)
    found: Any = Manifest.trusted(party.services.work.envelope(release), party.services.key.public, None)[0]
    purpose: str | None = found.purpose
    return purpose


def asked(**more: str) -> dict[str, str]:
    return {"epsilon": "1", "mechanism": "rr", **more}


def test_rest_and_both_clients_take_it_to_the_manifest(party: LabelsParty) -> None:
    owner, batch = party.client(), party.sealed_batch(LABELS)
    alone = FastAPI()  # the calls of schedules have the schema in them since they were imported
    alone.include_router(router_of(party.services.message))
    assert alone.openapi()["components"]["schemas"]["Release"]["properties"]["purpose"]["description"]
    path = f"/v1/batches/{batch}/releases"
    refused = owner.post(path, json=asked(purpose="x" * 201))
    assert refused.status_code == 422
    assert "purpose" in refused.json()["detail"]
    release = owner.post(path, json=asked(purpose=PURPOSE)).json()["id"]
    assert stated(party, release) == PURPOSE
    for role in ("owner", "features"):
        assert party.client(role).get(f"/v1/releases/{release}").json()["purpose"] == PURPOSE
    assert [row["purpose"] for row in owner.get(f"/v1/batches/{batch}/releases").json()] == [PURPOSE]
    charged = [e for e in owner.get("/v1/audit/events").json() if e["kind"] == "release-charged"]
    assert [event["details"]["purpose"] for event in charged] == [PURPOSE]
    for number, door in enumerate((blocking, awaited)):
        batch = party.sealed_batch(label_table(40, prefix=f"c{number}"))
        made = door(party, lambda client, batch=batch: client.release(batch, **asked(purpose=PURPOSE)))
        assert stated(party, made["id"]) == PURPOSE
    assert stated(party, party.charge(party.sealed_batch(label_table(40, prefix="none")))) is None


def test_the_command_takes_it_too(party: LabelsParty, tmp_path: Path) -> None:
    pq.write_table(LABELS, tmp_path / "labels.parquet")
    options = {"labels": "labels.parquet", "id-column": "example_id", "label-column": "label", "domain": "0:10"}
    options |= {"population": "shop", "budget": "2", "out": "m.parquet", "purpose": PURPOSE, **asked()}
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    told = json.loads(shell(party, tmp_path, "privatize", *words, "--json"))
    envelope = party.services.work.envelope(told["release"])
    found: Any = Manifest.trusted(envelope, party.services.key.public, "features-party")[0]
    assert found.purpose == PURPOSE
    assert shell(party, tmp_path, "inspect", "m.parquet")
    shell(party, tmp_path, "statement", told["release"], "--out", "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert told["release"] in page
    assert f'<tr><th scope="row">Purpose</th><td><bdi>{PURPOSE}</bdi></td></tr>' in page


def test_its_receiver_accepts_it_and_acknowledges_it(tmp_path: Path) -> None:
    with pair(tmp_path) as both:
        batch = both.labels.sealed_batch(LABELS)
        release = both.labels.client().post(f"/v1/batches/{batch}/releases", json=asked(purpose=PURPOSE)).json()["id"]
        assert stated(both.labels, release) == PURPOSE
        both.clock.move(minutes=1)
        assert both.pull(release).problem is None
        assert [name for name, _ in both.receiver.receipts()] == [release]
        for report in both.compare_both():
            assert (report["agrees"], report["notes"]) == (True, []), report
