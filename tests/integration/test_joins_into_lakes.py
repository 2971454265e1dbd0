"""Joins into Delta and Iceberg tables and object stores: one commit with its release, and the rows of a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import Catalog

from label_dp.store.table_addresses import shown
from tests.support.features_cli import Shell
from tests.support.lakes import address, rows_of
from tests.support.lakes import catalog as catalog
from tests.support.messages import Sender
from tests.support.object_store import BUCKET, Room

pytestmark = pytest.mark.extended


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """A features party with a message of 40 ids, and features of 45 in a file."""
    shell, sender = Shell(tmp_path), Sender()
    sender.public_key(tmp_path)
    sender.write(tmp_path / "m.parquet", [f"c{i:03d}" for i in range(40)], np.arange(40.0) % 11)
    group = pa.array(["a", "b", "c"] * 15).dictionary_encode()
    features = pa.table({"id": [f"c{i:03d}" for i in range(45)], "x": np.arange(45), "group": group})
    pq.write_table(features, tmp_path / "features.parquet")
    return shell


JOIN = ("join", "--message", "m.parquet", "--labels-key", "labels-signing.pub", "--id-column", "id", "--features")


def test_a_join_is_one_commit_with_its_release_digest_and_epsilon(shell: Shell, catalog: Catalog) -> None:
    plain = shell.json(*JOIN, "features.parquet", "--out", "plain.parquet")
    expected = pq.read_table(shell.folder / "plain.parquet").to_pylist()
    for out in ("delta:joined", "iceberg:lake/shop.joined"):
        told = shell.json(*JOIN, "features.parquet", "--out", out)
        assert told["counts"] == plain["counts"]
        assert told["table"] == out
        # the same run again would double the rows; forced, it takes their place
        assert "has rows of rel_1 already" in shell.refused(*JOIN, "features.parquet", "--out", out, code=1)
        for _ in range(2):
            shell.run(*JOIN, "features.parquet", "--out", out, "--force")
    delta, lake = DeltaTable(shell.folder / "joined"), catalog.load_table("shop.joined")
    snapshots = lake.snapshots()
    for properties in (delta.history()[-1], snapshots[0].summary.additional_properties):
        assert properties["label_dp.release"] == "rel_1"
        assert properties["label_dp.epsilon"] == "2"
        assert len(properties["label_dp.digest"]) == 64
    assert delta.version() == 2
    assert sorted(rows_of(f"delta:{shell.folder / 'joined'}"), key=lambda r: r["id"]) == expected
    assert sorted(rows_of("iceberg:lake/shop.joined"), key=lambda r: r["id"]) == expected


@pytest.mark.parametrize("out", ["delta:joined", "iceberg:lake/shop.joined"])
def test_a_table_takes_each_release_once(shell: Shell, catalog: Catalog, out: str) -> None:
    read = out.replace("delta:", f"delta:{shell.folder}/")
    sender = Sender()
    key = sender.public_key(shell.folder)
    first, second = ("m.parquet", [f"c{i:03d}" for i in range(40)]), ("n.parquet", ["c044"])
    (shell.folder / "m.parquet").unlink()
    (shell.folder / "m.parquet.dsse.json").unlink()
    for number, (name, ids) in enumerate((first, second), 1):
        sender.write(shell.folder / name, ids, np.zeros(len(ids)), release=f"rel_{number}", batch=f"bat_{number}")
    rest = ("--labels-key", key, "--id-column", "id", "--features", "features.parquet", "--out", out)
    for names in (("m.parquet",), ("n.parquet",)):
        shell.run("join", *(word for name in names for word in ("--message", name)), *rest)
    assert len(rows_of(read)) == 41
    # both together hold rows that are there: nothing is doubled, and what is not named stays
    both = ("join", "--message", "m.parquet", "--message", "n.parquet", *rest)
    assert "has rows of rel_1, rel_2 already" in shell.refused(*both, code=1)
    narrow = pq.read_table(shell.folder / "features.parquet").set_column(1, "x", pa.array(np.full(45, 7)))
    pq.write_table(narrow, shell.folder / "features.parquet")
    shell.run("join", "--message", "m.parquet", *rest, "--force")
    rows = rows_of(read)
    assert [row["id"] for row in rows] == [*first[1], "c044"]
    assert [row["x"] for row in rows] == [7] * 40 + [44]
    shell.run(*both, "--force")
    assert [row["x"] for row in rows_of(read)] == [7] * 41


def test_rows_are_written_to_iceberg_while_they_are_read(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    from label_dp.companions import lake_commits

    rows = pa.table({"x": range(100)})
    taken: list[int] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in rows.to_batches(10):
            taken.append(batch.num_rows)
            yield batch

    monkeypatch.setattr(lake_commits, "PIECE", 100)
    pieces = lake_commits._pieces(pa.RecordBatchReader.from_batches(rows.schema, batches()))
    assert next(pieces).num_rows == 20
    assert len(taken) == 2
    assert sum(piece.num_rows for piece in pieces) == 80


@pytest.mark.parametrize("out", ["delta:joined", "iceberg:lake/shop.joined"])
def test_rows_of_other_columns_are_refused(shell: Shell, catalog: Catalog, out: str) -> None:
    shell.run(*JOIN, "features.parquet", "--out", out)
    features = pq.read_table(shell.folder / "features.parquet").rename_columns(["id", "x", "kind"])
    pq.write_table(features, shell.folder / "other.parquet")
    for how in ((), ("--force",)):
        said = shell.refused(*JOIN, "other.parquet", "--out", out, *how, code=2)
        assert f"'{out}' has other columns than these rows: 'group', 'kind' not in both." in said


def test_a_join_of_a_store_from_table_to_joined_table_without_a_file_here(shell: Shell, bucket: Room) -> None:
    options = {"aws_endpoint": f"http://{bucket.address}", "aws_allow_http": "true", "aws_region": "us-east-1"}
    root = f"s3://{BUCKET}/{bucket.prefix}"
    write_deltalake(f"{root}/features", pq.read_table(shell.folder / "features.parquet"), storage_options=options)
    before = sorted(path.name for path in shell.folder.rglob("*.parquet"))
    for out in ("joined", "joined.parquet"):
        where = address(bucket, out)
        shell.run(*JOIN, f"delta:{address(bucket, 'features')}", "--out", where)
        assert "exists already" in shell.refused(*JOIN, "features.parquet", "--out", where, code=2)
        shell.run(*JOIN, "features.parquet", "--out", where, "--force")
        assert len(rows_of(where)) == 40
    assert bucket.keys("joined") == ["joined/part-00000.parquet"]
    metadata = pq.read_schema(pa.BufferReader(bucket.read("joined/part-00000.parquet"))).metadata
    assert metadata[b"label_dp.release"] == b"rel_1"
    shell.run(*JOIN, "features.parquet", "--out", f"delta:{address(bucket, 'lake')}")
    assert len(rows_of(f"delta:{address(bucket, 'lake')}")) == 40
    after = [path.name for path in shell.folder.rglob("*.parquet") if "messages" not in path.parts]
    assert sorted(after) == before


def test_where_nothing_can_be_written(shell: Shell, catalog: Catalog, bucket: Room) -> None:
    for out, words in (
        ("delta:joined@3", "names no place to write to"),
        (address(bucket, "x.csv"), "end the name with .parquet"),
        ("iceberg:other/shop.joined", "PYICEBERG_CATALOG__OTHER__URI"),
        ("iceberg:lake/none.joined", "has no namespace 'none': make it first."),
        ("http://elsewhere/x", "Tables are not read from 'http:' addresses"),
    ):
        assert words in shell.refused(*JOIN, "features.parquet", "--out", out, code=2)
    nowhere = address(bucket, "x").replace(BUCKET, "no-bucket", 1)
    for said in (
        shell.refused(*JOIN, "features.parquet", "--out", nowhere, code=1),
        shell.refused(*JOIN, nowhere, "--out", "x.parquet", code=1),
    ):
        assert (
            f"The store of '{shown(nowhere)}' cannot be used; try again later, or look at its address and cred" in said
        )
    bucket.put("full/other.parquet", b"x")
    said = shell.refused(*JOIN, "features.parquet", "--out", address(bucket, "full"), "--force", code=2)
    assert "name a folder without other files" in said
    assert "secret" not in said


def test_a_partitioned_iceberg_table_gets_one_commit(shell: Shell, catalog: Catalog) -> None:
    shell.run(*JOIN, "features.parquet", "--out", "iceberg:lake/shop.joined")
    with catalog.load_table("shop.joined").update_spec() as spec:
        spec.add_identity("group")
    shell.run(*JOIN, "features.parquet", "--out", "iceberg:lake/shop.joined", "--force")
    assert len(rows_of("iceberg:lake/shop.joined")) == 40
