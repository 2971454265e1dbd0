"""An upload of an ingest key that comes again without its `Idempotency-Key` counts nothing and hinders no seal."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import select

from labels_party.storage.tables import set_aside
from tests.support.labels import LabelsParty

LABELS = {"a": 1, "b": 2}


def body_of(labels: dict[str, int], media: str) -> bytes:
    columns = {"example_id": list(labels), "label": list(labels.values())}
    if media == "application/json":
        return json.dumps(columns).encode()
    if media == "text/csv":
        return "\n".join(["example_id,label", *(f"{i},{v}" for i, v in labels.items())]).encode()
    table = pa.table(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


class Desk:
    """An open batch, its owner, and two backends."""

    def __init__(self, party: LabelsParty) -> None:
        self.party, self.owner = party, party.client("owner")
        self.backend, self.other = party.client("ingest"), party.client("ingest")
        body = {"name": "shop", "label": "r", "domain": "0:10", "lifetime_epsilon": "3"}
        self.shop = self.owner.post("/v1/populations", json=body).json()["id"]
        self.batch = self.open()

    def open(self) -> str:
        opened = self.owner.post(f"/v1/populations/{self.shop}/batches", json={"presence": "public"})
        return f"/v1/batches/{opened.json()['id']}"

    def send(self, client: Any, labels: dict[str, int], media: str = "application/json", **params: str) -> Any:
        headers = {"content-type": media}
        answer = client.post(f"{self.batch}/labels", content=body_of(labels, media), params=params, headers=headers)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def decisions(self) -> list[str | None]:
        return [upload["decision"] for upload in self.owner.get(f"{self.batch}/set-aside").json()]

    def seal(self) -> Any:
        return self.owner.post(f"{self.batch}/seal").json()


@pytest.fixture
def desk(lite: LabelsParty) -> Desk:
    return Desk(lite)


@pytest.mark.parametrize("media", ["application/json", "text/csv", "application/vnd.apache.arrow.stream"])
def test_a_repeat_is_answered_alike_and_leaves_the_labels_as_they_are(desk: Desk, media: str) -> None:
    answers = [desk.send(desk.backend, LABELS, media) for _ in range(3)]
    assert answers == [answers[0]] * 3
    assert desk.decisions() == ["repeat", "repeat"]
    assert desk.owner.get(desk.batch).json()["set_aside"] == 0
    assert desk.seal()["examples"] == len(LABELS)


def test_repeats_at_once_are_one_upload(desk: Desk) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: desk.send(desk.backend, LABELS), range(4)))
    assert desk.decisions() == ["repeat"] * 3
    assert desk.seal()["examples"] == len(LABELS)


@pytest.mark.parametrize("what", ["label", "key", "format", "parameters"])
def test_what_differs_in_anything_waits(desk: Desk, what: str) -> None:
    desk.send(desk.backend, LABELS)
    client = desk.other if what == "key" else desk.backend
    labels = LABELS | {"b": 3} if what == "label" else LABELS
    parameters = {"mode": "insert"} if what == "parameters" else {}
    desk.send(client, labels, "text/csv" if what == "format" else "application/json", **parameters)
    assert desk.decisions() == [None]
    assert desk.seal()["code"] == "uploads-set-aside"


def test_what_waits_and_its_repeats_are_decided_as_one(desk: Desk) -> None:
    desk.send(desk.other, {"b": 9})
    for _ in range(3):
        desk.send(desk.backend, LABELS)
    assert desk.decisions() == [None, "repeat", "repeat"]
    first, repeat, _ = (upload["id"] for upload in desk.owner.get(f"{desk.batch}/set-aside").json())
    refused = desk.owner.post(f"{desk.batch}/set-aside/{repeat}", json={"decision": "replace"})
    assert (refused.status_code, "repeats one" in refused.text) == (409, True)
    assert desk.seal()["code"] == "uploads-set-aside"
    desk.owner.post(f"{desk.batch}/set-aside/{first}", json={"decision": "replace"})
    desk.send(desk.owner, {"c": 1})
    assert desk.seal()["examples"] == 3


def test_repeats_are_those_of_one_batch_and_a_sealed_one_keeps_no_mac(desk: Desk) -> None:
    for _ in range(2):
        desk.send(desk.backend, LABELS)
    desk.seal()
    rows = desk.party.services.database.read("t", lambda c: list(c.execute(select(set_aside))))
    assert [(row.decision, row.body_mac) for row in rows] == [("repeat", None)]
    desk.batch = desk.open()
    desk.send(desk.backend, LABELS)
    assert desk.decisions() == []


def test_equal_bytes_of_two_keys_or_batches_are_stored_unequal(desk: Desk) -> None:
    for batch in (desk.batch, desk.open()):
        desk.batch = batch
        for client in (desk.backend, desk.other):
            desk.send(client, LABELS)
    macs = desk.party.services.database.read("t", lambda c: list(c.execute(select(set_aside.c.body_mac)).scalars()))
    assert len({mac for mac in macs if mac}) == 4
