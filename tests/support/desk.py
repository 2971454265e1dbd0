"""An open batch whose every refusal is looked at: the reply, the log, and all that must be left alone."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fastapi.testclient import TestClient

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

    def state(self, *asked: str) -> tuple[Any, ...]:
        """Batches, segments, ledger and the folder of labels; but when the seal of the batches `asked` was asked for,
        which closes them to keys of role `ingest`, however it ends."""
        database, root = self.party.services.database, self.party.home / "labels"
        stored: list[list[Any]] = [
            database.read("look", lambda c, t=table: [*c.exec_driver_sql(f"SELECT * FROM {t}")])
            for table in ("batches", "segments", "work", "audit_events", "idempotency")
        ]
        stored[0] = [row._asdict() | ({"closed": None} if row.id in asked else {}) for row in stored[0]]
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


@contextmanager
def watched_desk(party: LabelsParty, caplog: pytest.LogCaptureFixture) -> Iterator[Desk]:
    with caplog.at_level(logging.DEBUG):
        yield Desk(party, caplog)
