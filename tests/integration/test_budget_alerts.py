"""Thresholds of the lifetime ε: one event and one notice when a charge reaches one, from the ledger alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.support.labels import LabelsParty

POPULATION = {"name": "shop", "label": "revenue", "domain": "0:10", "lifetime_epsilon": "1"}


@pytest.fixture
def party_at_rest(tmp_path: Path, database_url: str) -> Iterator[LabelsParty]:
    with LabelsParty(tmp_path / "home", database_url=database_url, worker=False) as party:
        yield party


def sealed(owner: TestClient, prefix: str) -> str:
    batch = str(owner.post("/v1/populations/shop/batches", json={"presence": "public"}).json()["id"])
    owner.post(f"/v1/batches/{batch}/labels", json={"example_id": [f"{prefix}{i}" for i in range(9)], "label": [1] * 9})
    assert owner.post(f"/v1/batches/{batch}/seal").status_code == 200
    return batch


def ask(owner: TestClient, batch: str, epsilon: str) -> int:
    body = {"epsilon": epsilon, "additional_release": True, "mechanism": "one-bit"}
    return int(owner.post(f"/v1/batches/{batch}/releases", json=body).status_code)


def alerts(party: LabelsParty) -> list[Any]:
    found = party.services.database.read("e", lambda c: party.services.audit.events(c, kind="budget-alert"))
    return [(e.subject.batch, e.details["percent"], e.details["spent"]) for e in found]


def test_each_threshold_is_told_once_when_it_is_reached(party_at_rest: LabelsParty) -> None:
    party = party_at_rest
    owner, auditor = party.client("owner"), party.client("auditor")
    owner.post("/v1/populations", json=POPULATION | {"alert_percent": [100, 50, 80]})
    hook = owner.post("/v1/webhooks", json={"url": "http://127.0.0.1:9/x", "events": ["budget.alert"]}).json()["id"]
    monday, tuesday = sealed(owner, "m"), sealed(owner, "t")
    assert ask(owner, monday, "0.499999999") == 202
    assert alerts(party) == []
    assert ask(owner, monday, "0.000000001") == 202
    assert alerts(party) == [(monday, 50, "0.5")]
    assert ask(owner, monday, "0.6") == 403
    assert alerts(party) == [(monday, 50, "0.5")]
    assert ask(owner, monday, "0.5") == 202
    assert alerts(party)[1:] == [(monday, 80, "1"), (monday, 100, "1")]
    assert ask(owner, tuesday, "0.1") == 202
    assert len(alerts(party)) == 3
    report = auditor.get("/v1/populations/shop/budget").json()
    assert report["alert_percent"] == [50, 80, 100]
    assert {b["batch"]: b["alerts"] for b in report["batches"]} == {monday: [50, 80, 100], tuesday: []}
    told = owner.get(f"/v1/webhooks/{hook}/deliveries").json()
    assert sorted(d["body"]["data"]["percent"] for d in told) == [50, 80, 100]
    assert {d["body"]["data"]["epsilon_spent"] for d in told} == {"0.5", "1"}
    # the spending of a population is not for callers without a key
    assert "epsilon" not in owner.get("/metrics").text
    party.services.database.read("v", party.services.audit.verify)


def test_an_alert_and_its_charge_commit_together(tmp_path: Path) -> None:
    class Crash(BaseException):
        """Stands for SIGKILL."""

    armed = [False]

    def crash(point: str) -> None:
        if armed[0] and point == "release.charge:before-commit":
            raise Crash

    with LabelsParty(tmp_path / "home", faults=crash, worker=False) as party:
        owner = party.client()
        owner.post("/v1/populations", json=POPULATION | {"alert_percent": [50]})
        batch = sealed(owner, "m")
        armed[0] = True
        with pytest.raises(Crash):
            party.charge(batch, "0.6")
        assert alerts(party) == []
        armed[0] = False
        party.charge(batch, "0.6")
        assert alerts(party) == [(batch, 50, "0.6")]
