"""What the labels party tells about itself: its OpenAPI document, metrics, health and logs."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.support.labels import LabelsParty
from tests.support.labels_api import POPULATION, PROBLEM


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for value in node.values():
            yield from _references(value)
    elif isinstance(node, list):
        for value in node:
            yield from _references(value)


def test_the_openapi_document_is_whole_and_every_refusal_is_a_problem(owner: TestClient) -> None:
    document = owner.get("/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    for reference in set(_references(document)):
        found: Any = document
        for step in reference.removeprefix("#/").split("/"):
            found = found[step]
        assert found
    operations = []
    for path, calls in document["paths"].items():
        for method, operation in calls.items():
            operations.append(operation["operationId"])
            declared = {p["name"] for p in operation.get("parameters", []) if p["in"] == "path"}
            assert declared == set(re.findall(r"{(\w+)}", path)), path
            assert any(s.startswith("2") for s in operation["responses"])
            refusals = {s for s in operation["responses"] if s.startswith("4")}
            for status in refusals:
                assert list(operation["responses"][status]["content"]) == [PROBLEM], (path, status)
            if path.startswith("/v1"):
                assert {"401", "404", "422"} <= refusals
                assert operation["security"], path
                if method != "get":
                    assert path.endswith("/seal") or "413" in refusals, path
                if path.endswith(("/examples", "/labels")):
                    assert {"409", "415"} <= refusals
                if path.endswith(("/message", "/manifest", "/files/{name}")):
                    assert {"409", "416"} <= refusals
    assert len(set(operations)) == len(operations)
    assert "403" in document["paths"]["/v1/batches/{batch}/releases"]["post"]["responses"]


def test_metrics_count_and_hold_no_id(party: LabelsParty, owner: TestClient, release: str, sealed: str) -> None:
    owner.get(f"/v1/releases/{release}/message")
    owner.get("/v1/releases/rel_secret-path")
    owner.get("/v1/no-such-path-73194")
    text = owner.get("/metrics").text
    assert 'route="/v1/releases/{release}/message"' in text
    assert 'status="404"' in text
    for word in (
        release,
        sealed,
        "rel_",
        "bat_",
        "pop_",
        "shop",
        "c1",
        "73194",
        "revenue",
        "epsilon",
        "process_",
        "python_",
        "_created",
    ):
        assert word not in text, word


def test_health(owner: TestClient) -> None:
    assert owner.get("/healthz").json() == {"status": "ok"}
    assert owner.get("/readyz").json() == {"status": "ready"}


def test_logs_hold_no_key_and_no_id_of_an_example(party: LabelsParty, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        client = party.client("owner")
        shop = client.post("/v1/populations", json=POPULATION).json()["id"]
        batch = client.post(f"/v1/populations/{shop}/batches", json={"presence": "public"}).json()["id"]
        client.post(f"/v1/batches/{batch}/labels", json={"example_id": ["private-click-7"], "label": [3.25]})
        client.post(f"/v1/batches/{batch}/labels", json={"example_id": ["private-click-7"], "label": [9.75]})
    secret = client.headers["authorization"].removeprefix("Bearer ")
    for word in (secret, "private-click-7", "3.25", "9.75"):
        assert word not in caplog.text
