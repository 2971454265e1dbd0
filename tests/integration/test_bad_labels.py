"""Bad labels, through every door: a clear problem that names row and rule and never the value, and nothing half-stored.

`offending` texts are searched for in replies and in captured logs (invariants 1 and 8); they are such that the random
hexadecimal ids in both cannot hold them.
"""

from __future__ import annotations

import io
import json
import logging
import math
import random
import re
import struct
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from labels_party.cli import app as command_line
from labels_party.labels.seal import SameExamples
from shared.errors import LabelDPError, OverlappingBatch
from shared.message.bundle import verify
from shared.message.parquet import read_message
from tests.support.labels import LabelsParty

PARQUET = "application/vnd.apache.parquet"
JSON = "application/json"
CSV = "text/csv"


def parquet(**columns: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue()


class Desk:
    """An open batch of a population with the rule `refuse`, and everything that a refusal must leave alone."""

    def __init__(self, party: LabelsParty, caplog: pytest.LogCaptureFixture) -> None:
        self.party, self.log = party, caplog
        self.client: TestClient = party.client("owner")
        self.population = self.make("shop", out_of_domain="refuse")
        self.batch = self.open(self.population)

    def make(self, name: str, **rules: Any) -> str:
        body = {"name": name, "label": "revenue", "domain": "0:100", "lifetime_epsilon": "2"} | rules
        answer = self.client.post("/v1/populations", json=body)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    def open(self, population: str, presence: str = "public") -> str:
        return str(self.client.post(f"/v1/populations/{population}/batches", json={"presence": presence}).json()["id"])

    def labels(self, content: bytes, media: str = JSON, batch: str | None = None) -> httpx.Response:
        path = f"/v1/batches/{batch or self.batch}/labels"
        return self.client.post(path, content=content, headers={"content-type": media})

    def send(self, ids: list[Any], labels: list[Any], batch: str | None = None) -> httpx.Response:
        return self.labels(json.dumps({"example_id": ids, "label": labels}).encode(), batch=batch)

    def state(self) -> tuple[Any, ...]:
        """Batches, segments, ledger and the folder of labels."""
        database, root = self.party.services.database, self.party.home / "labels"
        stored = [
            database.read("look", lambda c, t=table: c.exec_driver_sql(f"SELECT * FROM {t}").all())
            for table in ("batches", "segments", "releases", "audit_events", "idempotency")
        ]
        files = sorted((str(p.relative_to(root)), p.read_bytes()) for p in root.rglob("*") if p.is_file())
        spill = sorted(str(p) for p in (self.party.home / "spill").rglob("*"))
        return *stored, files, spill

    def refused(self, answer: httpx.Response, code: str, *offending: str, status: int = 422) -> dict[str, Any]:
        assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
        assert answer.headers["content-type"] == "application/problem+json"
        for text in offending:
            assert text not in answer.text, text
            assert text not in self.log.text, text
        return dict(answer.json())


@pytest.fixture
def desk(party: LabelsParty, caplog: pytest.LogCaptureFixture) -> Iterator[Desk]:
    with caplog.at_level(logging.DEBUG):
        yield Desk(party, caplog)


# --- one bad label among good ones -------------------------------------------------------------------------

NUMBER = "must be a number"
FINITE = "must be a finite number"
OUTSIDE = "outside the label domain"

JSON_LABELS = [
    ("NaN", FINITE),
    ("Infinity", FINITE),
    ("-Infinity", FINITE),
    ("1e400", FINITE),
    ("1" + "0" * 400, FINITE),
    ("-1" + "0" * 400, FINITE),
    ('"7319462851.625"', NUMBER),
    ('"seven-319462851"', NUMBER),
    ("true", NUMBER),
    ("false", NUMBER),
    ("null", NUMBER),
    ("[7319462851]", NUMBER),
    ('{"deep":7319462851}', NUMBER),
    ("[[[[7319462851]]]]", NUMBER),
    ("1.5e308", OUTSIDE),
    ("-1.5e308", OUTSIDE),
    ("-5e-324", OUTSIDE),
    ("7319462851.625", OUTSIDE),
    ("-7319462851", OUTSIDE),
    ("100.00000000000001", OUTSIDE),
]


@pytest.mark.parametrize(("text", "rule"), JSON_LABELS)
def test_a_bad_json_label_is_named_by_row_and_rule(text: str, rule: str, desk: Desk) -> None:
    before = desk.state()
    records = ",".join(f'{{"example_id":"c{i}","label":{text if i == 3 else i}}}' for i in range(6))
    columns = f'{{"example_id":["c0","c1","c2","c3"],"label":[0,1,2,{text}]}}'
    for body in (f'{{"records":[{records}]}}', columns):
        problem = desk.refused(
            desk.labels(body.encode()), "invalid-rows", "7319462851", "1.5e308", "5e-324", "100.0000", "0" * 30
        )
        assert problem["rejected"] == 1
        (row,) = problem["rows"]
        assert (row["row"], row["field"]) == (3, "label")
        assert rule in row["rule"]
        assert "Row 3" in problem["detail"]
    assert desk.state() == before


CSV_LABELS = [
    ("nan", FINITE),
    ("inf", FINITE),
    ("-inf", FINITE),
    ("Infinity", FINITE),
    ("1e400", FINITE),
    ("seven319462851", NUMBER),
    ("7319462851;5", NUMBER),
    ("0x7319462851", NUMBER),
    ("7319_462851", NUMBER),
    ("true", NUMBER),
    ("", NUMBER),
    ('""', NUMBER),
    ("NA", NUMBER),
    ("null", NUMBER),
    ("7319462851.625", OUTSIDE),
    ("-0.5", OUTSIDE),
    ("1.5e308", OUTSIDE),
]


@pytest.mark.parametrize(("text", "rule"), CSV_LABELS)
def test_a_bad_csv_label_is_named_by_row_and_rule(text: str, rule: str, desk: Desk) -> None:
    before = desk.state()
    lines = "\n".join(f"c{i},{text if i == 2 else i}" for i in range(5))
    problem = desk.refused(
        desk.labels(f"example_id,label\n{lines}\n".encode(), CSV),
        "invalid-rows",
        "7319462851",
        "7319_462851",
        "1.5e308",
    )
    assert [(r["row"], r["field"]) for r in problem["rows"]] == [(2, "label")]
    assert rule in problem["rows"][0]["rule"]
    assert desk.state() == before


PARQUET_LABELS: list[tuple[Any, str, str]] = [
    (pa.array([1.0, math.nan]), "invalid-rows", FINITE),
    (pa.array([1.0, math.inf]), "invalid-rows", FINITE),
    (pa.array([1.0, -math.inf]), "invalid-rows", FINITE),
    (pa.array([1.0, None]), "invalid-rows", NUMBER),
    (pa.array([1.0, 1.5e308]), "invalid-rows", OUTSIDE),
    (pa.array([1, 7319462851]), "invalid-rows", OUTSIDE),
    (pa.array([1, -1319462851], pa.int32()), "invalid-rows", OUTSIDE),
    (pa.array([1, 2**64 - 1], pa.uint64()), "invalid-rows", OUTSIDE),
    (pa.array(["1", "seven7319462851"]), "invalid-rows", NUMBER),
    (pa.array(["1", None]), "invalid-rows", NUMBER),
    (pa.array([1, 7319462851]).cast(pa.decimal128(30, 2)), "invalid-rows", OUTSIDE),
    (pa.array(["1", "7319462851"]).dictionary_encode(), "invalid-rows", OUTSIDE),
    (pa.array([1.0, 60000.0], pa.float16()), "invalid-rows", OUTSIDE),
    (pa.array([True, False]), "invalid-table", "numbers"),
    (pa.array([[1], [7319462851]]), "invalid-table", "numbers"),
    (pa.array([{"a": 1}, {"a": 7319462851}]), "invalid-table", "numbers"),
    (pa.array([b"1", b"7319462851"]), "invalid-table", "numbers"),
    (pa.array([1, 7319462851], pa.timestamp("s")), "invalid-table", "numbers"),
]


@pytest.mark.parametrize(("column", "code", "rule"), PARQUET_LABELS)
def test_a_bad_parquet_label_is_named_by_row_and_rule(column: Any, code: str, rule: str, desk: Desk) -> None:
    before = desk.state()
    problem = desk.refused(
        desk.labels(parquet(example_id=["a", "b"], label=column), PARQUET),
        code,
        "319462851",
        "60000.",
        "18446744073709551615",
    )
    assert rule in problem["detail"]
    if code == "invalid-rows":
        assert problem["rows"][0]["row"] == 1
    assert desk.state() == before


@pytest.mark.parametrize("label", [-0.0, 0.0, 5e-324, 2.2e-308, 99.99999999999999, 100.0])
def test_odd_but_good_labels_are_taken(label: float, desk: Desk) -> None:
    assert desk.send(["a"], [label]).json() == {"batch": desk.batch, "accepted": 1}
    assert desk.labels(parquet(example_id=["b"], label=[label]), PARQUET).status_code == 200


def test_only_twenty_bad_rows_are_listed_but_all_are_counted(desk: Desk) -> None:
    problem = desk.refused(desk.send([f"c{i}" for i in range(500)], [7319462851] * 500), "invalid-rows", "7319462851")
    assert (problem["rejected"], len(problem["rows"])) == (500, 20)


# --- ids ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", ["", None, 1.5, True, ["a"], {"a": 1}, "x" * 513, "\ud800"])
def test_a_bad_id_is_named_by_row(bad: Any, desk: Desk) -> None:
    before = desk.state()
    problem = desk.refused(desk.send(["a", bad], [73.194, 73.194]), "invalid-rows", "x" * 50, "73.194")
    assert [(r["row"], r["field"]) for r in problem["rows"]] == [(1, "example_id")]
    assert desk.state() == before


def test_an_id_twice_in_one_upload_is_refused_whatever_its_labels_say(desk: Desk) -> None:
    before = desk.state()
    answers = [desk.send(["a", "b", "a"], [7, 8, again]) for again in (7, 9)]
    for answer in answers:
        assert [r["row"] for r in desk.refused(answer, "invalid-rows")["rows"]] == [2]
    assert answers[0].content == answers[1].content
    assert desk.state() == before


def test_a_number_and_its_text_are_one_id(desk: Desk) -> None:
    desk.refused(desk.send([7, "7"], [1, 2]), "invalid-rows")


def test_an_id_again_in_another_upload_is_refused_whatever_its_label_says(desk: Desk) -> None:
    assert desk.send(["a", "b"], [7, 8]).status_code == 200
    before = desk.state()
    answers = [desk.send(["c", "b"], [1, again]) for again in (8, 9)]
    for answer in answers:
        problem = desk.refused(answer, "duplicate-id", status=409)
        assert [(r["row"], r["field"]) for r in problem["rows"]] == [(1, "example_id")]
    assert answers[0].content == answers[1].content
    assert desk.state() == before


def test_an_id_that_is_not_listed_is_refused(desk: Desk) -> None:
    batch = desk.open(desk.population, "id-list")
    assert desk.client.put(f"/v1/batches/{batch}/examples", json={"example_id": ["a", "b"]}).status_code == 200
    before = desk.state()
    problem = desk.refused(desk.send(["a", "stranger-73"], [1, 73.194], batch), "invalid-rows", "stranger-73", "73.194")
    assert [r["row"] for r in problem["rows"]] == [1]
    assert desk.state() == before


# --- uploads of the wrong shape ----------------------------------------------------------------------------

GOOD = parquet(example_id=["a", "b"], label=[1.0, 73.194])
SHAPES: list[tuple[str, bytes, str, str]] = [
    ("empty json", b"", JSON, "invalid-file"),
    ("half json", b'{"records":[', JSON, "invalid-file"),
    ("a list", b'[{"example_id":"a","label":7319462851}]', JSON, "invalid-file"),
    ("no rows", b'{"records":[]}', JSON, "invalid-file"),
    ("no rows in columns", b'{"example_id":[],"label":[]}', JSON, "invalid-file"),
    ("lists of unequal length", b'{"example_id":["a"],"label":[1,7319462851]}', JSON, "invalid-file"),
    ("another member", b'{"example_id":["a"],"label":[1],"secret":[7319462851]}', JSON, "invalid-file"),
    ("records and more", b'{"records":[],"label":[7319462851]}', JSON, "invalid-file"),
    ("a record with more", b'{"records":[{"example_id":"a","label":1,"x":7319462851}]}', JSON, "invalid-rows"),
    ("a record with less", b'{"records":[{"label":7319462851}]}', JSON, "invalid-rows"),
    ("a record that is none", b'{"records":[7319462851]}', JSON, "invalid-rows"),
    ("not utf-8", b'{"example_id":["\xff"],"label":[7319462851]}', JSON, "invalid-file"),
    ("too deep", b'{"records":' + b"[" * 100_000, JSON, "invalid-file"),
    ("empty parquet", b"", PARQUET, "invalid-file"),
    (
        "parquet without rows",
        parquet(example_id=pa.array([], pa.string()), label=pa.array([], pa.float64())),
        PARQUET,
        "invalid-file",
    ),
    ("half parquet", GOOD[: len(GOOD) // 2], PARQUET, "invalid-file"),
    ("parquet without its end", GOOD[:-1], PARQUET, "invalid-file"),
    ("parquet magic only", b"PAR1", PARQUET, "invalid-file"),
    ("parquet with another column", parquet(example_id=["a"], labels=[7319462851]), PARQUET, "invalid-table"),
    ("parquet with float ids", parquet(example_id=[1.5], label=[73]), PARQUET, "invalid-table"),
    ("empty csv", b"", CSV, "invalid-file"),
    ("header only", b"example_id,label\n", CSV, "invalid-file"),
    ("csv with another column", b"example_id,amount\na,7319462851\n", CSV, "invalid-table"),
    ("csv without a header", b"a,7319462851\nb,5\n", CSV, "invalid-table"),
    ("ragged csv", b"example_id,label\na,1,7319462851\n", CSV, "invalid-file"),
    ("csv with a column twice", b"example_id,label,label\na,1,7319462851\n", CSV, "invalid-table"),
    ("utf-16 csv", "example_id,label\na,7319462851\n".encode("utf-16"), CSV, "invalid-file"),
    ("latin-1 csv", b"example_id,label\n\xe9,7319462851\n", CSV, "invalid-file"),
]


@pytest.mark.parametrize(("content", "media", "code"), [s[1:] for s in SHAPES], ids=[s[0] for s in SHAPES])
def test_uploads_of_the_wrong_shape_are_refused(content: bytes, media: str, code: str, desk: Desk) -> None:
    before = desk.state()
    answer = desk.labels(content, media)
    # the header of a CSV is no label: without one, the first row is taken for it and shown
    desk.refused(answer, code, *([] if content.startswith(b"a,7319462851") else ["7319462851"]), "73.194")
    assert desk.state() == before


def test_a_byte_order_mark_is_no_part_of_a_column_name(desk: Desk) -> None:
    assert desk.labels(b"\xef\xbb\xbfexample_id,label\na,7\n", CSV).status_code == 200
    assert desk.labels(b'\xef\xbb\xbf{"example_id":["b"],"label":[7]}', JSON).status_code == 200


# --- the order of things -----------------------------------------------------------------------------------


def test_labels_before_the_list_of_ids_are_refused(desk: Desk) -> None:
    batch = desk.open(desk.population, "id-list")
    before = desk.state()
    desk.refused(desk.send(["a"], [73.194], batch), "conflict", "73.194", status=409)
    desk.refused(desk.client.post(f"/v1/batches/{batch}/seal"), "conflict", status=409)
    assert desk.state() == before


def test_a_list_of_ids_after_labels_is_refused(desk: Desk) -> None:
    batch = desk.open(desk.population, "id-list")
    path = f"/v1/batches/{batch}/examples"
    assert desk.client.put(path, json={"example_id": ["a"]}).status_code == 200
    assert desk.client.put(path, json={"example_id": ["a", "b"]}).status_code == 200  # replaced, before labels count
    assert len([p for p in (desk.party.home / "labels" / batch).iterdir() if p.name.startswith("examples")]) == 2
    assert desk.send(["a"], [7], batch).status_code == 200
    before = desk.state()
    desk.refused(desk.client.put(path, json={"example_id": ["a"]}), "conflict", status=409)
    assert desk.state() == before


def test_a_list_for_public_presence_is_refused(desk: Desk) -> None:
    before = desk.state()
    answer = desk.client.put(f"/v1/batches/{desk.batch}/examples", json={"example_id": ["a"]})
    desk.refused(answer, "conflict", status=409)
    assert desk.state() == before


def test_an_empty_batch_cannot_be_sealed_and_a_sealed_one_never_changes(desk: Desk) -> None:
    seal = f"/v1/batches/{desk.batch}/seal"
    desk.refused(desk.client.post(seal), "conflict", status=409)
    assert desk.send(["a"], [7]).status_code == 200
    assert desk.client.post(seal).status_code == 200
    before = desk.state()
    desk.refused(desk.client.post(seal), "conflict", status=409)
    desk.refused(desk.send(["b"], [73.194]), "conflict", "73.194", status=409)
    desk.refused(desk.send(["a"], [73.194]), "conflict", "73.194", status=409)
    assert desk.state() == before


def test_missing_labels_without_a_value_stop_the_seal_and_added_labels_repair_it(desk: Desk) -> None:
    batch = desk.open(desk.population, "id-list")
    desk.client.put(f"/v1/batches/{batch}/examples", json={"example_id": ["a", "b", "c"]})
    assert desk.send(["b"], [73.194], batch).status_code == 200
    before = desk.state()
    problem = desk.refused(desk.client.post(f"/v1/batches/{batch}/seal"), "missing-labels", "73.194", status=409)
    assert problem["examples_without_label"] == ["a", "c"]
    assert desk.state() == before
    assert desk.send(["a", "c"], [1, 2], batch).status_code == 200
    assert desk.client.post(f"/v1/batches/{batch}/seal").json()["examples"] == 3


def test_missing_labels_with_a_value_take_it_and_nobody_is_told_how_many(desk: Desk) -> None:
    population = desk.make("returns", missing_label="5")
    answers = []
    for prefix, labels in (("x", [7, 8, 9]), ("y", [7]), ("z", [])):
        batch = desk.open(population, "id-list")
        ids = [f"{prefix}{i}" for i in range(3)]
        desk.client.put(f"/v1/batches/{batch}/examples", json={"example_id": ids})
        if labels:
            desk.send(ids[: len(labels)], labels, batch)
        answers.append(desk.client.post(f"/v1/batches/{batch}/seal"))
    shown = [{k: v for k, v in a.json().items() if k not in ("id", "created", "sealed")} for a in answers]
    assert shown[0] == shown[1] == shown[2]
    assert shown[0]["examples"] == 3


def test_an_overlap_is_refused_and_the_same_examples_are_that_batch(desk: Desk) -> None:
    assert desk.send(["a", "b", "c"], [1, 2, 3]).status_code == 200
    assert desk.client.post(f"/v1/batches/{desk.batch}/seal").status_code == 200
    renamed = desk.make("shop under another name")
    other_case = desk.make("shop in capitals", label="REVENUE")
    for population in (desk.population, renamed, other_case):
        partial, same, more = (desk.open(population) for _ in range(3))
        assert desk.send(["c", "d"], [73.194, 73.194], partial).status_code == 200
        assert desk.send(["c", "b", "a"], [73.194, 73.194, 73.194], same).status_code == 200
        assert desk.send(["a", "b", "c", "d"], [1, 2, 3, 4], more).status_code == 200
        before = desk.state()
        for batch, code in ((partial, "overlapping-batch"), (same, "same-examples"), (more, "overlapping-batch")):
            problem = desk.refused(desk.client.post(f"/v1/batches/{batch}/seal"), code, "73.194", status=409)
            assert desk.batch in problem["detail"]
        assert desk.state() == before
    # another label of the same people is another scope
    weeks = desk.open(desk.make("weeks worked", label="weeks"))
    assert desk.send(["a", "b", "c"], [1, 2, 3], weeks).status_code == 200
    assert desk.client.post(f"/v1/batches/{weeks}/seal").status_code == 200


def _open(party: LabelsParty, ids: list[str], population: str) -> str:
    """An open batch of `ids` in the population of an earlier `sealed_batch`."""
    s = party.services
    owner = s.database.read("p", lambda c: s.populations.get(c, population))
    batch = s.database.write("b", lambda c: s.batches.create(c, owner, "public"))
    s.intake.add_labels(batch.id, pa.table({"example_id": ids, "label": [1.0] * len(ids)}))
    return batch.id


def test_a_seal_that_was_overtaken_by_an_overlapping_one_is_refused(
    party_on: LabelsParty, monkeypatch: pytest.MonkeyPatch
) -> None:
    party_on.sealed_batch(pa.table({"example_id": ["z"], "label": [1.0]}))
    slow, fast = (_open(party_on, ids, "shop") for ids in (["a", "b"], ["b", "c"]))
    sealer = party_on.services.sealer
    sort, overtaken = sealer._sorted, []

    def overtake(*arguments: Any) -> Any:
        if not overtaken:  # after the slow seal has looked for overlaps, before it commits
            overtaken.append(fast)
            sealer.seal(fast, "test")
        return sort(*arguments)

    monkeypatch.setattr(sealer, "_sorted", overtake)
    with pytest.raises(OverlappingBatch, match=fast):
        sealer.seal(slow, "test")
    states = {
        b: party_on.services.database.read("s", lambda c, b=b: party_on.services.batches.get(c, b)[0].state)
        for b in (slow, fast)
    }
    assert states == {slow: "open", fast: "sealed"}
    assert not [p for p in (party_on.home / "labels" / slow).iterdir() if p.name.startswith("sealed")]


def test_of_six_seals_of_the_same_examples_at_once_one_wins(party_on: LabelsParty) -> None:
    party_on.sealed_batch(pa.table({"example_id": ["z"], "label": [1.0]}))
    batches = [_open(party_on, ["a", "b", "c"], "shop") for _ in range(6)]

    def seal(batch: str) -> str:
        try:
            party_on.services.sealer.seal(batch, "test")
        except SameExamples as same:
            return same.batch
        return batch

    with ThreadPoolExecutor(6) as pool:
        winners = set(pool.map(seal, batches))
    assert len(winners) == 1
    events = party_on.services.database.read("e", lambda c: party_on.services.audit.events(c, kind="batch-sealed"))
    assert len(events) == 2


# --- bad populations and releases --------------------------------------------------------------------------

POPULATIONS: list[tuple[dict[str, Any], str]] = [
    ({"domain": "10:0"}, "invalid-domain"),
    ({"domain": "0:10:0"}, "invalid-domain"),
    ({"domain": "0:1e15"}, "invalid-domain"),
    ({"domain": []}, "invalid-domain"),
    ({"domain": [1, 1]}, "invalid-domain"),
    ({"domain": ["a"]}, "invalid-domain"),
    ({"domain": [True]}, "invalid-request"),
    ({"domain": None}, "invalid-request"),
    ({"lifetime_epsilon": "0"}, "invalid-epsilon"),
    ({"lifetime_epsilon": "-1"}, "invalid-epsilon"),
    ({"lifetime_epsilon": "nan"}, "invalid-epsilon"),
    ({"lifetime_epsilon": "0.1234567891"}, "invalid-epsilon"),
    ({"lifetime_epsilon": True}, "invalid-request"),
    ({"missing_label": 7.5}, "invalid-input"),
    ({"missing_label": "nan"}, "invalid-input"),
    ({"missing_label": "x"}, "invalid-input"),
    ({"missing_label": "0e-999999999"}, "invalid-input"),
    ({"missing_label": "1e999999999"}, "invalid-input"),
    ({"missing_label": True}, "invalid-request"),
    ({"out_of_domain": "ignore"}, "invalid-request"),
    ({"audiences": []}, None),  # type: ignore[list-item]  # none named: the default
    ({"audiences": ["a", "a"]}, "invalid-input"),
    ({"audiences": [""]}, "invalid-input"),
    ({"audiences": ["a\n"]}, "invalid-input"),
    ({"name": ""}, "invalid-input"),
    ({"name": " x"}, "invalid-input"),
    ({"name": "a\0"}, "invalid-input"),
    ({"name": "x" * 201}, "invalid-request"),
    ({"label": ""}, "invalid-input"),
    ({"name": "shop"}, "conflict"),
]


@pytest.mark.parametrize(("change", "code"), POPULATIONS)
def test_bad_populations_are_refused(change: dict[str, Any], code: str | None, desk: Desk) -> None:
    body = {"name": "new", "label": "revenue", "domain": "0:10", "lifetime_epsilon": "1"} | change
    before = desk.state()
    answer = desk.client.post("/v1/populations", json=body)
    if code is None:
        assert answer.json()["audiences"] == ["features-party"]
        return
    desk.refused(answer, code, status=409 if code == "conflict" else 422)
    assert desk.state() == before


RELEASES: list[tuple[dict[str, Any], str]] = [
    ({"epsilon": "0"}, "invalid-epsilon"),
    ({"epsilon": "-1"}, "invalid-epsilon"),
    ({"epsilon": "nan"}, "invalid-epsilon"),
    ({"epsilon": "inf"}, "invalid-epsilon"),
    ({"epsilon": "0.1234567891"}, "invalid-epsilon"),
    ({"epsilon": 0.1 + 0.2}, "invalid-epsilon"),
    ({"epsilon": "1e-999999999"}, "invalid-epsilon"),
    ({"epsilon": "2.000000001"}, "budget-exceeded"),
    ({"epsilon": "1000000"}, "budget-exceeded"),
    ({"epsilon": "1000001"}, "invalid-epsilon"),
    ({"prior": {"probabilities": [1.0]}}, "invalid-prior"),
    ({"prior": {"probabilities": [0.5] * 101}}, "invalid-prior"),
    ({"prior": {"probabilities": [-0.5, 1.5] + [0.0] * 99}}, "invalid-prior"),
    ({"prior": {"probabilities": ["x"] * 101}}, "invalid-prior"),
    ({"prior": {"probabilities": [[1.0]] * 101}}, "invalid-prior"),
    ({"prior": {"probabilities": []}}, "invalid-prior"),
    ({"prior": {"probabilities": 1}}, "invalid-prior"),
    ({"prior": {"release": "rel_0"}}, "invalid-prior"),
    ({"prior": {}}, "invalid-prior"),
    ({"prior": "/etc/passwd"}, "invalid-prior"),
    ({"prior": "guess"}, "invalid-prior"),
    ({"prior_epsilon": "0"}, "invalid-epsilon"),
    ({"prior_epsilon": "1"}, "invalid-epsilon"),
    ({"prior_epsilon": "much"}, "invalid-epsilon"),
    ({"prior_method": "wish"}, "invalid-request"),
    ({"mechanism": "magic"}, "invalid-mechanism"),
    ({"mechanism": ""}, "invalid-mechanism"),
    ({"loss": "hinge"}, "invalid-loss"),
    ({"loss": "/etc/passwd"}, "invalid-loss"),
    ({"loss": {"labels": [1], "outputs": [1], "matrix": [[1]]}}, "invalid-loss"),
    ({"loss": {"labels": [1, 2], "outputs": [1], "matrix": [[1]]}}, "invalid-loss"),
    ({"loss": {"labels": [1], "outputs": [1], "matrix": [[-1]]}}, "invalid-loss"),
    ({"loss": {"labels": [1], "outputs": [1], "matrix": [[1], []]}}, "invalid-loss"),
    ({"clip": ["0", "5"]}, "invalid-mechanism"),
    ({"mechanism": "one-bit", "clip": ["5", "0"]}, "invalid-mechanism"),
    ({"mechanism": "one-bit", "clip": ["0"]}, "invalid-mechanism"),
    ({"mechanism": "one-bit", "clip": ["a", "b"]}, "invalid-mechanism"),
    ({"option": 1}, "invalid-request"),
]


def test_bad_releases_are_refused_and_cost_nothing(desk: Desk) -> None:
    assert desk.send([f"c{i}" for i in range(20)], [i * 5 for i in range(20)]).status_code == 200
    assert desk.client.post(f"/v1/batches/{desk.batch}/seal").status_code == 200
    before = desk.state()
    for change, code in RELEASES:
        answer = desk.client.post(f"/v1/batches/{desk.batch}/releases", json={"epsilon": "1"} | change)
        assert answer.json().get("code") == code, (change, answer.text)
        assert answer.status_code == (403 if code == "budget-exceeded" else 422)
        assert "/etc" not in answer.text
        assert desk.state() == before, change
    assert desk.party.spent(desk.batch) == "0"
    assert not list((desk.party.home / "releases").iterdir())


def test_poisson_on_a_domain_with_negative_labels_is_refused(desk: Desk) -> None:
    batch = desk.open(desk.make("balance", domain="-5:5", label="balance"))
    desk.send(["a"], [1], batch)
    desk.client.post(f"/v1/batches/{batch}/seal")
    answer = desk.client.post(f"/v1/batches/{batch}/releases", json={"epsilon": "1", "loss": "poisson"})
    desk.refused(answer, "invalid-loss")
    assert desk.party.spent(batch) == "0"


@pytest.mark.parametrize("mechanism", ["rr-on-bins", "one-bit", "discrete-laplace"])
def test_a_domain_of_one_value_gives_a_constant_channel_that_is_still_charged(mechanism: str, desk: Desk) -> None:
    batch = desk.open(desk.make("flat", domain="7:7", label="flat"))
    desk.send(["a", "b"], [7, 9], batch)
    desk.client.post(f"/v1/batches/{batch}/seal")
    answer = desk.client.post(f"/v1/batches/{batch}/releases", json={"epsilon": "0.5", "mechanism": mechanism})
    if answer.status_code != 202:  # a mechanism may refuse such a domain, but then before it is charged
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid-mechanism")
        assert desk.party.spent(batch) == "0"
        return
    desk.party.services.worker.drain()
    release = answer.json()["id"]
    end = time.monotonic() + 30
    while desk.party.state(release).state != "published":  # by the service's worker or by the line above
        assert time.monotonic() < end
        time.sleep(0.02)
    verified = verify(desk.party.bundle(release).path, desk.party.services.key.public, "features-party")
    assert set(read_message(list(verified.paths), verified.manifest)["label"].to_pylist()) == {7.0}
    assert desk.party.spent(batch) == "0.5"


# --- the command line --------------------------------------------------------------------------------------


@pytest.fixture
def privatize(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[LabelDPError, Path]]:
    """Run `privatize` on a file that must be refused; returns the error and the home."""
    home = tmp_path / "home"
    monkeypatch.setenv("LABELS_PARTY_HOME", str(home))

    def run(content: bytes, *options: str, name: str = "labels.csv") -> tuple[LabelDPError, Path]:
        (tmp_path / name).write_bytes(content)
        arguments = ["privatize", "--labels", str(tmp_path / name), "--id-column", "id", "--label-column", "y"]
        arguments += ["--domain", "0:100", "--epsilon", "1", "--population", "shop", "--budget", "2"]
        arguments += ["--out", str(tmp_path / "m.parquet"), "--out-of-domain", "refuse", *options]
        result = CliRunner().invoke(command_line, arguments)
        assert isinstance(result.exception, LabelDPError), (result.output, result.exception)
        assert not (tmp_path / "m.parquet").exists()
        assert not (tmp_path / "m.parquet.dsse.json").exists()
        return result.exception, home

    return run


FILES: list[tuple[str, bytes, str]] = [
    ("nan", b"id,y\na,1\nb,nan\n", "invalid-rows"),
    ("inf", b"id,y\na,1\nb,-inf\n", "invalid-rows"),
    ("text", b"id,y\na,1\nb,seven7319462851\n", "invalid-rows"),
    ("missing", b"id,y\na,1\nb,\n", "invalid-rows"),
    ("out of domain", b"id,y\na,1\nb,7319462851\n", "invalid-rows"),
    ("overflow", b"id,y\na,1\nb,1e400\n", "invalid-rows"),
    ("duplicate id", b"id,y\na,1\na,73\n", "invalid-rows"),
    ("empty id", b"id,y\na,1\n,73\n", "invalid-rows"),
    ("empty", b"", "invalid-file"),
    ("header only", b"id,y\n", "invalid-file"),
    ("wrong column", b"id,z\na,7319462851\n", "invalid-table"),
    ("ragged", b"id,y\na,1,7319462851\n", "invalid-file"),
    ("half parquet", GOOD[: len(GOOD) // 2], "invalid-file"),
    ("float ids", parquet(id=[1.5], y=[73]), "invalid-table"),
    ("nan in parquet", parquet(id=["a"], y=[math.nan]), "invalid-rows"),
    ("bool in parquet", parquet(id=["a"], y=[True]), "invalid-table"),
]


@pytest.mark.parametrize(("content", "code"), [f[1:] for f in FILES], ids=[f[0] for f in FILES])
def test_bad_files_are_bad_input(
    content: bytes, code: str, privatize: Callable[..., tuple[LabelDPError, Path]], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        error, home = privatize(content)
    assert (error.code, error.exit_code) == (code, 2)
    for text in ("7319462851", "seven"):
        assert text not in error.detail + str(error.extras()) + caplog.text
    assert not [p for p in (home / "labels").rglob("*") if p.is_file()]


def test_bad_lists_of_ids_are_bad_input(privatize: Callable[..., tuple[LabelDPError, Path]], tmp_path: Path) -> None:
    good = b"id,y\na,1\nb,2\n"
    examples = tmp_path / "examples.csv"
    for content, code in (
        (b"id\na\n", "invalid-rows"),  # b is not listed
        (b"id\na\nb\nb\n", "invalid-rows"),
        (b"id\n", "invalid-file"),
        (b"name\na\n", "invalid-table"),
        (b"id\na\nb\nc\n", "missing-labels"),
    ):
        examples.write_bytes(content)
        error, home = privatize(good, "--examples", str(examples))
        assert error.code == code
        assert not [p for p in (home / "labels").rglob("*") if p.is_file()]


# --- neighbours and fuzz -----------------------------------------------------------------------------------


def _walk(home: Path, labels: list[float], caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    """Everything a caller sees up to publication, with ids taken out, and every log line."""
    caplog.clear()
    seen: list[tuple[int, str]] = []
    with LabelsParty(home, worker=False) as party, caplog.at_level(logging.DEBUG):
        client = party.client("owner")

        def note(answer: httpx.Response) -> dict[str, Any]:
            text = answer.text
            for word, stands in names.items():
                text = text.replace(word, stands)
            seen.append((answer.status_code, text))
            return dict(answer.json()) if answer.text.startswith("{") else {}

        names: dict[str, str] = {}
        names[
            note(
                client.post(
                    "/v1/populations", json={"name": "s", "label": "r", "domain": "0:10", "lifetime_epsilon": "1"}
                )
            )["id"]
        ] = "POP"
        seen.clear()
        batch = client.post("/v1/populations/s/batches", json={"presence": "public"}).json()["id"]
        names[batch] = "BATCH"
        ids = [f"c{i}" for i in range(len(labels))]
        half = len(labels) // 2
        note(client.post(f"/v1/batches/{batch}/labels", json={"example_id": ids[:half], "label": labels[:half]}))
        note(client.post(f"/v1/batches/{batch}/labels", json={"example_id": ids[:1], "label": labels[:1]}))
        note(
            client.post(
                f"/v1/batches/{batch}/labels", json={"example_id": [*ids[half:], ""], "label": [*labels[half:], 1]}
            )
        )
        note(client.post(f"/v1/batches/{batch}/labels", json={"example_id": ids[half:], "label": labels[half:]}))
        note(client.post(f"/v1/batches/{batch}/seal"))
        note(client.get("/v1/populations/s/plan", params={"epsilon": "1", "batch": batch}))
        asked = client.post(f"/v1/batches/{batch}/releases", json={"epsilon": "1"})
        names[asked.json()["id"]] = "RELEASE"
        note(asked)
        steps: list[tuple[str, float]] = []
        party.services.pipeline.run(asked.json()["id"], lambda what, share: steps.append((what, share)))
        seen.append((len(steps), repr(steps)))
        events = client.get("/v1/audit/events").json()
        seen.append((len(events), repr([(e["kind"], e["epsilon"], sorted(e["details"])) for e in events])))
        root = party.home / "labels"
        seen.append((0, repr(sorted((p.suffix, p.stat().st_size) for p in root.rglob("*") if p.is_file()))))
        text = caplog.text
        for word, stands in names.items():
            text = text.replace(word, stands)
        seen.append((0, text))
        for name in ("created", "sealed"):
            seen = [(s, "".join(part for part in _without(t, name))) for s, t in seen]
    return seen


def _without(text: str, member: str) -> Iterator[str]:
    """`text` without the value of a time member, which may tick between two walks."""
    yield re.sub(rf'"{member}":"[^"]*"', f'"{member}":"T"', text)


def test_neighbouring_labels_look_the_same_up_to_publication(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rng = np.random.default_rng(5)
    base = [float(v) for v in rng.integers(0, 11, 40)]
    walks = []
    for i, change in enumerate((0.0, 10.0, 3.7, 99999.0, -5.0, -0.0)):  # the last ones are clipped, which must not show
        walks.append(_walk(tmp_path / f"home-{i}", [*base[:7], change, *base[8:]], caplog))
    for other in walks[1:]:
        assert other == walks[0]


def _odd_number(rng: random.Random) -> str:
    bits = struct.unpack("<d", rng.randbytes(8))[0]
    pieces = [
        lambda: repr(bits).replace("nan", "NaN").replace("inf", "Infinity"),
        lambda: str(rng.randrange(-(10**30), 10**30)),
        lambda: f"{rng.choice('-+ ')}{rng.randrange(10**6)}e{rng.randrange(-400, 400)}",
        lambda: rng.choice(
            [
                "null",
                "true",
                "NaN",
                "-Infinity",
                "{}",
                "[]",
                '""',
                '"7319462851"',
                "[1,[2]]",
                '{"a":[null]}',
                "-0",
                "01",
            ]
        ),
        lambda: json.dumps("".join(chr(rng.randrange(0xD7FF)) for _ in range(rng.randrange(8)))),
        lambda: f'"\\ud8{rng.randrange(256):02x}"',
    ]
    return rng.choice(pieces)()


def test_five_thousand_generated_bad_labels_give_no_server_error(desk: Desk) -> None:
    rng = random.Random(20)
    before = desk.state()
    tried, bodies = 0, 0
    while tried < 5000:
        count = rng.randrange(1, 60)
        tried += count
        bodies += 1
        labels = [_odd_number(rng) for _ in range(count)] + ["null"]  # at least one is bad, so nothing may be stored
        ids = [
            rng.choice([f'"c{i}"', str(i), json.dumps(f"é{i}"), f'"\\ud8{i % 90 + 10}"']) for i in range(len(labels))
        ]
        if rng.random() < 0.5:
            body = f'{{"example_id":[{",".join(ids)}],"label":[{",".join(labels)}]}}'
        else:
            records = (f'{{"example_id":{i},"label":{v}}}' for i, v in zip(ids, labels, strict=True))
            body = f'{{"records":[{",".join(records)}]}}'
        if rng.random() < 0.1:
            body = body[: rng.randrange(len(body))]
        answer = desk.labels(body.encode("utf-8", "surrogatepass"))
        assert answer.status_code == 422, (answer.status_code, answer.text)
        assert answer.json()["code"] in ("invalid-rows", "invalid-file")
    assert bodies > 100
    assert desk.state() == before


def test_damaged_files_give_no_server_error(desk: Desk) -> None:
    rng = random.Random(21)
    whole = parquet(example_id=[f"c{i}" for i in range(60)], label=[float(i) for i in range(60)])
    text = b"example_id,label\n" + b"".join(b"c%d,%d\n" % (i, i) for i in range(60))
    codes: dict[int, int] = {}
    for i in range(600):
        media, data = (PARQUET, bytearray(whole)) if i % 2 else (CSV, bytearray(text))
        for _ in range(rng.randrange(1, 5)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        # a sealed batch refuses whatever is still readable, so every file meets the reader alone
        answer = desk.labels(bytes(data), media, batch="bat_absent")
        codes[answer.status_code] = codes.get(answer.status_code, 0) + 1
    assert set(codes) <= {422, 404}
    assert codes[422] > 300
