"""The first hour of the guide to tables: its lines as written, on tables of a lake in an S3 server of this machine."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import urllib.request
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyarrow import fs
from pyiceberg.catalog import load_catalog

from tests.support.object_store import CREDENTIALS, Server

pytestmark = pytest.mark.processes

GUIDE = Path(__file__).parents[2] / "deploy" / "guides" / "tables.md"
BIN = Path(sys.executable).parent
ROWS, LATER = 600, 200


def test_from_tables_to_a_joined_table_without_a_local_table(tmp_path: Path, s3_server: Server) -> None:
    endpoint = f"http://{s3_server.address}"
    urllib.request.urlopen(urllib.request.Request(f"{endpoint}/lake", method="PUT")).close()
    catalog = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": "s3://lake/warehouse",
        "s3.endpoint": endpoint,
        "s3.region": "us-east-1",
        "s3.access-key-id": CREDENTIALS["AWS_ACCESS_KEY_ID"],
        "s3.secret-access-key": CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
    }
    options = {"aws_endpoint": endpoint, "aws_allow_http": "true", "aws_region": "us-east-1"} | {
        name.lower(): value for name, value in CREDENTIALS.items()
    }
    clicks, rng = [f"c{i:04d}" for i in range(ROWS)], np.random.default_rng(0)
    features = pa.table({"click_id": clicks, "x": rng.normal(size=ROWS)})
    sales = pa.table({"click_id": clicks, "revenue": rng.integers(0, 300, ROWS).astype(np.float64)})
    write_deltalake("s3://lake/sales", sales, storage_options=options)
    store = fs.S3FileSystem(
        access_key=CREDENTIALS["AWS_ACCESS_KEY_ID"],
        secret_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        endpoint_override=s3_server.address,
        scheme="http",
        region="us-east-1",
    )
    for at in range(2):
        pq.write_table(features.slice(at * 300, 300), f"lake/features/{at}.parquet", filesystem=store)
    lake = load_catalog("lake", **catalog)
    lake.create_namespace("shop")
    lake.create_table("shop.features", schema=features.schema).append(features)

    homes = {"LABELS_PARTY_HOME": str(tmp_path / "labels"), "FEATURES_PARTY_HOME": str(tmp_path / "features")}
    named = {
        f"PYICEBERG_CATALOG__LAKE__{k.replace('.', '__').replace('-', '_')}".upper(): v for k, v in catalog.items()
    }
    env = os.environ | CREDENTIALS | homes | named | {"AWS_ENDPOINT_URL": endpoint, "AWS_REGION": "us-east-1"}
    first, second, _ = re.findall(
        r"^```text\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.M | re.S
    )  # the last one is of test_pipes.py
    said = ""
    for block in (first, second):
        for line in block.splitlines():
            program, *words = shlex.split(line)
            done = subprocess.run(
                [BIN / program, *words], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, (line, done.stdout, done.stderr)
            said += done.stdout + done.stderr
        if block == first:
            more = [f"d{i}" for i in range(LATER)]
            rows = pa.table({"click_id": more, "revenue": [9.0] * LATER})
            write_deltalake("s3://lake/sales", rows, mode="append", storage_options=options)
            lake.load_table("shop.features").append(pa.table({"click_id": more, "x": [0.5] * LATER}))
    assert CREDENTIALS["AWS_SECRET_ACCESS_KEY"] not in said
    assert DeltaTable("s3://lake/labelled", storage_options=options).count() == ROWS
    assert lake.load_table("shop.labelled").scan().to_arrow().num_rows == ROWS + LATER
    assert "delta:s3://lake/sales@0..1" in said
    assert pq.read_metadata("lake/scores.parquet", filesystem=store).num_rows == ROWS
    ours = {path.name for path in tmp_path.glob("*.parquet")}
    assert ours == {f"day-{day}{kind}.parquet" for day in (1, 2) for kind in ("", ".prior")}
