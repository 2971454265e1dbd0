"""Tables whose columns are called otherwise; records have fixed members."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fastapi.testclient import TestClient

from tests.support.labels import LabelsParty

pytestmark = pytest.mark.extended

TABLE = pa.table({"note": ["x", "y"], "eur": [1.0, 2.0], "click": ["c1", "c2"], "user": ["u1", "u1"]})
NAMES = {"id_column": "click", "label_column": "eur"}


def parquet() -> bytes:
    sink = io.BytesIO()
    pq.write_table(TABLE, sink)
    return sink.getvalue()


def arrow() -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, TABLE.schema) as writer:
        writer.write_table(TABLE)
    return bytes(sink.getvalue().to_pybytes())


CSV = b"note,eur,click,user\nx,1,c1,u1\ny,2,c2,u1\n"
FORMS = [
    ("application/vnd.apache.parquet", parquet()),
    ("application/vnd.apache.arrow.stream", arrow()),
    ("text/csv", CSV),
]


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[TestClient]:
    with LabelsParty(tmp_path) as party:
        client = party.client()
        body = {"name": "shop", "label": "eur", "domain": "0:10", "lifetime_epsilon": "2", "missing_label": 0}
        assert client.post("/v1/populations", json=body).status_code == 201
        units = {"name": "people", "label": "spent", "unit_column": "user", "max_examples_per_unit": 1}
        assert client.post("/v1/populations", json=body | units).status_code == 201
        yield client


def opened(owner: TestClient, population: str, presence: str) -> str:
    answer = owner.post(f"/v1/populations/{population}/batches", json={"presence": presence})
    return f"/v1/batches/{answer.json()['id']}"


@pytest.mark.parametrize(("kind", "body"), FORMS)
def test_a_table_is_taken_by_its_own_column_names(owner: TestClient, kind: str, body: bytes) -> None:
    headers = {"content-type": kind}
    batch = opened(owner, "shop", "id-list")
    listed = owner.put(f"{batch}/examples", params={"id_column": "click"}, content=body, headers=headers)
    assert listed.json() == {"batch": batch.rsplit("/", 1)[-1], "examples": 2}
    assert owner.post(f"{batch}/labels", params=NAMES, content=body, headers=headers).json()["accepted"] == 2
    deleted = owner.request("DELETE", f"{batch}/labels", params={"id_column": "click"}, content=body, headers=headers)
    assert deleted.status_code == 200
    assert owner.post(f"{batch}/seal").json()["examples"] == 2


@pytest.mark.parametrize(("kind", "body"), FORMS)
def test_units_have_a_column_too(owner: TestClient, kind: str, body: bytes) -> None:
    batch, headers = opened(owner, "people", "public"), {"content-type": kind}
    names = NAMES | {"unit_column": "user"}
    assert owner.post(f"{batch}/labels", params=names, content=body, headers=headers).json()["accepted"] == 2
    assert owner.post(f"{batch}/seal").status_code == 200


@pytest.mark.parametrize(("kind", "body"), FORMS)
def test_what_cannot_be_is_refused(owner: TestClient, kind: str, body: bytes) -> None:
    batch, headers = opened(owner, "shop", "public"), {"content-type": kind}
    for names, rule in [
        ({"id_column": "clicks", "label_column": "eur"}, "no column 'clicks'"),
        ({"id_column": "click", "label_column": "click"}, "a name of its own"),
        ({"id_column": "click", "column": "eur"}, "column"),
    ]:
        answer = owner.post(f"{batch}/labels", params=names, content=body, headers=headers)
        assert answer.status_code == 422
        assert rule in answer.json()["detail"]
    # a column of the wrong kind, by its own name
    answer = owner.post(
        f"{batch}/labels", params={"id_column": "click", "label_column": "note"}, content=body, headers=headers
    )
    assert answer.status_code == 422
    assert "x" not in answer.json()["detail"].replace("text", "").replace("field 'label'", "").split()


def test_records_have_fixed_members(owner: TestClient) -> None:
    batch = opened(owner, "shop", "public")
    answer = owner.post(f"{batch}/labels", params=NAMES, json={"records": [{"click": "c1", "eur": 1}]})
    assert answer.status_code == 422
    assert "fixed names" in answer.json()["detail"]


def test_other_names_are_another_call(owner: TestClient) -> None:
    batch, headers = opened(owner, "shop", "public"), {"content-type": "text/csv", "idempotency-key": "k"}
    body = b"a,b,c\nx1,1,2\n"
    first = {"id_column": "a", "label_column": "b"}
    assert owner.post(f"{batch}/labels", params=first, content=body, headers=headers).status_code == 200
    assert owner.post(f"{batch}/labels", params=first, content=body, headers=headers).status_code == 200
    other = owner.post(f"{batch}/labels", params=first | {"label_column": "c"}, content=body, headers=headers)
    assert other.json()["code"] == "idempotency-conflict"
