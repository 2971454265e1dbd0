"""A population with one scheduled batch, over REST."""

from __future__ import annotations

from typing import Any

from fastapi.testclient import TestClient

POPULATION = {"name": "shop", "label": "revenue", "domain": "0:10", "lifetime_epsilon": "3"}
NOON = "2030-01-01T12:00:00Z"
TEMPLATE = {"epsilon": "0.5"}


def population(client: TestClient, **rules: Any) -> str:
    answer = client.post("/v1/populations", json=POPULATION | rules)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["name"])


def open_batch(client: TestClient, shop: str = "shop", **members: Any) -> str:
    body = {"presence": "public", "seal_at": NOON, "release": TEMPLATE} | members
    answer = client.post(f"/v1/populations/{shop}/batches", json=body)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def send(client: TestClient, batch: str, n: int = 30, prefix: str = "c") -> None:
    body = {"example_id": [f"{prefix}{i}" for i in range(n)], "label": [i % 7 for i in range(n)]}
    answer = client.post(f"/v1/batches/{batch}/labels", json=body)
    assert answer.status_code == 200, answer.text


def look(client: TestClient, batch: str) -> dict[str, Any]:
    return dict(client.get(f"/v1/batches/{batch}").json())


def listed(client: TestClient, batch: str) -> list[dict[str, Any]]:
    return list(client.get(f"/v1/batches/{batch}/releases").json())
