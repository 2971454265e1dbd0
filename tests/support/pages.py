"""Somebody who has signed in on the pages of a party, without a browser."""

from __future__ import annotations

import re
from typing import Any

import httpx
from fastapi.testclient import TestClient

TOKEN = re.compile(r'name="csrf" value="(\w+)"')


class Looker:
    """A client with a session; `client` had a bearer token, which is taken from it."""

    def __init__(self, client: TestClient) -> None:
        self.client = client
        self.key = str(client.headers.pop("Authorization")).partition(" ")[2]

    def sign_in(self, key: str | None = None, **more: Any) -> httpx.Response:
        return self.client.post("/sign-in", data={"key": key or self.key} | more, follow_redirects=False)

    def get(self, path: str) -> httpx.Response:
        return self.client.get(path, follow_redirects=False)

    def token(self, path: str) -> str:
        found = TOKEN.search(self.get(path).text)
        assert found is not None, path
        return found.group(1)

    def post(self, path: str, token: str | None, **fields: str) -> httpx.Response:
        data = fields | {"other": ""} if token is None else fields | {"csrf": token}
        return self.client.post(path, data=data, follow_redirects=False)


def signed_in(client: TestClient) -> Looker:
    found = Looker(client)
    assert found.sign_in().status_code == 303
    return found
