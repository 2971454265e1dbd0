"""What tests of the labels party's REST interface send and look at."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import httpx
from fastapi.testclient import TestClient

PROBLEM = "application/problem+json"
POPULATION = {"name": "shop", "label": "revenue", "domain": "0:10", "lifetime_epsilon": "3", "missing_label": 0}


def published(client: TestClient, release: str) -> dict[str, Any]:
    end = time.monotonic() + 120
    while (state := client.get(f"/v1/releases/{release}").json())["state"] != "published":
        assert time.monotonic() < end, state
        time.sleep(0.02)
    return dict(state)


def answers(client: TestClient, calls: Iterable[tuple[str, str, str]]) -> list[httpx.Response]:
    """Of many calls (method, URL, JSON text), one after the other, without handing each over to another thread."""

    async def all_of_them() -> list[httpx.Response]:
        transport = httpx.ASGITransport(client.app, raise_app_exceptions=False)
        headers = {**client.headers, "content-type": "application/json"}
        async with httpx.AsyncClient(transport=transport, base_url=client.base_url, headers=headers) as http:
            return [await http.request(method, url, content=text) for method, url, text in calls]

    assert client.portal is not None
    return client.portal.call(all_of_them)


def is_problem(response: httpx.Response, status: int, code: str) -> None:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == PROBLEM
    body = response.json()
    assert (body["status"], body["code"], body["type"]) == (status, code, f"urn:label-dp:{code}")
    assert body["detail"].endswith(".") or code in ("invalid-request", "internal")
