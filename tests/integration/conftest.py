"""Fixtures of the integration tests."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from fastapi.testclient import TestClient

from label_dp.spark.cluster import Cluster
from labels_party import cli
from tests.support.desk import Desk, watched_desk
from tests.support.labels import FakeClock, LabelsParty, label_table
from tests.support.labels_api import POPULATION, published
from tests.support.labels_cli import Result, Run
from tests.support.predicting import fresh_name, tables, with_features
from tests.support.spark import session


@pytest.fixture(scope="session")
def spark() -> Iterator[Cluster]:
    """One session of Spark on this machine for all tests."""
    with session() as cluster:
        yield cluster


@pytest.fixture
def desk(party: LabelsParty, caplog: pytest.LogCaptureFixture) -> Iterator[Desk]:
    """An open batch of a population with the rule `refuse`, at debug level."""
    with watched_desk(party, caplog) as opened:
        yield opened


# --- a labels party over REST, from its owner to a release ---------------------------------------------------


@pytest.fixture
def owner(party: LabelsParty) -> TestClient:
    return party.client("owner")


@pytest.fixture
def shop(owner: TestClient) -> str:
    return str(owner.post("/v1/populations", json=POPULATION).json()["id"])


@pytest.fixture
def batch(owner: TestClient, shop: str) -> str:
    """An open batch whose presence is public."""
    return str(owner.post(f"/v1/populations/{shop}/batches", json={"presence": "public"}).json()["id"])


@pytest.fixture
def sealed(owner: TestClient, batch: str) -> str:
    records = [{"example_id": f"c{i}", "label": i % 7} for i in range(40)]
    assert owner.post(f"/v1/batches/{batch}/labels", json={"records": records}).status_code == 200
    assert owner.post(f"/v1/batches/{batch}/seal").json()["state"] == "sealed"
    return batch


@pytest.fixture
def release(owner: TestClient, sealed: str) -> str:
    found = str(
        owner.post(f"/v1/batches/{sealed}/releases", json={"epsilon": "1", "mechanism": "rr-on-bins"}).json()["id"]
    )
    published(owner, found)
    return found


# --- a labels party whose time and work a test moves ---------------------------------------------------------


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def timed(tmp_path: Path, database_url: str, clock: FakeClock) -> Iterator[LabelsParty]:
    """A labels party whose worker runs only when a test says so, on each database engine."""
    with LabelsParty(tmp_path / "home", database_url=database_url, clock=clock, worker=False) as party:
        yield party


@pytest.fixture
def lite(tmp_path: Path, clock: FakeClock) -> Iterator[LabelsParty]:
    """The same on SQLite only."""
    with LabelsParty(tmp_path / "home", clock=clock, worker=False) as party:
        yield party


# --- the command of the labels party -------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home that is not there yet; its folder is the working directory."""
    for name in [n for n in os.environ if n.upper().startswith("LABELS_PARTY_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("LABELS_PARTY_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


@pytest.fixture
def run(home: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command as its entry point runs it, with the handling of errors, in this process."""

    def command(*arguments: str | Path) -> Result:
        monkeypatch.setattr(sys, "argv", ["labels-party", *map(str, arguments)])
        capfd.readouterr()
        code = 0
        try:
            cli.main()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        captured = capfd.readouterr()
        return Result(code, captured.out, captured.err)

    return command


@pytest.fixture
def labels(home: Path) -> Path:
    path = home.parent / "labels.parquet"
    pq.write_table(label_table(60), path)
    return path


@pytest.fixture
def ready(party: LabelsParty) -> tuple[LabelsParty, str]:
    """A batch with features to make predictors of, of a population of its own."""
    name = fresh_name()
    return party, with_features(party, *tables(), population=name, label=name, lifetime="10")
