"""Commands on folders, patterns, an object store, Delta and Iceberg tables: as on a Parquet file of the same rows."""

from __future__ import annotations

import itertools
import json
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import Catalog
from pyroaring import BitMap64

from deploy.verify_standalone.audit import open_export
from label_dp.columnar.parts import TableParts
from label_dp.documents.signing import VerifyingKey
from label_dp.errors import InvalidFile
from label_dp.store.table_files import table_at
from tests.support.features_cli import Shell
from tests.support.labels import label_table
from tests.support.labels_cli import Run, arguments, refused
from tests.support.lakes import address, rows_of
from tests.support.lakes import catalog as catalog
from tests.support.messages import Sender
from tests.support.object_store import BUCKET, Room

pytestmark = pytest.mark.extended
Place = Callable[[pa.Table], str]


def halves(table: pa.Table) -> tuple[pa.Table, pa.Table]:
    return table.slice(0, table.num_rows // 2), table.slice(table.num_rows // 2)


@pytest.fixture(
    params=[
        "folder",
        "pattern",
        "csv folder",
        "object",
        "store folder",
        "store pattern",
        "delta",
        "s3 delta",
        "iceberg",
    ]
)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Puts a table, in two halves where it can, and returns its address."""
    kind = str(request.param)

    def put(table: pa.Table) -> str:
        parts = halves(table)
        if kind in ("folder", "pattern", "csv folder"):
            (tmp_path / "in").mkdir()
            for at, part in enumerate(parts):
                if kind == "csv folder":
                    part.to_pandas().to_csv(tmp_path / "in" / f"{at}.csv", index=False)
                else:
                    pq.write_table(part, tmp_path / "in" / f"{at}.parquet", row_group_size=7)
            return str(tmp_path / "in" / "*.parquet") if kind == "pattern" else str(tmp_path / "in")
        if kind in ("object", "store folder", "store pattern"):
            room: Room = request.getfixturevalue("bucket")
            for at, part in enumerate([table] if kind == "object" else parts):
                sink = pa.BufferOutputStream()
                pq.write_table(part, sink)
                room.put(f"in/{at}.parquet", sink.getvalue().to_pybytes())
            return address(
                room,
                {"object": "in/0.parquet", "store folder": "in", "store pattern": "i?/*.parquet"}[kind].replace(
                    "i?", "*"
                ),
            )
        if kind == "iceberg":
            catalog: Catalog = request.getfixturevalue("catalog")
            stored = catalog.create_table("shop.rows", schema=table.schema)
            for part in parts:
                stored.append(part)
            return "iceberg:lake/shop.rows"
        uri, options = str(tmp_path / "delta"), None
        if kind == "s3 delta":
            room = request.getfixturevalue("bucket")
            uri = f"s3://{BUCKET}/{room.prefix}/delta"
            options = {"aws_endpoint": f"http://{room.address}", "aws_allow_http": "true", "aws_region": "us-east-1"}
        for part in parts:
            write_deltalake(uri, part, mode="append", storage_options=options)
        return f"delta:{address(room, 'delta')}" if options else f"delta:{uri}"

    return put


def test_labels_are_checked_and_privatized_from_every_place(run: Run, home: Path, labels: Path, place: Place) -> None:
    where = place(pq.read_table(labels))
    columns = ("--id-column", "example_id", "--label-column", "label", "--domain", "0:10", "--json")
    assert run("check", "--labels", where, *columns).json == run("check", "--labels", labels, *columns).json
    first = run(*arguments(Path(), "m.parquet", labels=where), "--json")
    assert first.json["examples"] == 60
    # the same examples: no second batch, and nothing more is charged without being asked for
    refused(run(*arguments(labels, "n.parquet"), "--json"), 1, "carries release")


def test_features_are_joined_from_every_place(place: Place, tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    features = pa.table({"id": [f"c{i:03d}" for i in range(40)], "x": np.arange(40), "w": np.linspace(0, 1, 40)})
    sender = Sender()
    key = sender.public_key(tmp_path)
    sender.write(tmp_path / "m.parquet", [f"c{i:03d}" for i in range(5, 45)], np.arange(40.0) % 11)
    where = place(features)
    pq.write_table(features, tmp_path / "plain.parquet")
    counts, ids, read = [], [], []
    for at, source in enumerate((where, tmp_path / "plain.parquet")):
        told = shell.json(
            *("join", "--message", "m.parquet", "--labels-key", key, "--features", source),
            *("--id-column", "id", "--out", f"{at}.parquet"),
        )
        counts.append(told["counts"])
        read.append(told["features"])
        joined = pq.read_table(tmp_path / f"{at}.parquet").sort_by("id")
        ids.append({name: joined[name].to_pylist() for name in joined.column_names})
    assert counts[0] == counts[1]
    assert ids[0] == ids[1]
    assert counts[0]["matched"] == 35
    lake = where.startswith(("delta:", "iceberg:"))
    assert read[0].rpartition("@")[2].isdigit() if lake else read[0] == where.partition("?")[0]


def test_a_version_is_the_rows_of_then_and_a_span_those_that_came(tmp_path: Path, catalog: Catalog) -> None:
    first, second = halves(label_table(10))
    stored = catalog.create_table("shop.rows", schema=first.schema)
    for part in (first, second):
        write_deltalake(tmp_path / "d", part, mode="append")
        stored.append(part)
    snapshots = [s.snapshot_id for s in catalog.load_table("shop.rows").snapshots()]
    for at, versions in ((f"delta:{tmp_path / 'd'}", [0, 1]), ("iceberg:lake/shop.rows", snapshots)):
        assert _ids(f"{at}@{versions[0]}") == first["example_id"].to_pylist()
        for span in (f"{versions[0]}..", f"{versions[0]}..{versions[1]}"):
            found = table_at(f"{at}@{span}")
            assert isinstance(found, TableParts)
            assert (found.since, found.snapshot) == (str(versions[0]), str(versions[1]))
            assert _ids(f"{at}@{span}") == second["example_id"].to_pylist()


def test_deleted_and_changedrows_of(tmp_path: Path, catalog: Catalog) -> None:
    table = label_table(10)
    gone, rest = table["example_id"][0].as_py(), table["example_id"].to_pylist()[1:]
    write_deltalake(tmp_path / "d", table)
    DeltaTable(tmp_path / "d").delete(f"example_id = '{gone}'")
    stored = catalog.create_table("shop.rows", schema=table.schema)
    stored.append(table)
    stored.delete(f"example_id = '{gone}'")
    first = catalog.load_table("shop.rows").snapshots()[0].snapshot_id
    for at, version in ((f"delta:{tmp_path / 'd'}", 0), ("iceberg:lake/shop.rows", first)):
        assert _ids(at) == rest
        with pytest.raises(InvalidFile, match="was not only appended to"):
            table_at(f"{at}@{version}..")


def test_a_file_from_elsewhere_keeps_its_columns_when_they_are_renamed(tmp_path: Path, catalog: Catalog) -> None:
    """A file that lacks the numbers of columns is read by the names that they had, unless two had the same."""
    rows = pa.table({"id": ["a"], "v": [1.0], "w": [7.0]})
    pq.write_table(rows, tmp_path / "elsewhere.parquet")
    table = catalog.create_table("shop.rows", rows.schema)
    table.add_files([str(tmp_path / "elsewhere.parquet")])
    more = {"id": ["b"], "before": [2.0], "w": [8.0]}
    for old, new in (("v", "before"), ("w", "v")):
        with table.update_schema() as update:
            update.rename_column(old, new)
        table.append(pa.table(more))
        if new == "before":
            found = sorted(rows_of("iceberg:lake/shop.rows"), key=lambda row: str(row["id"]))
            assert found == [{"id": "a", "before": 1.0, "w": 7.0}, {"id": "b", "before": 2.0, "w": 8.0}]
            more["v"] = more.pop("w")
    with pytest.raises(InvalidFile, match="another column has had"):
        rows_of("iceberg:lake/shop.rows")


def test_columns_that_came_or_were_renamed_later(tmp_path: Path, catalog: Catalog) -> None:
    old, new = pa.table({"id": ["a"], "v": [1.0]}), pa.table({"id": ["b"], "v": [2.0], "w": [3]})
    write_deltalake(tmp_path / "d", old)
    write_deltalake(tmp_path / "d", new, mode="append", schema_mode="merge")
    expected = [{"id": "a", "v": 1.0, "w": None}, {"id": "b", "v": 2.0, "w": 3}]
    assert rows_of(f"delta:{tmp_path / 'd'}") == expected
    stored = catalog.create_table("shop.rows", schema=old.schema)
    stored.append(old)
    with stored.update_schema() as update:
        update.rename_column("v", "value")
    stored.append(pa.table({"id": ["b"], "value": [2.0]}))
    assert rows_of("iceberg:lake/shop.rows") == [{"id": "a", "value": 1.0}, {"id": "b", "value": 2.0}]


def test_partitions_are_columns(tmp_path: Path) -> None:
    table = pa.table({"id": ["a", "b", "c"], "day": ["x", "y é/1", None], "n": [1, 2, 3]})
    write_deltalake(tmp_path / "d", table, partition_by=["day", "n"])
    assert rows_of(f"delta:{tmp_path / 'd'}") == table.to_pylist()


def test_physical_names_of_delta(tmp_path: Path) -> None:
    """Column mapping, as Databricks writes it."""
    write_deltalake(tmp_path / "d", pa.table({"col-1": ["a"], "col-2": [1.0]}))
    log = tmp_path / "d" / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "protocol" in action:
            action["protocol"] = {"minReaderVersion": 2, "minWriterVersion": 5}
        if "metaData" in action:
            schema = json.loads(action["metaData"]["schemaString"])
            for number, (field, name) in enumerate(zip(schema["fields"], ("id", "sum of sales"), strict=True), 1):
                field["metadata"] = {
                    "delta.columnMapping.id": number,
                    "delta.columnMapping.physicalName": field["name"],
                }
                field["name"] = name
            action["metaData"]["schemaString"] = json.dumps(schema)
            action["metaData"]["configuration"] = {
                "delta.columnMapping.mode": "name",
                "delta.columnMapping.maxColumnId": "2",
            }
    log.write_text("\n".join(map(json.dumps, actions)))
    assert rows_of(f"delta:{tmp_path / 'd'}") == [{"id": "a", "sum of sales": 1.0}]


def test_rows_that_a_deletion_vector_marks(tmp_path: Path) -> None:
    """As Databricks deletes: the file stays, and a bitmap in the log names the rows that are gone."""
    write_deltalake(tmp_path / "d", pa.table({"id": ["a", "b", "c", "d", "e"]}))
    log = tmp_path / "d" / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    bitmap = struct.pack("<i", 1681511377) + BitMap64([1, 3]).serialize()
    feature = ["deletionVectors"]
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": feature, "writerFeatures": feature}
    vector = {"storageType": "i", "pathOrInlineDv": z85(bitmap), "sizeInBytes": len(bitmap), "cardinality": 2}
    for action in actions:
        if "protocol" in action:
            action["protocol"] = protocol
        if "metaData" in action:
            action["metaData"]["configuration"] = {"delta.enableDeletionVectors": "true"}
        if "add" in action:
            action["add"]["deletionVector"] = vector
    log.write_text("\n".join(map(json.dumps, actions)))
    found = table_at(f"delta:{tmp_path / 'd'}")
    assert isinstance(found, TableParts)
    assert [row["id"] for row in rows_of(f"delta:{tmp_path / 'd'}")] == ["a", "c", "e"]
    assert found.rows == 3


def z85(data: bytes) -> str:
    """ZeroMQ's base 85."""
    signs = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    words = struct.iter_unpack(">I", data + bytes(-len(data) % 4))
    return "".join(signs[word // 85**power % 85] for (word,) in words for power in (4, 3, 2, 1, 0))


def test_what_is_not_there(run: Run, catalog: Catalog, tmp_path: Path) -> None:
    write_deltalake(tmp_path / "d", label_table(5))
    for where, words in (
        ("delta:nowhere", "There is no Delta table at 'delta:nowhere'."),
        (f"delta:{tmp_path / 'd'}@7", "has no version 7; its newest is 0."),
        (f"delta:{tmp_path / 'd'}@-1", "A version is a whole number: @12"),
        (f"delta:{tmp_path / 'd'}@3..1", "@3..1' ends before it begins."),
        ("iceberg:lake/shop.none", "There is no Iceberg table at"),
        ("iceberg:other/shop.rows", "PYICEBERG_CATALOG__OTHER__URI"),
    ):
        refused(run(*arguments(Path("x"), labels=where)), 2, words)


@pytest.mark.parametrize(("kind", "library"), [("delta", "deltalake"), ("iceberg", "pyiceberg")])
def test_a_missing_extra_is_named(run: Run, monkeypatch: pytest.MonkeyPatch, kind: str, library: str) -> None:
    from label_dp.companions import lakes

    monkeypatch.setattr(lakes, "find_spec", lambda name: None if name == library else object())
    place = "lake/shop.rows"
    refused(run(*arguments(Path("x"), labels=f"{kind}:{place}")), 2, f"needs {library}: pip install", f"[{kind}]")


def _ids(at: str) -> list[str]:
    found = table_at(at)
    assert isinstance(found, TableParts)
    return sorted(str(one) for table in found.tables(["example_id"]) for one in table["example_id"].to_pylist())


# --- rows that came since the last batch ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_seal_notes_its_version_and_the_next_batch_is_what_came_since(
    run: Run, home: Path, tmp_path: Path, catalog: Catalog, kind: str
) -> None:
    table = label_table(30)
    stored = catalog.create_table("shop.rows", schema=table.schema)
    where, seen = {"delta": "delta:d@last..", "iceberg": "iceberg:lake/shop.rows@last.."}[kind], []
    for at, day in enumerate((table.slice(0, 10), table.slice(10, 8), table.slice(18, 12))):
        write_deltalake(tmp_path / "d", day, mode="append")
        stored.append(day)
        result = run(*arguments(Path(), f"{at}.parquet", labels=where, budget="5"), "--json")
        assert result.json["examples"] == day.num_rows
        seen.append(result.json["read"]["labels"])
        # nothing came: nothing is charged
        refused(run(*arguments(Path(), "x.parquet", labels=where, budget="5")), 1, "Nothing was appended to")
    versions = (
        ["0", "1", "2"]
        if kind == "delta"
        else [str(s.snapshot_id) for s in catalog.load_table("shop.rows").snapshots()]
    )
    shown = run("audit", "show", "--kind", "batch-sealed", "--json").json
    noted = [event["details"]["tables"]["labels"] for event in shown]
    assert [one["snapshot"] for one in noted] == versions
    assert [one.get("since") for one in noted] == [None, *versions[:2]]
    # an export goes to others: it says which version, and no place
    assert str(tmp_path) not in json.dumps(shown)
    spans = [versions[0], *(f"{since}..{at}" for since, at in itertools.pairwise(versions))]
    assert seen == [where.replace("last..", span) for span in spans]
    assert f" at {spans[2]}, " in " ".join(run("audit", "show", "--kind", "batch-sealed").out.split())
    assert run("audit", "verify").code == 0
    assert run("audit", "export", "--out", tmp_path / "audit.json").code == 0
    key = VerifyingKey.load(home / "keys" / "signing.pub")
    assert open_export(tmp_path / "audit.json", Ed25519PublicKey.from_public_bytes(key.raw), key.id)[1]


def test_last_is_for_privatize_alone(run: Run, tmp_path: Path) -> None:
    write_deltalake(tmp_path / "d", label_table(5))
    columns = ("--id-column", "example_id", "--label-column", "label")
    said = run("check", "--labels", f"delta:{tmp_path / 'd'}@last..", *columns)
    refused(said, 2, "'last' is the version of the last batch")
