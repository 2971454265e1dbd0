"""Sentences about small mistakes: what was meant is done, or is refused in words that fit the file at hand."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from label_dp.errors import RemoteProblem
from label_dp.problems import problem
from labels_party.client import LabelsPartyClient
from tests.integration.test_unit_erasures import POPULATION
from tests.support.labels import LabelsParty
from tests.support.labels_cli import Run, arguments, refused
from tests.support.serving import serving

pytestmark = pytest.mark.extended

CSV, PARQUET = {"content-type": "text/csv"}, {"content-type": "application/vnd.apache.parquet"}


@pytest.fixture
def resting(tmp_path: Path, database_url: str) -> Any:
    """A party whose worker never runs by itself."""
    with LabelsParty(tmp_path / "home", database_url=database_url, worker=False) as party:
        yield party


def parquet(**columns: Any) -> bytes:
    held = io.BytesIO()
    pq.write_table(pa.table(columns), held)
    return held.getvalue()


def batch_of(client: Any) -> str:
    client.post("/v1/populations", json=POPULATION)
    return str(client.post("/v1/populations/shop/batches", json={"presence": "public"}).json()["id"])


@pytest.mark.parametrize("column", ["person", "unit"])
@pytest.mark.parametrize("role", ["owner", "ingest"])
def test_units_are_read_from_the_column_that_the_population_names(resting: LabelsParty, column: str, role: str) -> None:
    owner = resting.client()
    batch, sender = batch_of(owner), resting.client(role)
    text = f"example_id,{column},label\na,ann,1\nb,bob,2\n".encode()
    assert sender.post(f"/v1/batches/{batch}/labels", content=text, headers=CSV).status_code == 200
    sent = parquet(example_id=["c", "d"], label=[3, 4], **{column: ["ann", "bob"]})
    assert sender.post(f"/v1/batches/{batch}/labels", content=sent, headers=PARQUET).status_code == 200
    assert owner.post(f"/v1/batches/{batch}/seal").status_code == 200
    answer = owner.post("/v1/populations/shop/erasures", json={"units": ["ann"]}).json()
    assert answer["examples"] == 2


def test_a_named_unit_column_is_the_one_that_is_read(resting: LabelsParty) -> None:
    owner = resting.client()
    batch = batch_of(owner)
    text = b"example_id,who,person,label\na,ann,bob,1\n"
    path = f"/v1/batches/{batch}/labels?unit_column=who"
    assert owner.post(path, content=text, headers=CSV).status_code == 200
    assert owner.post("/v1/populations/shop/erasures", json={"units": ["bob"]}).json()["unmatched"] == 1
    nothing = owner.post(f"/v1/batches/{batch}/labels", content=b"example_id,label\nz,1\n", headers=CSV).json()
    assert "no column 'unit'" in nothing["detail"]


def test_a_parquet_file_is_told_nothing_of_csv(resting: LabelsParty) -> None:
    owner = resting.client()
    batch = batch_of(owner)
    path = f"/v1/batches/{batch}/labels"
    told = owner.post(path, content=parquet(id=["a"], label=[1]), headers=PARQUET).json()["detail"]
    assert told == "'the upload' has no column 'example_id'. Its columns are: 'id', 'label'."  # one is as it should be
    told = owner.post(path, content=parquet(c1=["a"], price=[1]), headers=PARQUET).json()["detail"]
    assert told == "'the upload' has no column 'example_id'. It has 2 columns."
    text = owner.post(path, content=b"c1,765\na,1\n", headers=CSV).json()["detail"]
    assert "a CSV file's first line must name them" in text


def test_empty_cells_and_units_are_called_empty(resting: LabelsParty) -> None:
    owner = resting.client()
    path = f"/v1/batches/{batch_of(owner)}/labels"
    for body, headers in (
        (b"example_id,person,label\na,ann,\nb,,2\n,cyd,3\n", CSV),
        (parquet(example_id=["a", "b", None], person=["ann", None, "cyd"], label=[None, 2, 3]), PARQUET),
    ):
        rows = owner.post(path, content=body, headers=headers).json()["rows"]
        assert [(r["row"], r["rule"]) for r in rows] == [(3, "is empty: each row needs an id")]
    body = b"example_id,person,label\na,ann,\nb,bob,2\n"
    (row,) = owner.post(path, content=body, headers=CSV).json()["rows"]
    assert row["rule"].startswith("has no label: leave the row out")
    body = parquet(example_id=["a", "b"], person=["ann", None], label=[1, 2])
    (row,) = owner.post(path, content=body, headers=PARQUET).json()["rows"]
    assert (row["row"], row["rule"]) == (2, "is empty: each row needs a unit")


def test_two_audiences_in_one_name_are_refused(run: Run, resting: LabelsParty, tmp_path: Path) -> None:
    file = tmp_path / "labels.csv"
    file.write_text("example_id,label\na,1\nb,2\n", encoding="utf-8")
    out = str(tmp_path / "m.parquet")
    refused(run(*arguments(file, out, audience="a,b")), 2, "no comma", "by itself")
    body = {"name": "s", "label": "y", "domain": "0:9", "lifetime_epsilon": "1", "audiences": ["a,b"]}
    assert resting.client().post("/v1/populations", json=body).status_code == 422
    refused(run("apikey", "create", "--role", "features", "--audience", "a,b"), 2, "no comma")


def test_a_kind_of_event_that_does_not_exist_is_said(run: Run, home: Path) -> None:
    with LabelsParty(home, worker=False) as party:
        answer = party.client("auditor").get("/v1/audit/events", params={"kind": "nonsense"})
        assert answer.status_code == 422
        assert "release-charged" in answer.json()["detail"]
    refused(run("audit", "show", "--kind", "nonsense"), 2, "no kind of event 'nonsense'")
    assert run("audit", "show", "--kind", "store-created").code == 0


def test_errors_in_python_carry_the_code_of_the_service(resting: LabelsParty) -> None:
    client = resting.client()
    _, key = resting.services.apikeys.create("owner")
    with serving(client.app) as url, LabelsPartyClient(url, key) as party, pytest.raises(RemoteProblem) as found:
        party.population("nothing")
    assert (found.value.code, found.value.status) == ("not-found", 404)
    assert problem(found.value)[1]["code"] == "remote-problem"  # a service of ours says that another one refused
    assert RemoteProblem("odd", 500, {"code": "Not a code!"}).code == "remote-problem"
