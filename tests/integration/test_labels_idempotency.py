"""Safe repetition of every call of the labels party: one key, one effect, also for many callers at once."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.support.labels import LabelsParty
from tests.support.labels_api import POPULATION, is_problem, published


def key(value: str) -> dict[str, str]:
    return {"Idempotency-Key": value}


def test_every_effect_can_be_repeated_under_its_key(owner: TestClient, party: LabelsParty) -> None:
    def twice(method: str, path: str, body: Any = None) -> dict[str, Any]:
        first, second = (owner.request(method, path, json=body, headers=key(f"k {path}")) for _ in range(2))
        assert (first.status_code, first.content) == (second.status_code, second.content)
        assert first.status_code < 300, first.text
        assert first.headers.get("location") == second.headers.get("location")
        return dict(first.json())

    shop = twice("POST", "/v1/populations", POPULATION)["id"]
    batch = twice("POST", f"/v1/populations/{shop}/batches", {"presence": "id-list"})["id"]
    assert len(owner.get(f"/v1/populations/{shop}/batches").json()) == 1
    twice("PUT", f"/v1/batches/{batch}/examples", {"example_id": ["a", "b"]})
    twice("POST", f"/v1/batches/{batch}/labels", {"example_id": ["a", "b"], "label": [1, 2]})
    twice("POST", f"/v1/batches/{batch}/seal")
    release = twice("POST", f"/v1/batches/{batch}/releases", {"epsilon": "1"})["id"]
    published(owner, release)
    assert party.spent(batch) == "1"
    # also after the state has moved on
    again = owner.put(
        f"/v1/batches/{batch}/examples", json={"example_id": ["a", "b"]}, headers=key(f"k /v1/batches/{batch}/examples")
    )
    assert (again.status_code, again.json()) == (200, {"batch": batch, "examples": 2})
    again = owner.post(
        f"/v1/batches/{batch}/releases", json={"epsilon": "1"}, headers=key(f"k /v1/batches/{batch}/releases")
    )
    assert again.json()["id"] == release
    assert party.spent(batch) == "1"


def test_another_body_or_path_under_the_same_key_is_refused(owner: TestClient, shop: str, batch: str) -> None:
    body = {"example_id": ["a"], "label": [1]}
    assert owner.post(f"/v1/batches/{batch}/labels", json=body, headers=key("k")).status_code == 200
    for other in ({"example_id": ["a"], "label": [2]}, {"example_id": ["b"], "label": [1]}):
        is_problem(owner.post(f"/v1/batches/{batch}/labels", json=other, headers=key("k")), 422, "idempotency-conflict")
    is_problem(owner.post(f"/v1/batches/{batch}/seal", headers=key("k")), 422, "idempotency-conflict")
    is_problem(
        owner.post("/v1/populations", json=POPULATION | {"name": "y"}, headers=key("k")), 422, "idempotency-conflict"
    )
    assert owner.post(f"/v1/batches/{batch}/labels", json=body, headers=key("k")).status_code == 200


def test_keys_belong_to_the_api_key_that_used_them(party: LabelsParty, owner: TestClient, batch: str) -> None:
    body = {"example_id": ["a"], "label": [1]}
    assert owner.post(f"/v1/batches/{batch}/labels", json=body, headers=key("k")).status_code == 200
    # another caller learns nothing from the key: its call is judged for itself
    stranger = party.client("owner")
    is_problem(stranger.post(f"/v1/batches/{batch}/labels", json=body, headers=key("k")), 409, "duplicate-id")
    other = {"example_id": ["b"], "label": [9]}
    assert stranger.post(f"/v1/batches/{batch}/labels", json=other, headers=key("k")).status_code == 200
    assert owner.post(f"/v1/batches/{batch}/labels", json=body, headers=key("k")).status_code == 200


def test_no_label_can_be_guessed_from_the_memory_of_a_key(party: LabelsParty, batch: str) -> None:
    """The stored MAC is keyed: no column holds a plain hash of an upload."""
    import hashlib

    client = party.client("ingest")
    body = json.dumps({"example_id": ["a"], "label": [7]}).encode()
    client.post(f"/v1/batches/{batch}/labels", content=body, headers=key("k") | {"content-type": "application/json"})
    stored = party.services.database.read("r", lambda c: c.exec_driver_sql("SELECT * FROM idempotency").all())
    assert len(stored) >= 1
    path = f"/v1/batches/{batch}/labels".encode() + b"\0"
    plain = {hashlib.new(kind, data).hexdigest() for kind in ("sha256", "md5", "sha1") for data in (body, path + body)}
    assert not plain & {str(v) for row in stored for v in row}


@pytest.mark.parametrize("bad", ["", "x" * 201, "a\tb"])
def test_keys_are_short_and_printable(bad: str, owner: TestClient, batch: str) -> None:
    answer = owner.post(f"/v1/batches/{batch}/labels", json={"example_id": ["a"], "label": [1]}, headers=key(bad))
    is_problem(answer, 422, "invalid-input")


def test_twenty_identical_uploads_at_once_have_one_effect(party_on: LabelsParty) -> None:
    owner = party_on.client("owner")
    shop = owner.post("/v1/populations", json=POPULATION).json()["id"]
    batch = owner.post(f"/v1/populations/{shop}/batches", json={"presence": "public"}).json()["id"]
    body = {"example_id": [f"c{i}" for i in range(50)], "label": [i % 9 for i in range(50)]}
    with ThreadPoolExecutor(20) as pool:
        answers = list(
            pool.map(lambda _: owner.post(f"/v1/batches/{batch}/labels", json=body, headers=key("k")), range(20))
        )
    assert {a.status_code for a in answers} == {200}
    assert {a.content for a in answers} == {answers[0].content}
    kept = {p.name for p in (party_on.home / "labels" / batch).iterdir()}
    named = party_on.services.database.read(
        "s", lambda c: c.exec_driver_sql("SELECT key FROM segments").scalars().all()
    )
    assert kept == {Path(name).name for name in named}  # losers of the race left nothing behind
    assert owner.post(f"/v1/batches/{batch}/seal").json()["examples"] == 50


def test_twenty_identical_releases_at_once_are_charged_once(party: LabelsParty, owner: TestClient, sealed: str) -> None:
    ask = {"epsilon": "0.5"}
    with ThreadPoolExecutor(20) as pool:
        answers = list(
            pool.map(lambda _: owner.post(f"/v1/batches/{sealed}/releases", json=ask, headers=key("k")), range(20))
        )
    assert {(a.status_code, a.json()["id"]) for a in answers} == {(202, answers[0].json()["id"])}
    published(owner, answers[0].json()["id"])
    assert party.spent(sealed) == "0.5"
    without = [owner.post(f"/v1/batches/{sealed}/releases", json=ask) for _ in range(3)]
    for answer in without:
        is_problem(answer, 409, "already-released")
    assert party.spent(sealed) == "0.5"


def test_uploads_of_many_callers_at_once_all_count(party: LabelsParty, owner: TestClient, batch: str) -> None:
    def send(i: int) -> int:
        ids = [f"c{i}-{j}" for j in range(5)]
        return owner.post(f"/v1/batches/{batch}/labels", json={"example_id": ids, "label": [1] * 5}).status_code

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(send, range(24))) == {200}
    assert owner.post(f"/v1/batches/{batch}/seal").json()["examples"] == 120
