"""Every operation of an OpenAPI document, called about objects that exist and about ones that do not."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx
from fastapi.testclient import TestClient

UNTOLD = {"x-request-id", "date"}  # differ from call to call
BODIES: tuple[dict[str, Any], ...] = ({}, {"json": {}}, {"content": b"\xff", "headers": {"content-type": "text/csv"}})


@dataclass(frozen=True)
class Operation:
    method: str
    path: str  # with {parameters}

    @property
    def name(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def parameters(self) -> list[str]:
        return re.findall(r"{(\w+)}", self.path)

    def url(self, objects: Mapping[str, str]) -> str:
        return re.sub(r"{(\w+)}", lambda found: objects[found[1]], self.path)


def operations(document: Mapping[str, Any]) -> list[Operation]:
    """All below /v1, in the document's order."""
    return [
        Operation(method.upper(), path)
        for path, methods in document["paths"].items()
        if path.startswith("/v1/")
        for method in methods
    ]


def unlike(real: Mapping[str, str], length: int = 16) -> dict[str, str]:
    """Ids of the same form as `real` ones that belong to nothing."""
    return {name: re.sub(r"[0-9a-z](?=[0-9a-z]*$)", "0", value) for name, value in real.items()}


def seen(answer: httpx.Response, objects: Mapping[str, str]) -> tuple[Any, ...]:
    """What a caller can tell from an answer, but for the ids that they sent and the number of the request."""
    text = answer.text
    for name, value in sorted(objects.items(), key=lambda item: -len(item[1])):
        text = text.replace(value, f"<{name}>")
    text = re.sub(r'"(instance|request_id)":"[^"]*"', r'"\1":""', text)
    headers = {k: v for k, v in answer.headers.items() if k not in UNTOLD}
    return answer.status_code, text, headers


def answers(client: TestClient, operation: Operation, objects: Mapping[str, str]) -> Iterator[tuple[Any, ...]]:
    """What is seen of the operation with each kind of body; GET has none."""
    for options in BODIES[:1] if operation.method in ("GET", "DELETE") else BODIES:
        yield seen(client.request(operation.method, operation.url(objects), **options), objects)
