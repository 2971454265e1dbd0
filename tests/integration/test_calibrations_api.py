"""Calibrations over REST: who may charge, what is refused before it costs anything, what nobody is told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest
from fastapi.testclient import TestClient

from label_dp.companions.kinds.calibration import open_calibration
from labels_party.client import AsyncLabelsPartyClient, LabelsPartyClient
from tests.support.calibrations import published, records, score_table
from tests.support.labels import LabelsParty, label_table
from tests.support.labels_api import is_problem
from tests.support.upload_formats import table_body

pytestmark = pytest.mark.extended

TABLE = label_table(300)
SCORES = score_table(TABLE)


@pytest.fixture
def party(tmp_path: Path) -> Iterator[LabelsParty]:
    with LabelsParty(tmp_path / "home") as found:
        yield found


@pytest.fixture
def batch(party: LabelsParty) -> str:
    return party.sealed_batch(TABLE, lifetime="4", audiences=["features-party", "other"])


def post(client: TestClient, batch: str, table: pa.Table = SCORES, **query: Any) -> httpx.Response:
    query = {"epsilon": "1"} | query
    return client.post(f"/v1/batches/{batch}/calibrations", params=query, json=records(table))


def csv(table: pa.Table) -> bytes:
    rows = [",".join(table.column_names), *(",".join(map(str, row.values())) for row in table.to_pylist())]
    return "\n".join(rows).encode()


def allow(party: LabelsParty, batch: str, epsilon: str) -> httpx.Response:
    return party.client().put(f"/v1/batches/{batch}/calibration-allowance", json={"epsilon": epsilon})


def document(client: TestClient, answer: str) -> httpx.Response:
    return client.get(f"/v1/answers/{answer}/document")


def test_the_owner_asks_and_every_audience_reads_the_same_bytes(party: LabelsParty, batch: str) -> None:
    owner, reader, other = party.client(), party.client("features"), party.client("features", "other")
    asked = post(owner, batch, epsilon="4")
    assert asked.status_code == 202
    answer = asked.json()["id"]
    assert asked.headers["location"] == f"/v1/answers/{answer}"
    state = published(owner, answer)
    assert state["epsilon"]["total"] == party.spent(batch) == "4"
    first = document(reader, answer)
    assert first.content == document(other, answer).content == document(owner, answer).content
    found = open_calibration(first.content, party.services.key.public, "other")
    assert found.answer.audiences == ["features-party", "other"]
    assert found.digest == state["sha256"]
    assert first.headers["etag"] == f'"{state["files"][0]["sha256"]}"'
    again = reader.get(f"/v1/answers/{answer}/document", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    # to the day, and nothing of who asked
    told = reader.get(f"/v1/answers/{answer}").json()
    assert (len(told["created"]), len(told["published"]), told["requested_by"]) == (10, 10, None)
    assert found.map.apply(np.array([0.0]))[0] < found.map.apply(np.array([4.0]))[0]


def test_an_audience_charges_its_allowance_and_alone_sees_its_answer(party: LabelsParty, batch: str) -> None:
    reader, other = party.client("features"), party.client("features", "other")
    nothing = post(reader, "bat_000000000000000000000000")
    assert nothing.json() == post(reader, batch).json() | {"detail": nothing.json()["detail"]}
    is_problem(post(reader, batch), 404, "not-found")
    is_problem(reader.get(f"/v1/batches/{batch}/calibration-allowance"), 404, "not-found")
    assert allow(party, batch, "1.5").json()["epsilon_left"] == "1.5"
    is_problem(post(reader, batch, epsilon="1.6"), 403, "budget-exceeded")
    answer = post(reader, batch).json()["id"]
    state = published(reader, answer)
    assert state["audiences"] == ["features-party"]
    for path in (f"/v1/answers/{answer}", f"/v1/answers/{answer}/document"):
        is_problem(other.get(path), 404, "not-found")
    refused = post(other, batch)
    is_problem(refused, 409, "already-released")
    assert answer not in refused.text  # whose it is, is not the other's to know
    is_problem(post(other, batch, epsilon="0.6", additional_release=True), 403, "budget-exceeded")
    assert post(other, batch, epsilon="0.5", additional_release=True).status_code == 202
    left = reader.get(f"/v1/batches/{batch}/calibration-allowance").json()
    assert (left["epsilon_used"], left["epsilon_left"]) == ("1.5", "0")
    assert party.spent(batch) == "1.5"
    # what the owner asks for is not of the allowance
    assert post(party.client(), batch, epsilon="1", additional_release=True).status_code == 202
    assert allow(party, batch, "0").json()["epsilon"] == "0"
    is_problem(post(reader, batch, epsilon="0.1", additional_release=True), 404, "not-found")
    events = [e.kind for e in party.services.database.read("e", party.services.audit.events)]
    assert events.count("allowance-set") == 2


def test_an_allowance_reserves_nothing_and_is_at_most_the_lifetime(party: LabelsParty, batch: str) -> None:
    is_problem(allow(party, batch, "4.1"), 422, "invalid-epsilon")
    allow(party, batch, "3")
    assert post(party.client(), batch, epsilon="2").status_code == 202
    is_problem(post(party.client("features"), batch, epsilon="3", additional_release=True), 403, "budget-exceeded")
    assert party.spent(batch) == "2"


def test_no_answer_tells_an_audience_which_ids_are_in_the_batch(party: LabelsParty, batch: str) -> None:
    """Unknown ids are passed over for an audience: a free refusal would be an oracle. The owner is told the rows."""
    allow(party, batch, "4")
    reader = party.client("features")
    ids = ["click-000000", "stranger", "click-000001"]
    table = pa.table({"example_id": ids, "score": [0.0, 1.0, 2.0]})
    refused = post(party.client(), batch, table)
    is_problem(refused, 422, "invalid-rows")
    assert [p["row"] for p in refused.json()["rows"]] == [2]
    assert "stranger" not in refused.text
    assert party.spent(batch) == "0"
    shapes = []
    for stranger in (["click-000007"], ["nobody"]):
        answer = post(reader, batch, pa.table({"example_id": stranger, "score": [1.0]}), additional_release=True)
        assert answer.status_code == 202, answer.text
        published(reader, answer.json()["id"])
        body = json.loads(document(reader, answer.json()["id"]).content)
        found = open_calibration(
            document(reader, answer.json()["id"]).content, party.services.key.public, "features-party"
        )
        shapes.append((answer.json() | {"id": ""}, set(body), found.answer.mechanism, found.answer.n))
    assert shapes[0] == shapes[1]
    assert party.spent(batch) == "2"


BAD: list[tuple[dict[str, Any], Any, int, str]] = [
    ({}, {"records": [{"example_id": "a", "score": None}]}, 422, "invalid-rows"),
    ({}, {"records": [{"example_id": "a", "score": "x"}]}, 422, "invalid-rows"),
    ({}, {"records": [{"example_id": "a", "score": 1e999}]}, 422, "invalid-rows"),
    ({}, {"records": [{"example_id": "a", "label": 1}]}, 422, "invalid-rows"),
    ({}, {"records": []}, 422, "invalid-file"),
    ({}, {"records": [{"example_id": "a", "score": 1}, {"example_id": "a", "score": 1}]}, 409, "duplicate-id"),
    ({"epsilon": "0"}, None, 422, "invalid-epsilon"),
    ({"epsilon": "nan"}, None, 422, "invalid-epsilon"),
    ({"epsilon": "-1"}, None, 422, "invalid-epsilon"),
    ({"epsilon": "0.000001", "shape": "monotone"}, None, 422, "invalid-epsilon"),
    ({"epsilon": "5"}, None, 403, "budget-exceeded"),
    ({"loss": "hinge"}, None, 422, "invalid-loss"),
    ({"shape": "round"}, None, 422, "invalid-input"),
    ({"shape": "monotone", "option": "levels=0"}, None, 422, "invalid-mechanism"),
    ({"shape": "monotone", "option": "levels=99"}, None, 422, "invalid-mechanism"),
    ({"option": "cells=0"}, None, 422, "invalid-mechanism"),
    ({"option": "cells=99999"}, None, 422, "invalid-mechanism"),
    ({"loss": "absolute", "epsilon": "0.0000005"}, None, 422, "invalid-epsilon"),
    ({"loss": "absolute", "option": "levels=2"}, None, 422, "invalid-input"),
    ({"shape": "pieces"}, None, 422, "invalid-input"),
    ({"shape": "pieces", "option": "pieces=0"}, None, 422, "invalid-mechanism"),
    ({"shape": "lipschitz", "option": "lipschitz=x", "scores": "0:9:90"}, None, 422, "invalid-mechanism"),
    ({"shape": "lipschitz", "option": "lipschitz=0.1"}, None, 422, "invalid-input"),  # float32 has no distances
    ({"shape": "convex", "option": "pieces=2"}, None, 422, "invalid-input"),
    ({"shape": "convex", "epsilon": "0.0000005", "scores": "0:9:90"}, None, 422, "invalid-epsilon"),
    ({"option": "levels"}, None, 422, "invalid-input"),
    ({"option": ["levels=3", "levels=4"]}, None, 422, "invalid-input"),
    ({"option": "depth=3"}, None, 422, "invalid-input"),
    ({"scores": "0:1"}, None, 422, "invalid-input"),
    ({"scores": "1:0:4"}, None, 422, "invalid-input"),
    ({"scores": "0:1:4294967297"}, None, 422, "invalid-input"),
    ({"scores": "nan:1:4"}, None, 422, "invalid-input"),
    ({"scores": "-1e308:1e308:4"}, None, 422, "invalid-input"),
    ({"id_column": "x"}, None, 422, "invalid-input"),
]


def test_what_is_refused_charges_nothing_and_leaves_nothing(party: LabelsParty, batch: str) -> None:
    allow(party, batch, "4")
    before = len(party.services.database.read("e", party.services.audit.events))
    for client in (party.client(), party.client("features")):
        for query, body, status, code in BAD:
            answer = client.post(
                f"/v1/batches/{batch}/calibrations",
                params={"epsilon": "1"} | query,
                content=json.dumps(body if body is not None else records(SCORES)),
                headers={"Content-Type": "application/json"},
            )
            assert (answer.status_code, answer.json().get("code")) == (status, code), (query, body, answer.text)
    assert party.spent(batch) == "0"
    assert len(party.services.database.read("e", party.services.audit.events)) == before
    assert list((party.home / "work").iterdir()) == []


def test_an_open_batch_is_refused_to_its_owner_and_unknown_to_audiences(party: LabelsParty, batch: str) -> None:
    owner = party.client()
    still_open = owner.post("/v1/populations/shop/batches", json={"presence": "public"}).json()["id"]
    is_problem(post(owner, still_open), 409, "conflict")
    is_problem(allow(party, still_open, "1"), 409, "conflict")
    is_problem(post(party.client("features"), still_open), 404, "not-found")


def test_every_format_of_uploads_gives_the_same_scores(party: LabelsParty, batch: str) -> None:
    owner = party.client()
    bodies = {
        "application/json": json.dumps(records(SCORES)).encode(),
        "application/x-ndjson": "\n".join(json.dumps(row) for row in SCORES.to_pylist()).encode(),
        "text/csv": csv(SCORES),
        "application/vnd.apache.arrow.stream": table_body("arrow", SCORES),
        "application/vnd.apache.parquet": table_body("parquet", SCORES),
    }
    macs = set()
    for kind, body in bodies.items():
        answer = owner.post(
            f"/v1/batches/{batch}/calibrations",
            params={"epsilon": "0.1", "additional_release": True},
            content=body,
            headers={"Content-Type": kind},
        )
        assert answer.status_code == 202, answer.text
        stored = party.services.database.read("t", lambda c: party.services.work.of_batch(c, batch))
        found = next(a for a in stored if a.id == answer.json()["id"])
        macs.add(found.inputs_mac)
    assert len(macs) == 1
    renamed = SCORES.rename_columns(["id", "prediction"])
    named = {"epsilon": "0.1", "additional_release": True, "id_column": "id", "score_column": "prediction"}
    headers = {"Content-Type": "text/csv"}
    url = f"/v1/batches/{batch}/calibrations"
    assert owner.post(url, params=named, content=csv(renamed), headers=headers).status_code == 202
    assert party.spent(batch) == "0.6"


def test_a_repeated_call_charges_once(party: LabelsParty, batch: str) -> None:
    owner, headers = party.client(), {"Idempotency-Key": "once"}
    url = f"/v1/batches/{batch}/calibrations?epsilon=1"
    first = owner.post(url, json=records(SCORES), headers=headers)
    again = owner.post(url, json=records(SCORES), headers=headers)
    assert first.json() == again.json()
    changed = owner.post(url, json=records(score_table(TABLE, 2)), headers=headers)
    is_problem(changed, 422, "idempotency-conflict")
    is_problem(owner.post(url + "1", json=records(SCORES), headers=headers), 422, "idempotency-conflict")
    assert party.spent(batch) == "1"
    published(owner, first.json()["id"])
    party.services.worker.stop()  # inputs are removed right after the publication
    assert [p.name for p in (party.home / "work").iterdir()] == [first.json()["id"]]


DEGENERATE = {
    "one point": pa.table({"example_id": ["click-000000"], "score": [0.5]}),
    "all scores equal": pa.table({"example_id": TABLE["example_id"], "score": [0.0] * 300}),
    "half of them far outside any range": pa.table(
        {"example_id": TABLE["example_id"], "score": [1e300, 1.0, -1e300, 4.0] * 75}
    ),
    "half of the batch": SCORES.slice(0, 150),
}


@pytest.mark.parametrize("case", list(DEGENERATE))
def test_degenerate_scores_are_answered_with_a_map_within_the_domain(case: str, party: LabelsParty, batch: str) -> None:
    answer = post(party.client(), batch, DEGENERATE[case], scores="0:5:50").json()["id"]
    published(party.client(), answer)
    found = open_calibration(document(party.client(), answer).content, party.services.key.public, "features-party").map
    applied = found.apply(np.linspace(-10, 10, 101))
    assert np.all(np.diff(applied) >= 0)
    assert applied[0] >= 0
    assert applied[-1] <= 10
    if case in ("one point", "all scores equal"):
        assert len(set(found.apply(np.array([0.5, 0.5])))) == 1


MOST_OUTSIDE = {
    "all of them": [1e300, -1e300] * 150,
    "one more than half": [1e300, 1.0, -1e300, 4.0] * 74 + [5.0, 5.1, 6.0, -0.1],
}


@pytest.mark.parametrize("case", list(MOST_OUTSIDE))
def test_scores_mostly_outside_their_range_are_refused_at_no_charge(case: str, party: LabelsParty, batch: str) -> None:
    """Scores are public and known before the charge. By float32 the same ones are answered."""
    allow(party, batch, "2")
    table = pa.table({"example_id": TABLE["example_id"], "score": MOST_OUTSIDE[case]})
    stranger = table.set_column(0, "example_id", pa.array([f"nobody-{i}" for i in range(300)]))
    for client, scores in (
        (party.client(), table),
        (party.client("features"), table),
        (party.client("features"), stranger),
    ):
        refused = post(client, batch, scores, scores="0:5:50")
        is_problem(refused, 422, "invalid-input")
        assert "More than half of the 300 scores in 'score' lie outside of 0:5" in refused.json()["detail"]
        assert "1e" not in refused.json()["detail"]  # no score is told again
    assert party.spent(batch) == "0"
    assert list((party.home / "work").iterdir()) == []
    published(party.client(), post(party.client(), batch, table).json()["id"])
    assert party.spent(batch) == "1"


def test_both_python_clients_ask_wait_and_fetch(party: LabelsParty, batch: str) -> None:
    party.client()  # starts the application
    app = party._clients[0].app
    _, key = party.services.apikeys.create("owner")
    with LabelsPartyClient("http://testserver", key, http=party._clients[0]) as client:
        assert client.allow_calibrations(batch, "1")["epsilon"] == "1"
        assert client.calibration_allowance(batch)["epsilon_left"] == "1"
        asked = client.calibrate(batch, SCORES, "0.5", loss="absolute", option=["cells=2"])
        assert client.wait_answer(asked["id"], 30)["state"] == "published"
        first = client.answer_document(asked["id"])
    found = open_calibration(first, party.services.key.public, "features-party")
    parameters, facts = found.answer.parameters, found.answer.mechanism.facts
    assert (found.loss, parameters["shape"], parameters["options"]) == ("absolute", "bins", {"cells": 2})
    assert (facts["algorithm"], facts["cells"]) == ("medians of cells", "2")
    assert float(str(facts["rank_error"])) > 0

    async def talk() -> bytes:
        transport = httpx.ASGITransport(app)
        async with AsyncLabelsPartyClient(
            "http://testserver", key, http=httpx.AsyncClient(transport=transport)
        ) as client:
            assert (await client.calibration_allowance(batch))["epsilon_used"] == "0"
            assert (await client.wait_answer(asked["id"], 30))["state"] == "published"
            assert (await client.answer(asked["id"]))["kind"] == "calibration"
            return await client.answer_document(asked["id"])

    assert asyncio.run(talk()) == first


SHAPES = [
    {"shape": "pieces", "option": ["pieces=3", "cells=20"]},
    {"shape": "linear", "option": "pieces=2"},
    {"shape": "lipschitz", "option": "lipschitz=0.2"},
    {"shape": "convex"},
    {"shape": "concave", "loss": "absolute"},
]


@pytest.mark.parametrize("asked", SHAPES, ids=lambda asked: asked["shape"])
def test_every_shape_of_the_paper_may_be_asked_for(asked: dict[str, Any], party: LabelsParty, batch: str) -> None:
    owner = party.client()
    answer = post(owner, batch, scores="-2:7:90", **asked)
    assert answer.status_code == 202, answer.text
    published(owner, answer.json()["id"])
    found = open_calibration(document(owner, answer.json()["id"]).content, party.services.key.public, "features-party")
    assert found.shape == asked["shape"]
    assert np.all(np.diff(found.map.apply(np.linspace(-2, 7, 200))) >= 0)
    if found.shape == "pieces":
        assert len(found.map.map.values) <= 3
