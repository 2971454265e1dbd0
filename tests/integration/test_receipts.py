"""Receipts over HTTP: kept once, refused where they do not fit, delivered after an outage, sent by both doors."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from features_party.api.app import create_app
from features_party.receive.labels_service import LabelsService
from label_dp import errors
from label_dp.audit.events import RECEIVED, Event
from label_dp.audit.receipts import ReceiptChain
from label_dp.documents.receipt import Receipt, open_receipt, public_key_text, read_public_key
from label_dp.documents.signing import SigningKey
from label_dp.store.migrations import append_only_drop
from labels_party.storage.tables import receipts
from labels_party.work.kind import RELEASES
from labels_party.work.receipts import ReceiptBook, receipt_key
from tests.support.labels import label_table
from tests.support.labels_api import is_problem
from tests.support.receipts import Away, Pair, accept, changed, first_receipt, pair

pytestmark = pytest.mark.extended


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Pair]:
    with pair(tmp_path) as started:
        yield started


def kept(both: Pair) -> list[Event]:
    return [e for e in both.labels_events() if e.kind == RECEIVED]


def test_a_pull_is_accounted_for_and_acknowledged(tmp_path: Path, database_url: str) -> None:
    with pair(tmp_path, database_url=database_url) as both:
        first, second = both.release(), both.release()
        assert both.pull(first).as_json() == {"delivered": 1, "problem": None}
        assert both.pull(second).delivered == 1
        events = kept(both)
        assert [e.subject.work for e in events] == [first, second]
        assert all(e.split.total.nano == 0 and e.audiences == ("features-party",) for e in events)
        opened = [open_receipt(e.details["receipt"], both.receiver.key.public) for e in events]
        assert [r.position for r in opened] == [1, 2]
        assert opened[1].previous == opened[0].digest
        accepted = [e for e in both.receiver.events() if e.kind == "message-accepted"]
        assert [e.time for e in accepted] == [r.accepted for r in opened]
        assert both.pull(second).sentence == "receipts: all were delivered before"
        assert len(kept(both)) == 2
        assert both.labels.spent(str(events[0].subject.batch)) == "1"
        both.labels.services.database.read("test", both.labels.services.receipts.check)


def test_receipts_hold_nothing_but_public_facts(both: Pair) -> None:
    both.pull()
    (event,) = kept(both)
    receipt = open_receipt(event.details["receipt"], both.receiver.key.public)
    members = {
        "format",
        "document_id",
        "document_digest",
        "labels_key_id",
        "audience",
        "accepted",
        "position",
        "previous",
        "chain_head",
    }
    assert set(receipt.document()) == members


def test_without_a_registered_key_nothing_is_stored_and_that_is_told(tmp_path: Path) -> None:
    with pair(tmp_path, registered=False) as both:
        said = both.pull()
        assert said.delivered == 0
        assert "--receipt-key" in str(said.problem)
        assert kept(both) == []
        release, envelope = both.receiver.receipts()[0]
        answer = client(both).post(f"/v1/releases/{release}/receipt", json=envelope)
        is_problem(answer, 409, "no-receipt-key")
        no_envelope = {"payload": 1 << 60}  # a number that canonical JSON has none of
        is_problem(client(both).post(f"/v1/releases/{release}/receipt", json=no_envelope), 409, "no-receipt-key")
        found = both.receiver.compare(both.labels_export())
        assert found["agrees"]
        assert "no receipt key" in found["notes"][0]
        both.register()  # what was accepted before is delivered with the next pull
        is_problem(client(both).post(f"/v1/releases/{release}/receipt", json=no_envelope), 422, "malformed-receipt")
        assert both.pull().delivered == 2


def test_delivery_is_tried_again_after_an_outage(both: Pair) -> None:
    said = accept(both, both.release()).acknowledge(Away())
    assert said is not None
    assert "the next pull tries again" in said.sentence
    assert "\n" not in said.sentence
    assert kept(both) == []
    assert both.pull().delivered == 2
    assert [e.details["position"] for e in kept(both)] == [1, 2]


def test_gaps_are_asked_for_and_filled(both: Pair) -> None:
    for _ in range(3):
        accept(both, both.release())
    _, (release, second), _ = both.receiver.receipts()
    reader = client(both)
    assert reader.post(f"/v1/releases/{release}/receipt", json=second).status_code == 201
    (state,) = reader.get("/v1/receipts").json()["keys"]
    assert (state["last"], state["missing"]) == (2, [1])
    assert both.pull().delivered == 3
    assert reader.get("/v1/receipts").json()["keys"][0] | {"digest": ""} == {
        "key_id": both.receiver.key.public.id, "last": 4, "digest": "", "missing": [],
        "labels_key_id": both.labels.services.key.public.id,
    }  # fmt: skip
    assert client(both, "nobody").get("/v1/receipts").json() == {"audience": "nobody", "keys": []}
    assert all(found["agrees"] and not found["notes"] for found in both.compare_both())


def client(both: Pair, audience: str = "features-party") -> TestClient:
    return both.labels.client("features", audience)


def send(both: Pair, release: str, receipt: Receipt, key: SigningKey | None = None, by: str = "features-party") -> Any:
    envelope = receipt.signed(key or both.receiver.key)
    return client(both, by).post(f"/v1/releases/{release}/receipt", json=envelope)


@pytest.fixture
def waiting(both: Pair) -> tuple[str, Receipt]:
    """A published release and the right receipt of it, not delivered."""
    release = both.release()
    manifest = both.labels.state(release).sha256
    labels_key = both.labels.services.key.public.id
    return release, first_receipt(release, str(manifest), labels_key)


WRONG: dict[str, tuple[Callable[[Receipt], Receipt], str]] = {
    "another release": (lambda r: changed(r, document_id="rel_0"), "another release"),
    "another manifest": (lambda r: changed(r, document_digest="1" * 64), "another manifest"),
    "another labels party": (lambda r: changed(r, labels_key_id="ed25519:" + "0" * 64), "another labels party"),
    "another audience": (lambda r: changed(r, audience="somebody"), "another audience"),
    "no time": (lambda r: changed(r, accepted="yesterday"), "is malformed"),
    "position 0": (lambda r: changed(r, position=0), "is malformed"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_signed_receipt_that_does_not_fit_is_refused(both: Pair, waiting: tuple[str, Receipt], name: str) -> None:
    release, receipt = waiting
    change, says = WRONG[name]
    answer = send(both, release, change(receipt))
    is_problem(answer, 422, "malformed-receipt")
    assert says in answer.json()["detail"]
    assert kept(both) == []
    assert send(both, release, receipt).status_code == 201


def test_wrong_keys_foreign_audiences_and_damaged_envelopes_are_refused(
    both: Pair, waiting: tuple[str, Receipt]
) -> None:
    release, receipt = waiting
    is_problem(send(both, release, receipt, SigningKey.generate()), 422, "signature-invalid")
    is_problem(send(both, release, receipt, by="somebody"), 404, "not-found")
    is_problem(send(both, "rel_none", receipt), 404, "not-found")
    whole = receipt.signed(both.receiver.key)
    reader = client(both)
    for damaged in (
        whole | {"payloadType": "application/vnd.label-dp.manifest+json"},
        whole | {"signatures": []},
        whole | {"signatures": [{**whole["signatures"][0], "sig": "AAAA"}]},
        whole | {"payload": whole["payload"][:-4]},
        whole | {"more": 1.5},
        {},
    ):
        answer = reader.post(f"/v1/releases/{release}/receipt", json=damaged)
        assert answer.status_code == 422, answer.text
        assert answer.json()["code"] in ("malformed-receipt", "signature-invalid")
    assert reader.post(f"/v1/releases/{release}/receipt").status_code == 422
    unpublished = both.labels.charge(both.labels.sealed_batch(label_table(5, prefix="few")))
    is_problem(send(both, unpublished, changed(receipt, document_id=unpublished)), 409, "conflict")
    assert kept(both) == []


def test_replays_are_harmless_and_second_histories_refused(both: Pair, waiting: tuple[str, Receipt]) -> None:
    release, receipt = waiting
    first = send(both, release, receipt)
    again = send(both, release, receipt)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json()
    # the same release accepted again, by a store that forgot the first time
    later = changed(receipt, accepted="2030-01-02")
    is_problem(send(both, release, later), 409, "receipt-conflict")
    second = both.release()
    manifest = both.labels.state(second).sha256
    other = changed(receipt, document_id=second, document_digest=manifest)
    is_problem(send(both, second, other), 409, "receipt-conflict")  # position 1 is taken
    unlinked = changed(other, position=2, previous="1" * 64)
    answer = send(both, second, unlinked)
    is_problem(answer, 409, "receipt-conflict")
    assert "rolled back" in answer.json()["detail"]
    # the receipt of one release sent for another
    is_problem(send(both, second, receipt), 422, "malformed-receipt")
    assert send(both, second, changed(other, position=2, previous=receipt.digest)).status_code == 201
    assert len(kept(both)) == 2


def test_over_rest_the_receipt_goes_with_the_message(both: Pair) -> None:
    release = both.release()
    services = both.receiver.services
    with TestClient(create_app(services), raise_server_exceptions=False) as app:
        key = services.apikeys.create("trainer")[1]
        body = {"url": both.url, "release": release, "api_key": both.api_key}
        answer = app.post("/v1/messages", json=body, headers={"Authorization": f"Bearer {key}"})
        assert answer.status_code == 201, answer.text
        assert [e.subject.work for e in kept(both)] == [release]


def test_a_receipt_key_is_a_pem_file_or_base64(both: Pair) -> None:
    key, path = both.receiver.key.public, both.receiver.services.home.public_key
    assert receipt_key(str(path)).id == key.id
    assert read_public_key(public_key_text(key)).id == receipt_key(public_key_text(key)).id == key.id
    for wrong in ("no-such-file", "AAAA", str(both.folder)):
        with pytest.raises(errors.InvalidInput):
            receipt_key(wrong)


def test_the_table_of_receipts_is_append_only(tmp_path: Path, database_url: str) -> None:
    with pair(tmp_path, database_url=database_url) as both:
        both.pull()
        both.pull()
        labels = both.labels.services
        labels.database.read("test", labels.receipts.check)
        for statement in (sa.update(receipts).values(position=9), sa.delete(receipts)):
            with pytest.raises((sa.exc.DBAPIError, errors.Unavailable)):
                labels.database.write("test", lambda c, s=statement: c.execute(s) and None)  # type: ignore[misc]  # bound now
        assert both.pull().delivered == 1
        assert [e.details["position"] for e in kept(both)] == [1, 2, 3]


def test_a_table_of_receipts_that_lost_a_row_is_noticed(both: Pair) -> None:
    both.pull()
    labels = both.labels.services

    def damage(connection: sa.Connection) -> None:
        for statement in append_only_drop("sqlite", "receipts"):
            connection.execute(sa.text(statement))
        connection.execute(sa.delete(receipts))

    labels.database.write("test", damage)
    with pytest.raises(errors.AuditChainBroken, match="receipts"):
        labels.database.read("test", labels.receipts.check)


def test_many_at_once_keep_one_receipt(tmp_path: Path, database_url: str) -> None:
    with pair(tmp_path, database_url=database_url) as both:
        release = both.release()
        accept(both, release)
        _, envelope = both.receiver.receipts()[0]
        book = both.labels.services.receipts
        with ThreadPoolExecutor(8) as pool:
            found = list(
                pool.map(lambda _: book.keep(release, envelope, "features-party", "test", RELEASES)[0], range(16))
            )
        assert sorted(found) == [False] * 15 + [True]
        assert len(kept(both)) == 1


def test_a_new_signing_key_of_the_labels_party_begins_a_new_list(both: Pair) -> None:
    both.pull()
    services, release, new = both.labels.services, both.release(), SigningKey.generate().public
    manifest = both.labels.state(release).sha256
    first = first_receipt(release, str(manifest), new.id)
    book = ReceiptBook(services.work, services.audit, new)
    assert book.keep(release, first.signed(both.receiver.key), "features-party", "test", RELEASES) == (True, first)
    assert [state["last"] for state in book.state("features-party")] == [1]
    assert len(ReceiptChain.of(both.labels_events(), new).received) == 2
    services.database.read("test", book.check)


HOSTILE: dict[str, Any] = {
    "no JSON": b"<html>",
    "a list": [],
    "no keys": {"audience": "features-party"},
    "a key that is no object": {"keys": [1]},
    "a last that is text": {"keys": [{"key_id": "KEY", "last": "1", "digest": "0" * 64, "missing": []}]},
    "a last below zero": {"keys": [{"key_id": "KEY", "last": -1, "digest": None, "missing": []}]},
    "no digest": {"keys": [{"key_id": "KEY", "last": 1, "digest": None, "missing": []}]},
    "a missing one that is text": {"keys": [{"key_id": "KEY", "last": 0, "digest": None, "missing": ["x"]}]},
    "too many missing": {"keys": [{"key_id": "KEY", "last": 0, "digest": None, "missing": [1] * 1001}]},
    "a receipt that we never gave": {"keys": [{"key_id": "KEY", "last": 1 << 52, "digest": "0" * 64, "missing": [7]}]},
    "keys of others only": {"keys": [{"key_id": "ed25519:0", "last": 0, "digest": None, "missing": []}]},
    "an older version's 404": None,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_whatever_a_labels_party_answers_delivery_is_one_line(both: Pair, name: str) -> None:
    both.pull()
    answer = HOSTILE[name]
    own = both.receiver.key.public.id

    def handle(request: httpx.Request) -> httpx.Response:
        if answer is None:
            return httpx.Response(404, json={"detail": "There is no such thing.\n\x1b[2J"})
        if isinstance(answer, bytes):
            return httpx.Response(200, content=answer)
        return httpx.Response(200, text=json.dumps(answer).replace("KEY", own))

    transport = httpx.MockTransport(handle)
    with LabelsService("http://labels", "secret", transport=transport, sleep=lambda _s: None) as service:
        said = both.receiver.services.receipts.deliver(service, both.labels.services.key.public.id)
    assert said.delivered == 0
    assert said.problem
    assert said.sentence.isprintable()
    assert "secret" not in said.sentence
