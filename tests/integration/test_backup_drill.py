"""The drill: a service runs, is backed up meanwhile, is killed, loses its home, comes back and goes on."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from deploy.demo.services import Service
from label_dp.documents.bundle import verify
from label_dp.documents.signing import VerifyingKey
from label_dp.errors import LabelDPError
from labels_party.client import LabelsPartyClient
from tests.support.both_parties import AUDIENCE
from tests.support.labels import label_table

pytestmark = pytest.mark.processes


@pytest.fixture
def service(tmp_path: Path, database_url: str) -> Iterator[Service]:
    outside = {} if database_url.startswith("sqlite") else {"DATABASE_URL": database_url}
    kernels = Path(os.environ["NUMBA_CACHE_DIR"])
    found = Service("labels-party", "LABELS_PARTY_", tmp_path / "lp", tmp_path / "lp.log", kernels, outside)
    yield found
    found.stop()


def killed(service: Service) -> None:
    process: Any = service._process
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def emptied(url: str) -> None:
    """A database server that was lost comes back with nothing."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")


class Sending(threading.Thread):
    """Somebody who uploads all the time, whatever the service answers."""

    def __init__(self, client: LabelsPartyClient, batch: str) -> None:
        super().__init__(daemon=True)
        self.client, self.batch, self.sent, self.ended = client, batch, 0, threading.Event()

    def run(self) -> None:
        while not self.ended.is_set():
            try:
                self.client.add_labels(self.batch, label_table(50, prefix=f"part{self.sent}"))
                self.sent += 1
            except (LabelDPError, httpx.HTTPError):
                return


def test_a_service_that_was_killed_and_lost_goes_on_from_its_backup(
    service: Service, database_url: str, tmp_path: Path
) -> None:
    outside = "DATABASE_URL" in service.environment
    made = json.loads(service.run("apikey", "create", "--role", "owner", "--json"))
    service.launch()
    service.await_ready()
    with httpx.Client(trust_env=False, timeout=30) as http:
        owner = LabelsPartyClient(service.url, made["key"], http=http)
        owner.create_population("shop", "revenue", "0:10", "3", audiences=[AUDIENCE])
        first, opened = (str(owner.open_batch("shop", presence="public")["id"]) for _ in range(2))
        owner.add_labels(first, label_table(200))
        owner.seal(first)
        release = owner.wait(str(owner.release(first, "1", mechanism="rr-on-bins")["id"]))
        spent = owner.budget("shop")
        sending = Sending(LabelsPartyClient(service.url, made["key"], retries=0, http=http), opened)
        sending.start()
        told = json.loads(service.run("backup", "--out", str(tmp_path / "b.zip"), "--json"))
        service.run("audit", "export", "--out", str(tmp_path / "own.json"))
        killed(service)
        sending.ended.set()
        sending.join()
    shutil.copytree(service.home / "keys", tmp_path / "keys")
    shutil.rmtree(service.home)
    if outside:
        emptied(database_url)
    brought = ("restore", str(tmp_path / "b.zip"), "--keys", str(tmp_path / "keys"))
    found = json.loads(service.run(*brought, "--against", str(tmp_path / "own.json"), "--json"))
    assert found["events"] == told["events"]
    assert all(comparison["agrees"] for comparison in found["against"])
    service.launch()
    service.await_ready()
    with httpx.Client(trust_env=False, timeout=30) as http:
        owner = LabelsPartyClient(service.url, made["key"], http=http)
        assert owner.budget("shop") == spent
        on_top = owner.wait(str(owner.release(first, "0.5", mechanism="rr-on-bins", additional_release=True)["id"]))
        epsilons = {batch["batch"]: batch["epsilon_spent"] for batch in owner.budget("shop")["batches"]}
        assert epsilons[first] == "1.5"
        # what had come into the open batch by then is in it, and more may come
        owner.add_labels(opened, label_table(5, prefix="after"))
        assert owner.seal(opened)["examples"] >= 5
    public = VerifyingKey.load(service.home / "keys" / "signing.pub")
    for each in (release, on_top):
        attempt = next((service.home / "work" / each["id"]).glob("attempt-*"))
        assert verify(attempt, public, AUDIENCE).digest == each["manifest_sha256"]
    assert json.loads(service.run("audit", "verify", "--against", str(tmp_path / "own.json"), "--json"))["agrees"]
