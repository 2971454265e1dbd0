"""Late conversions and refunds before the seal, through REST: what replaces what, and what nobody is told."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pyarrow as pa
import pytest
from fastapi.testclient import TestClient

from labels_party.labels.runs import beyond
from tests.support.labels import LabelsParty
from tests.support.upload_formats import CSV, MEDIA, NDJSON, table_body


class Shop:
    """One population, batches of it, and what they hold."""

    def __init__(self, party: LabelsParty, missing: str | None = "0") -> None:
        self.party, self.owner = party, party.client("owner")
        body = {"name": "shop", "label": "r", "domain": "0:10", "lifetime_epsilon": "3", "missing_label": missing}
        self.id = self.owner.post("/v1/populations", json=body).json()["id"]

    def open(self, presence: str = "public", ids: list[str] | None = None) -> str:
        answer = self.owner.post(f"/v1/populations/{self.id}/batches", json={"presence": presence})
        batch = str(answer.json()["id"])
        if ids is not None:
            assert self.owner.put(f"/v1/batches/{batch}/examples", json={"example_id": ids}).status_code == 200
        return batch

    def send(self, batch: str, labels: dict[str, Any], mode: str = "upsert", client: TestClient | None = None) -> Any:
        body = {"example_id": list(labels), "label": list(labels.values())}
        return (client or self.owner).post(f"/v1/batches/{batch}/labels", params={"mode": mode}, json=body)

    def remove(self, batch: str, ids: list[str]) -> httpx.Response:
        return self.owner.request("DELETE", f"/v1/batches/{batch}/labels", json={"example_id": ids})

    def sealed(self, batch: str) -> dict[str, int]:
        answer = self.owner.post(f"/v1/batches/{batch}/seal")
        assert answer.status_code == 200, answer.text
        return self.party.sealed_positions(batch)


@pytest.fixture
def shop(party_on: LabelsParty) -> Shop:
    return Shop(party_on)


def test_the_last_record_counts_and_null_deletes(shop: Shop) -> None:
    batch = shop.open(ids=["a", "b", "c", "d"], presence="id-list")
    assert shop.send(batch, {"a": 1, "b": 2, "c": 3}, mode="insert").json() == {"batch": batch, "accepted": 3}
    assert shop.send(batch, {"b": 9, "c": None, "d": 4}).json() == {"batch": batch, "accepted": 3}
    assert shop.remove(batch, ["a"]).json() == {"batch": batch, "accepted": 1}
    assert shop.send(batch, {"c": 7}).status_code == 200
    assert shop.sealed(batch) == {"a": 0, "b": 9, "c": 7, "d": 4}


def test_an_id_stays_in_its_batch_whatever_becomes_of_its_label(shop: Shop) -> None:
    batch = shop.open()
    shop.send(batch, {"a": 1, "b": 2})
    assert shop.remove(batch, ["a"]).status_code == 200
    assert shop.send(batch, {"c": None}).status_code == 200
    assert shop.sealed(batch) == {"a": 0, "b": 2, "c": 0}


def test_without_a_missing_label_value_a_deletion_stops_the_seal(party: LabelsParty) -> None:
    shop = Shop(party, missing=None)
    batch = shop.open()
    shop.send(batch, {"a": 1, "b": 2})
    shop.remove(batch, ["a"])
    answer = shop.owner.post(f"/v1/batches/{batch}/seal")
    assert (answer.status_code, answer.json()["code"]) == (409, "missing-labels")
    assert answer.json()["examples_without_label"] == ["a"]
    shop.send(batch, {"a": 5})
    assert shop.sealed(batch) == {"a": 5, "b": 2}


def test_nobody_is_told_whether_an_id_had_a_label(shop: Shop) -> None:
    """Two batches that differ in which ids have labels answer every correction alike."""
    ids = [f"c{i}" for i in range(40)]
    full, empty = shop.open("id-list", ids), shop.open("id-list", ids)
    shop.send(full, dict.fromkeys(ids, 5), mode="insert")
    for act in (
        lambda batch: shop.remove(batch, ids[:20]),
        lambda batch: shop.send(batch, dict.fromkeys(ids[10:30])),
        lambda batch: shop.send(batch, dict.fromkeys(ids[20:], 3)),
        lambda batch: shop.remove(batch, ids),
        lambda batch: shop.remove(batch, ids),
    ):
        answers = [act(batch) for batch in (full, empty)]
        assert answers[0].status_code == answers[1].status_code == 200
        assert answers[0].text.replace(full, "") == answers[1].text.replace(empty, "")
        strip = ("content-length", "content-type")
        assert {h: answers[0].headers[h] for h in strip} == {h: answers[1].headers[h] for h in strip}
    # a plain insert is refused once there was any record, also one that only deleted
    answers = [shop.send(batch, {ids[0]: 1}, mode="insert") for batch in (full, empty)]
    assert [a.json()["code"] for a in answers] == ["duplicate-id"] * 2
    assert {**answers[0].json(), "request_id": 0, "instance": 0} == {
        **answers[1].json(),
        "request_id": 0,
        "instance": 0,
    }


def test_corrections_obey_the_rules_of_every_upload(shop: Shop) -> None:
    batch = shop.open("id-list", ["a", "b"])
    for answer in (
        shop.send(batch, {"stranger": 1}),
        shop.send(batch, {"stranger": None}),
        shop.remove(batch, ["a", "stranger"]),
        shop.remove(batch, ["a", "a"]),
        shop.owner.post(f"/v1/batches/{batch}/labels?mode=upsert", json={"example_id": ["a", "a"], "label": [None, 1]}),
        shop.send(batch, {"a": None}, mode="insert"),
        shop.send(batch, {"a": "x"}),
    ):
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid-rows"), answer.text
    assert shop.send(batch, {"a": 1}, mode="replace").status_code == 422
    assert shop.owner.request("DELETE", f"/v1/batches/{batch}/labels", json={"example_id": []}).status_code == 422
    assert shop.sealed(batch) == {"a": 0, "b": 0}
    for answer in (shop.send(batch, {"a": 1}), shop.remove(batch, ["a"]), shop.owner.delete(f"/v1/batches/{batch}")):
        assert (answer.status_code, answer.json()["code"]) == (409, "conflict")


@pytest.mark.parametrize("form", sorted(MEDIA))
def test_null_is_spelled_in_every_format(form: str, party: LabelsParty) -> None:
    shop = Shop(party)
    batch = shop.open()
    shop.send(batch, {"a": 1, "b": 2, "c": 3, "d": 4})
    columns = {"example_id": ["a", "b", "c", "d"], "label": [None, 7, None, 8]}
    rows = [{"example_id": i, "label": v} for i, v in zip(*columns.values(), strict=True)]
    body = {
        "json-records": json.dumps({"records": rows}).encode(),
        "json-columns": json.dumps(columns).encode(),
        "ndjson": "\n".join(map(json.dumps, rows)).encode(),
        "csv": b'example_id,label\na,\nb,7\nc,""\nd,8\n',
    }.get(form) or table_body(form, pa.table(columns))
    path, media = f"/v1/batches/{batch}/labels", {"content-type": MEDIA[form]}
    refused = shop.owner.post(path, content=body, headers=media)
    assert refused.status_code == 422, "without mode=upsert"
    assert [r["row"] for r in refused.json()["rows"]] == [1, 3]
    answer = shop.owner.post(path, params={"mode": "upsert"}, content=body, headers=media)
    assert answer.json() == {"batch": batch, "accepted": 4}, answer.text
    assert shop.sealed(batch) == {"a": 0, "b": 7, "c": 0, "d": 8}


def test_a_bad_row_among_deletions_is_named_by_its_place(party: LabelsParty) -> None:
    shop = Shop(party)
    body = "".join(f'{{"example_id":"c{i}","label":{"null" if i % 2 else i % 10}}}\n' for i in range(70_000))
    body += '{"example_id":"z","label":"x"}\n'
    answer = shop.owner.post(
        f"/v1/batches/{shop.open()}/labels?mode=upsert", content=body, headers={"content-type": NDJSON}
    )
    assert [(r["row"], r["line"]) for r in answer.json()["rows"]] == [(70_001, 70_001)]
    assert [p for p in (party.home / "labels").rglob("*") if p.is_file()] == []


def test_corrections_at_once_leave_every_id_once(party_on: LabelsParty) -> None:
    shop = Shop(party_on)
    batch = shop.open()
    ids = [f"c{i}" for i in range(200)]

    def correct(i: int) -> int:
        if i % 3 == 0:
            return shop.remove(batch, ids[i % 50 :]).status_code
        return int(shop.send(batch, dict.fromkeys(ids[i % 70 :], i % 10)).status_code)

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(correct, range(40))) == {200}
    assert shop.send(batch, dict.fromkeys(ids, 4)).status_code == 200
    s = party_on.services
    s.intake.compaction.wait()
    runs = s.database.read("look", lambda c: s.batches.segments(c, batch, "runs"))
    assert len(beyond([s.vault.run(r.key) for r in runs], [])[0]) == 200
    assert len(runs) <= 7 * 2  # sizes of 130 and more, and eight of those together
    assert shop.sealed(batch) == dict.fromkeys(ids, 4)


def test_ingest_may_correct_but_not_discard(party: LabelsParty) -> None:
    shop = Shop(party)
    batch, ingest = shop.open(), party.client("ingest")
    assert shop.send(batch, {"a": 1}, client=ingest).status_code == 200
    deleted = ingest.request(
        "DELETE", f"/v1/batches/{batch}/labels", content="example_id\na\n", headers={"content-type": CSV}
    )
    assert deleted.status_code == 200
    assert ingest.delete(f"/v1/batches/{batch}").status_code == 404
    assert shop.owner.delete(f"/v1/batches/{batch}").status_code == 204
    assert shop.owner.get(f"/v1/batches/{batch}").status_code == 404
    assert [p for p in (party.home / "labels").rglob("*") if p.is_file()] == []
    assert shop.send(batch, {"a": 1}).status_code == 404


def test_many_small_uploads_leave_few_runs(party: LabelsParty) -> None:
    """Their number grows with the logarithm of the number of uploads."""
    shop = Shop(party)
    batch = shop.open()
    table = pa.table({"example_id": [f"c{i}" for i in range(200)], "label": [1] * 200})
    for i in range(200):
        party.services.intake.add_labels(batch, table.slice(i, 1), owner=True)
    s = party.services
    runs = s.database.read("look", lambda c: s.batches.segments(c, batch, "runs"))
    assert len(runs) <= 7 * 3
    assert sum(r.rows for r in runs) == 200
    assert shop.send(batch, {"c5": 1}, mode="insert").status_code == 409
