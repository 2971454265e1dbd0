"""`Idempotency-Key` of uploads: one effect, the same answer, another body refused, a call in flight not repeated."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

from labels_party.api import uploads
from labels_party.api.app import create_app
from labels_party.bootstrap import bootstrap
from tests.support.labels import LabelsParty
from tests.support.serving import serving

post = partial(httpx.post, timeout=60)

POPULATION = {"name": "shop", "label": "revenue", "domain": "0:10", "lifetime_epsilon": "3"}
LINES = {"content-type": "application/x-ndjson"}


def open_batch(owner: TestClient) -> str:
    known = [p["id"] for p in owner.get("/v1/populations").json()]
    shop = known[0] if known else owner.post("/v1/populations", json=POPULATION).json()["id"]
    return str(owner.post(f"/v1/populations/{shop}/batches", json={"presence": "public"}).json()["id"])


def rows(party: LabelsParty, table: str) -> list[Any]:
    return list(party.services.database.read("look", lambda c: c.exec_driver_sql(f"SELECT * FROM {table}").all()))


def body(first: int, n: int) -> bytes:
    return json.dumps({"example_id": [f"c{first + i}" for i in range(n)], "label": [i % 9 for i in range(n)]}).encode()


def test_a_hundred_identical_calls_at_once_have_one_effect(party_on: LabelsParty) -> None:
    """Through two applications over the same home and database, as two processes would be."""
    owner = party_on.client("owner")
    batch = open_batch(owner)
    second = bootstrap(party_on.settings)
    headers = {"authorization": owner.headers["authorization"], "Idempotency-Key": "k"}
    path, content = f"/v1/batches/{batch}/labels", body(0, 2000)
    try:
        with serving(owner.app) as one, serving(create_app(second)) as two:

            def send(i: int) -> httpx.Response:
                for _ in range(60):
                    answer = post((one, two)[i % 2] + path, content=content, headers=headers)
                    if answer.status_code != 503:  # more at once than it takes
                        return answer
                    time.sleep(0.2)
                return answer

            with ThreadPoolExecutor(25) as pool:
                answers = list(pool.map(send, range(100)))
            again = post(one + path, content=content, headers=headers)
            other = post(two + path, content=body(5000, 1), headers=headers)
    finally:
        second.close()
    assert {a.status_code for a in answers} <= {200, 409}
    assert {a.json().get("code") for a in answers if a.status_code == 409} <= {"in-flight"}
    assert {a.content for a in answers if a.status_code == 200} == {again.content}
    assert again.json() == {"batch": batch, "accepted": 2000}
    assert (other.status_code, other.json()["code"]) == (422, "idempotency-conflict")
    assert Counter(r[1] for r in rows(party_on, "segments")) == {"labels": 1, "runs": 1}
    kept = {p.name for p in (party_on.home / "labels" / batch).iterdir()}
    assert len(kept) == 2, "the losers' objects are gone"


class Held:
    """An upload whose second half comes when it is let go."""

    def __init__(self, url: str, path: str, headers: dict[str, str]) -> None:
        self.go = threading.Event()
        self._pool = ThreadPoolExecutor(1)

        def halves() -> Iterator[bytes]:
            yield b'{"example_id":"a","label":1}\n' * 1
            self.go.wait(30)
            yield b'{"example_id":"b","label":2}\n'

        self.answer = self._pool.submit(lambda: post(url + path, content=halves(), headers=headers | LINES))


WHOLE = b'{"example_id":"a","label":1}\n{"example_id":"b","label":2}\n'


def test_a_call_in_flight_is_not_repeated_meanwhile(party_on: LabelsParty, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "SOON", 0.05)
    owner = party_on.client("owner")
    batch = open_batch(owner)
    path = f"/v1/batches/{batch}/labels"
    headers = {"authorization": owner.headers["authorization"], "Idempotency-Key": "k"}
    with serving(owner.app) as url:
        first = Held(url, path, headers)
        while not rows(party_on, "idempotency"):
            time.sleep(0.01)
        for content in (WHOLE, b'{"example_id":"z","label":2}\n'):
            meanwhile = post(url + path, content=content, headers=headers | LINES)
            assert (meanwhile.status_code, meanwhile.json()["code"]) == (409, "in-flight"), meanwhile.text
            assert int(meanwhile.headers["retry-after"]) >= 1
        other_key = post(
            url + path, content=b'{"example_id":"q","label":2}\n', headers=headers | LINES | {"Idempotency-Key": "l"}
        )
        assert other_key.status_code == 200
        first.go.set()
        assert first.answer.result().json() == {"batch": batch, "accepted": 2}
        again = post(url + path, content=WHOLE, headers=headers | LINES)
        assert again.content == first.answer.result().content


def test_a_claim_runs_out_when_its_server_died(party_on: LabelsParty, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "SOON", 0.05)
    monkeypatch.setattr(party_on.services.idempotency, "claim_seconds", 0.5)
    owner = party_on.client("owner")
    batch = open_batch(owner)
    path = f"/v1/batches/{batch}/labels"
    headers = {"authorization": owner.headers["authorization"], "Idempotency-Key": "k"}
    with serving(owner.app) as url:
        dead = Held(url, path, headers)
        while not rows(party_on, "idempotency"):
            time.sleep(0.01)
        time.sleep(0.6)
        taken_over = post(url + path, content=WHOLE, headers=headers | LINES)
        assert taken_over.json() == {"batch": batch, "accepted": 2}, taken_over.text
        dead.go.set()  # and where it lives after all it has no second effect
        assert dead.answer.result().content == taken_over.content
    assert Counter(r[1] for r in rows(party_on, "segments")) == {"labels": 1, "runs": 1}


def test_a_caller_who_leaves_leaves_nothing(party: LabelsParty, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "SOON", 0.05)
    owner = party.client("owner")
    batch = open_batch(owner)
    key = owner.headers["authorization"]
    with serving(owner.app) as url:
        host, port = url.removeprefix("http://").split(":")
        import socket

        for media in ("application/x-ndjson", "application/json", "text/csv", "application/vnd.apache.parquet"):
            with socket.create_connection((host, int(port))) as raw:
                head = (
                    f"POST /v1/batches/{batch}/labels HTTP/1.1\r\nHost: x\r\nAuthorization: {key}\r\n"
                    f"Content-Type: {media}\r\nContent-Length: 50000000\r\nIdempotency-Key: {media}\r\n\r\n"
                )
                raw.sendall(head.encode() + b'{"example_id":"a","label":1}\n' * 100_000)
                time.sleep(0.3)
        end = time.monotonic() + 120
        while time.monotonic() < end and (rows(party, "idempotency") or any((party.home / "labels").rglob("*.*"))):
            time.sleep(0.05)
    assert rows(party, "segments") == []
    assert rows(party, "idempotency") == []
    assert [p for p in (party.home / "labels").rglob("*") if p.is_file()] == []
    assert list((party.home / "spill").iterdir()) == []


def test_a_refused_call_may_be_repeated_with_another_body(party_on: LabelsParty) -> None:
    owner = party_on.client("owner")
    batch = open_batch(owner)
    for content, status in ((b'{"example_id":["a"],"label":["x"]}', 422), (body(0, 3), 200), (body(0, 3), 200)):
        headers = {"Idempotency-Key": "k", "content-type": "application/json"}
        answer = owner.post(f"/v1/batches/{batch}/labels", content=content, headers=headers)
        assert answer.status_code == status, answer.text


def test_keys_live_as_long_as_their_batch(party_on: LabelsParty) -> None:
    owner = party_on.client("owner")
    batch, other = open_batch(owner), open_batch(owner)
    for target in (batch, other):
        answer = owner.post(f"/v1/batches/{target}/labels", content=body(0, 3), headers={"Idempotency-Key": target})
        assert answer.status_code == 200
    assert owner.post(f"/v1/batches/{other}/seal").status_code == 200
    gone = owner.delete(f"/v1/batches/{batch}", headers={"Idempotency-Key": "gone"})
    assert (gone.status_code, gone.content) == (204, b"")
    assert owner.delete(f"/v1/batches/{batch}", headers={"Idempotency-Key": "gone"}).status_code == 204
    assert owner.delete(f"/v1/batches/{batch}").status_code == 404
    assert {r[1] for r in rows(party_on, "idempotency")} == {other, "gone"}
    again = owner.post(f"/v1/batches/{other}/labels", content=body(0, 3), headers={"Idempotency-Key": other})
    assert again.json() == {"batch": other, "accepted": 3}  # also after the seal
    assert owner.delete(f"/v1/batches/{other}").status_code == 409


def test_the_mode_and_the_method_are_part_of_the_call(party: LabelsParty) -> None:
    owner = party.client("owner")
    batch = open_batch(owner)
    path, key = f"/v1/batches/{batch}/labels", {"Idempotency-Key": "k"}
    assert owner.post(path, content=body(0, 3), headers=key).status_code == 200
    assert owner.post(path, params={"mode": "upsert"}, content=body(0, 3), headers=key).status_code == 422
    assert owner.request("DELETE", path, json={"example_id": ["c0"]}, headers=key).status_code == 422
