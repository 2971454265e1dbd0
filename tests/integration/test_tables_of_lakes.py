"""Commands on folders, patterns, an object store, Delta and Iceberg tables: as on a Parquet file of the same rows."""

from __future__ import annotations

import itertools
import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.utils.config import Config
from pyroaring import BitMap64

from deploy.verify_standalone.audit import verify_audit
from label_dp.columnar.parts import TableParts
from label_dp.documents.signing import VerifyingKey
from label_dp.errors import InvalidFile
from label_dp.store.table_addresses import shown
from label_dp.store.table_files import table_at
from tests.support.features_cli import Shell
from tests.support.labels import label_table
from tests.support.labels_cli import Run, arguments, refused
from tests.support.messages import Sender
from tests.support.object_store import BUCKET, Room

pytestmark = pytest.mark.extended
Place = Callable[[pa.Table], str]


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    """A file catalog `lake` with the namespace `shop`."""
    (tmp_path / "warehouse").mkdir()
    for name, value in {
        "TYPE": "sql",
        "URI": f"sqlite:///{tmp_path}/catalog.db",
        "WAREHOUSE": f"file://{tmp_path}/warehouse",
    }.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name}", value)
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # it is read once a process
    found = load_catalog("lake")
    found.create_namespace("shop")
    return found


def address(room: Room, key: str) -> str:
    """Of an object or a folder in the room."""
    url, _, query = room.url.partition("?")
    return f"{url}/{key}?{query}"


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


def test_deleted_and_changed_rows(tmp_path: Path, catalog: Catalog) -> None:
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


def test_columns_that_came_or_were_renamed_later(tmp_path: Path, catalog: Catalog) -> None:
    old, new = pa.table({"id": ["a"], "v": [1.0]}), pa.table({"id": ["b"], "v": [2.0], "w": [3]})
    write_deltalake(tmp_path / "d", old)
    write_deltalake(tmp_path / "d", new, mode="append", schema_mode="merge")
    expected = [{"id": "a", "v": 1.0, "w": None}, {"id": "b", "v": 2.0, "w": 3}]
    assert _rows(f"delta:{tmp_path / 'd'}") == expected
    stored = catalog.create_table("shop.rows", schema=old.schema)
    stored.append(old)
    with stored.update_schema() as update:
        update.rename_column("v", "value")
    stored.append(pa.table({"id": ["b"], "value": [2.0]}))
    assert _rows("iceberg:lake/shop.rows") == [{"id": "a", "value": 1.0}, {"id": "b", "value": 2.0}]


def test_partitions_are_columns(tmp_path: Path) -> None:
    table = pa.table({"id": ["a", "b", "c"], "day": ["x", "y é/1", None], "n": [1, 2, 3]})
    write_deltalake(tmp_path / "d", table, partition_by=["day", "n"])
    assert _rows(f"delta:{tmp_path / 'd'}") == table.to_pylist()


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
    assert _rows(f"delta:{tmp_path / 'd'}") == [{"id": "a", "sum of sales": 1.0}]


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
    assert [row["id"] for row in _rows(f"delta:{tmp_path / 'd'}")] == ["a", "c", "e"]
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


def _rows(at: str) -> list[Any]:
    found = table_at(at)
    assert isinstance(found, TableParts)
    return sorted(pa.concat_tables(found.tables()).to_pylist(), key=lambda row: str(row["id"]))


def _ids(at: str) -> list[str]:
    found = table_at(at)
    assert isinstance(found, TableParts)
    return sorted(str(one) for table in found.tables(["example_id"]) for one in table["example_id"].to_pylist())


# --- a joined table ---------------------------------------------------------------------------------------------


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
    assert sorted(_rows(f"delta:{shell.folder / 'joined'}"), key=lambda r: r["id"]) == expected
    assert sorted(_rows("iceberg:lake/shop.joined"), key=lambda r: r["id"]) == expected


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
    assert len(_rows(read)) == 41
    # both together hold rows that are there: nothing is doubled, and what is not named stays
    both = ("join", "--message", "m.parquet", "--message", "n.parquet", *rest)
    assert "has rows of rel_1, rel_2 already" in shell.refused(*both, code=1)
    narrow = pq.read_table(shell.folder / "features.parquet").set_column(1, "x", pa.array(np.full(45, 7)))
    pq.write_table(narrow, shell.folder / "features.parquet")
    shell.run("join", "--message", "m.parquet", *rest, "--force")
    rows = _rows(read)
    assert [row["id"] for row in rows] == [*first[1], "c044"]
    assert [row["x"] for row in rows] == [7] * 40 + [44]
    shell.run(*both, "--force")
    assert [row["x"] for row in _rows(read)] == [7] * 41


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
        assert len(_rows(where)) == 40
    assert bucket.keys("joined") == ["joined/part-00000.parquet"]
    metadata = pq.read_schema(pa.BufferReader(bucket.read("joined/part-00000.parquet"))).metadata
    assert metadata[b"label_dp.release"] == b"rel_1"
    shell.run(*JOIN, "features.parquet", "--out", f"delta:{address(bucket, 'lake')}")
    assert len(_rows(f"delta:{address(bucket, 'lake')}")) == 40
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
    assert len(_rows("iceberg:lake/shop.joined")) == 40


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
    assert verify_audit(tmp_path / "audit.json", Ed25519PublicKey.from_public_bytes(key.raw), key.id)


def test_last_is_for_privatize_alone(run: Run, tmp_path: Path) -> None:
    write_deltalake(tmp_path / "d", label_table(5))
    columns = ("--id-column", "example_id", "--label-column", "label")
    said = run("check", "--labels", f"delta:{tmp_path / 'd'}@last..", *columns)
    refused(said, 2, "'last' is the version of the last batch")
