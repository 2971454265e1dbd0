"""Remembered calls are bounded in age and number at both parties, and what charged a batch is never forgotten early."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from features_party.storage import tables as features_tables
from label_dp.store import idempotency as calls
from label_dp.store.database import Database
from labels_party.storage.tables import idempotency as t
from tests.support.features_api import running
from tests.support.labels import LabelsParty, label_table
from tests.support.labels_api import POPULATION
from tests.support.messages import Sender

ASKED = {"epsilon": "0.5", "mechanism": "rr-on-bins", "additional_release": True}


def remembered(party: LabelsParty, batch: str | None) -> int:
    query = sa.select(sa.func.count()).select_from(t).where(t.c.batch == batch)
    return int(party.services.database.read("test", lambda c: c.execute(query).scalar_one()))


def age(party: LabelsParty, seconds: float) -> None:
    party.services.database.write(
        "test", lambda c: c.execute(sa.update(t).values(created=time.time() - seconds)) and None
    )


def post(client: TestClient, path: str, key: str, body: Any = None) -> Any:
    answer = client.post(path, json=body, headers={"Idempotency-Key": key})
    assert answer.status_code < 300, answer.text
    return answer.json()


@pytest.fixture
def party(database_url: str, tmp_path: Path) -> Any:
    with LabelsParty(tmp_path / "home", database_url=database_url, worker=False) as found:
        yield found


def test_calls_outside_of_batches_are_bounded_in_number(party: LabelsParty, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "MOST", 5)
    owner = party.client()
    made = [post(owner, "/v1/populations", f"k{i}", POPULATION | {"name": f"p{i}"})["id"] for i in range(12)]
    assert remembered(party, None) == 5
    assert post(owner, "/v1/populations", "k11", POPULATION | {"name": "p11"})["id"] == made[11]
    again = owner.post("/v1/populations", json=POPULATION | {"name": "p0"}, headers={"Idempotency-Key": "k0"})
    assert again.status_code == 409  # a new call, which finds what the first one made
    other = party.client()  # each key has room of its own
    post(other, "/v1/populations", "k", POPULATION | {"name": "other"})
    assert remembered(party, None) == 6


def test_calls_outside_of_batches_are_forgotten_after_a_month(party: LabelsParty) -> None:
    owner, batch = party.client(), party.sealed_batch(label_table(30))
    post(owner, "/v1/populations", "k", POPULATION | {"name": "p"})
    post(owner, f"/v1/batches/{batch}/releases", "r", ASKED)
    age(party, calls.KEPT_SECONDS - 60)
    party.services.retention.run_due()
    assert (remembered(party, None), remembered(party, batch)) == (1, 1)
    age(party, calls.KEPT_SECONDS + 60)
    party.services.retention.run_due()
    assert (remembered(party, None), remembered(party, batch)) == (0, 1)


def test_looking_for_what_is_old_writes_nothing_where_nothing_is(
    party: LabelsParty, monkeypatch: pytest.MonkeyPatch
) -> None:
    post(party.client(), "/v1/populations", "k", POPULATION | {"name": "p"})
    written: list[str] = []
    write = Database.write

    def noted(self: Database, name: str, work: Any) -> Any:
        written.append(name)
        return write(self, name, work)

    monkeypatch.setattr(Database, "write", noted)
    assert calls.forget_old(party.services.database, t) == 0
    assert written == []
    age(party, calls.KEPT_SECONDS + 60)
    assert calls.forget_old(party.services.database, t) == 1


def test_a_call_that_charged_is_never_charged_again(party: LabelsParty, monkeypatch: pytest.MonkeyPatch) -> None:
    """However old it is, and however many calls came after it; after a purge there are no labels to charge."""
    monkeypatch.setattr(calls, "MOST_OF_BATCH", 3)
    owner, batch = party.client(), party.sealed_batch(label_table(30), lifetime="3")
    charging = {
        "release": (f"/v1/batches/{batch}/releases", ASKED),
        "median": (f"/v1/batches/{batch}/medians", {"epsilon": "0.5", "additional_release": True}),
    }
    first = {key: post(owner, path, key, body)["id"] for key, (path, body) in charging.items()}
    assert party.spent(batch) == "1"
    for i in range(9):
        answer = owner.put(
            f"/v1/batches/{batch}/calibration-allowance",
            json={"epsilon": "1"},
            headers={"Idempotency-Key": f"a{i}"},
        )
        assert answer.status_code == 200
    assert remembered(party, batch) == 2 + 3
    age(party, 10 * calls.KEPT_SECONDS)
    party.services.retention.run_due()
    for key, (path, body) in charging.items():
        assert post(owner, path, key, body)["id"] == first[key]
    assert party.spent(batch) == "1"
    assert party.services.pipeline.run(first["release"])
    assert party.services.pipeline.run(first["median"])
    assert owner.post(f"/v1/batches/{batch}/purge").status_code == 200
    assert remembered(party, batch) == 0
    for key, (path, body) in charging.items():
        assert owner.post(path, json=body, headers={"Idempotency-Key": key}).status_code == 409
    assert party.spent(batch) == "1"


def test_the_features_party_remembers_no_more_and_no_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "MOST", 4)
    with running(tmp_path, Sender()) as api:
        known, database, memory = features_tables.idempotency, api.services.database, api.services.idempotency

        def stamp(key: str, when: float) -> None:
            database.write("t", lambda c: c.execute(sa.update(known).filter_by(key=key).values(created=when)) and None)

        def keys() -> set[str]:
            return set(database.read("t", lambda c: c.execute(sa.select(known.c.key)).scalars()))

        def call(key: str) -> calls.IdempotentCall:
            return memory.call("caller", key, "POST /x", lambda: b"body")

        for i in range(12):
            call(f"k{i}").keep((202, {}))
            stamp(f"k{i}", time.time() - 100 + i)
        calls.Claim(call("flying")).take()
        assert keys() == {"k8", "k9", "k10", "k11", "flying"}
        for key in keys():
            stamp(key, time.time() - calls.KEPT_SECONDS - 60)
        # whatever is asked under a key forgets what is old
        body = {"feature_table": "none", "messages": ["none"]}
        assert api.trainer.post("/v1/trainings", json=body, headers={"Idempotency-Key": "new"}).status_code == 404
        assert keys() == set()
