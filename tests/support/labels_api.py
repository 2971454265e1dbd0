"""What tests of the labels party's REST interface send and look at."""

from __future__ import annotations

import time
from typing import Any

import httpx
from fastapi.testclient import TestClient

PROBLEM = "application/problem+json"
POPULATION = {"name": "shop", "label": "revenue", "domain": "0:10", "lifetime_epsilon": "3", "missing_label": 0}


def published(client: TestClient, release: str) -> dict[str, Any]:
    end = time.monotonic() + 30
    while (state := client.get(f"/v1/releases/{release}").json())["state"] != "published":
        assert time.monotonic() < end, state
        time.sleep(0.02)
    return dict(state)


def is_problem(response: httpx.Response, status: int, code: str) -> None:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == PROBLEM
    body = response.json()
    assert (body["status"], body["code"], body["type"]) == (status, code, f"urn:label-dp:{code}")
    assert body["detail"].endswith(".") or code in ("invalid-request", "internal")
