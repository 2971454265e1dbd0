"""Both services decode within one budget of memory: a call that would swell waits for its turn or is sent away, in
every format, and what is small always goes through."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fastapi.testclient import TestClient

from label_dp.columnar.budget import DecodeBudget
from tests.support.features_api import running
from tests.support.labels import LabelsParty
from tests.support.messages import Sender
from tests.support.upload_formats import MEDIA, good_body

pytestmark = pytest.mark.extended

ROWS = 60_000


@contextmanager
def full(budget: DecodeBudget) -> Iterator[None]:
    """Other calls hold nearly all of it, and nobody is patient."""
    patience, budget.patience = budget.patience, 0.05
    budget.take(budget.most - (1 << 16))
    try:
        yield
    finally:
        budget.give(budget.most - (1 << 16))
        budget.patience = patience


def swelling(**more: Any) -> bytes:
    """A few kilobytes that decode to 24 MB."""
    ids = pa.array([f"{i:07d}".rjust(400, "x") for i in range(ROWS)])
    out = io.BytesIO()
    encodings = {"example_id": "DELTA_BYTE_ARRAY"} | dict.fromkeys(more, "PLAIN")
    table = pa.table({"example_id": ids, **more})
    pq.write_table(table, out, use_dictionary=False, compression="zstd", column_encoding=encodings)
    return out.getvalue()


def busy(answer: Any) -> None:
    assert (answer.status_code, answer.json()["code"]) == (503, "busy"), answer.text
    assert int(answer.headers["retry-after"]) > 0


@pytest.mark.parametrize("form", MEDIA)
def test_labels_of_any_format_wait_for_memory(form: str, tmp_path: Path) -> None:
    ids = [f"c{i}" for i in range(ROWS)]
    body = swelling(label=[1.0] * ROWS) if form == "parquet" else good_body(form, ids, [1.0] * ROWS)
    small = good_body(form, ["other"], [1.0])
    with LabelsParty(tmp_path / "home", worker=False) as party:
        owner = party.client()
        budget = owner.app.state.decoding  # type: ignore[attr-defined]  # of the application under it
        owner.post("/v1/populations", json=DECLARED).raise_for_status()
        batch = owner.post("/v1/populations/shop/batches", json={"presence": "public"}).json()["id"]
        path, headers = f"/v1/batches/{batch}/labels", {"content-type": MEDIA[form]}
        with full(budget):
            busy(owner.post(path, content=body, headers=headers))
            busy(owner.post(path, content=iter([body]), headers=headers))  # its length is not said
            assert owner.post(path, content=small, headers=headers).status_code == 200
        assert owner.post(path, content=body, headers=headers).json()["accepted"] == ROWS  # nothing was stored before
        assert budget.taken == 0


DECLARED = {"name": "shop", "label": "revenue", "domain": "0:10", "lifetime_epsilon": "5", "missing_label": "0"}


def test_lists_and_bodies_of_a_labels_party_wait_for_memory(tmp_path: Path) -> None:
    with LabelsParty(tmp_path / "home", worker=False) as party:
        owner, theirs = party.client(), party.client("features")
        owner.post("/v1/populations", json=DECLARED | {"audiences": ["features-party"]}).raise_for_status()
        batch = owner.post("/v1/populations/shop/batches", json={"presence": "id-list"}).json()["id"]
        list_of = {"content-type": MEDIA["parquet"]}
        large = DECLARED | {"name": "many", "domain": [float(i) for i in range(200_000)]}
        budget = owner.app.state.decoding  # type: ignore[attr-defined]  # of the application under it
        with full(budget):
            busy(theirs.put(f"/v1/batches/{batch}/examples", content=swelling(), headers=list_of))
            busy(owner.put(f"/v1/batches/{batch}/features", content=swelling(), headers=list_of))
            busy(owner.post("/v1/populations", json=large))
            assert owner.post("/v1/populations", json=DECLARED | {"name": "small"}).status_code == 201
        assert theirs.put(f"/v1/batches/{batch}/examples", content=swelling(), headers=list_of).status_code == 200
        assert budget.taken == 0


def test_a_features_party_reads_tables_and_rows_within_its_memory(tmp_path: Path) -> None:
    with running(tmp_path, Sender()) as api:
        client: TestClient = api.trainer
        budget = client.app.state.decoding  # type: ignore[attr-defined]  # of the application under it
        lines = b"example_id,a\n" + b"".join(b"%d,1\n" % i for i in range(200_000))
        asked = {"params": {"id_column": "example_id"}}
        for content, media in ((swelling(), MEDIA["parquet"]), (lines, "text/csv")):
            sent = {"content": content, "headers": {"content-type": media}, **asked}
            with full(budget):
                busy(client.post("/v1/feature-tables", **sent))
            table = client.post("/v1/feature-tables", **sent).json()["id"]
            with full(budget):
                wanted = {"url": "http://127.0.0.1:9", "batch": "b", "api_key": "k"}
                busy(client.post(f"/v1/feature-tables/{table}/id-list", json=wanted))
        with full(budget):
            busy(client.post("/v1/models/none/predict", json={"rows": [{"a": i} for i in range(50_000)]}))
            assert client.post("/v1/models/none/predict", json={"rows": [{"a": 1}]}).status_code == 404
        assert budget.taken == 0
