"""`join --out` on files of any size: the same rows as a join in memory, types kept, every id counted, nothing left."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

from features_party.tables.feature_files import FeatureFile
from features_party.tables.feature_tables import feature_table
from features_party.tables.join import join, list_unmatched
from features_party.tables.join_spilled import SpilledJoin
from label_dp.channels.base import Channel
from label_dp.columnar.tables import read_table
from label_dp.documents.signing import VerifyingKey
from label_dp.errors import InvalidFile, InvalidRows, InvalidTable
from tests.support.features_cli import Shell
from tests.support.messages import Sender, draw, features_party, one_bit, rr, world

pytestmark = pytest.mark.extended

KEY = ("--labels-key", "labels-signing.pub")
ASK = ("--features", "features.parquet", "--id-column", "id")


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def odd_features(n: int) -> pa.Table:
    """Every kind of column that a feature file may have."""
    rng = np.random.default_rng(0)
    return pa.table(
        {
            "number": rng.normal(size=n),
            "id": pa.array([f"c{i:05d}" for i in rng.permutation(n)]),
            "money": pa.array([Decimal(i) / 100 for i in range(n)], pa.decimal128(12, 2)),
            "huge": pa.array([Decimal(i) for i in range(n)], pa.decimal256(60, 3)),
            "zoned": pa.array([dt.datetime(2026, 1, 1, tzinfo=dt.UTC)] * n, pa.timestamp("us", "America/New_York")),
            "nanos": pa.array(range(n), pa.timestamp("ns")),
            "day": pa.array([dt.date(2026, 1, 1)] * n),
            "time": pa.array([dt.time(1, 2, 3, 4)] * n, pa.time64("us")),
            "group": pa.array([f"g{i % 3}" for i in range(n)]).dictionary_encode(),
            "tags": pa.array([["a", None], []] * (n // 2) + [None] * (n % 2)),
            "struct": pa.array([{"x": i, "y": [i]} for i in range(n)]),
            "map": pa.array([[("k", i)] for i in range(n)], pa.map_(pa.string(), pa.int32())),
            "bytes": pa.array([bytes([i % 256]) for i in range(n)]),
            "fixed": pa.array([b"abcd"] * n, pa.binary(4)),
            "small": pa.array([i % 100 for i in range(n)], pa.int8()),
            "half": pa.array(np.arange(n, dtype=np.float16)),
            "flag": pa.array([None if i % 5 == 0 else i % 2 == 0 for i in range(n)]),
            "large": pa.array(["x"] * n, pa.large_string()),
            "nothing": pa.nulls(n),
        }
    )


def messages(folder: Path, parts: int = 1) -> list[str]:
    """Two that share the ids c00050 … c00099; ids from c00150 on have no features."""
    sender = Sender()
    sender.public_key(folder)
    for name, start, stop, channel in (("m1", 0, 100, one_bit()), ("m2", 50, 200, rr())):
        ids = [f"c{i:05d}" for i in range(start, stop)]
        path = folder / (f"{name}.parquet" if parts == 1 else name)
        labels = np.arange(stop - start, dtype=np.float64) % 11
        sender.write(path, ids, labels, channel, release=f"rel_{name}", batch=f"bat_{name}", parts=parts)
    suffix = ".parquet" if parts == 1 else ""
    return ["--message", f"m1{suffix}", "--message", f"m2{suffix}"]


@pytest.mark.parametrize("parts", [1, 3])
def test_every_column_type_survives_and_every_id_is_counted(shell: Shell, parts: int) -> None:
    features = odd_features(150)
    pq.write_table(features, shell.folder / "features.parquet", row_group_size=40)
    named = messages(shell.folder, parts)
    told = shell.json("join", *named, *KEY, *ASK, "--out", "out.parquet", "--list-unmatched", "lonely.csv")
    assert told["counts"] == {
        "messages": 2,
        "message_rows": 250,
        "feature_rows": 150,
        "matched": 200,
        "message_ids_without_features": 50,
        "features_without_message": 0,
        "ids_in_several_messages": 50,
        "unmatched_warning": None,
    }
    out = pq.read_table(shell.folder / "out.parquet")
    assert out.schema.names[: len(features.schema)] == features.schema.names
    for field in features.schema:
        assert out.schema.field(field.name).type == field.type
    # the features' order, and in it that of the messages
    ids = features["id"].to_pylist()
    expected = [(i, f"rel_m{m}") for i in ids for m in (1, 2) if (m == 1) == (i < "c00100") or "c00050" <= i < "c00100"]
    assert list(zip(out["id"].to_pylist(), out["release"].to_pylist(), strict=True)) == expected
    position = pa.array([ids.index(i) for i in out["id"].to_pylist()])
    assert out.select(features.schema.names).equals(features.take(position))
    lonely = csv.read_csv(shell.folder / "lonely.csv")
    assert sorted(lonely["example_id"].to_pylist()) == [f"c{i:05d}" for i in range(150, 200)]
    assert set(lonely["missing_in"].to_pylist()) == {"features"}
    assert list((shell.folder / "home" / "spill").iterdir()) == []


@pytest.mark.parametrize(("bucket_bytes", "pairs"), [(1 << 20, 1 << 20), (200, 1 << 20), (1 << 20, 16), (50, 1)])
def test_the_same_labels_as_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bucket_bytes: int, pairs: int
) -> None:
    """In one bucket and in many, those of messages finer than those of features."""
    monkeypatch.setattr("features_party.tables.join_spilled.AT_ONCE", pairs)
    party, features = features_party(tmp_path / "home"), odd_features(240).slice(40)
    pq.write_table(features, tmp_path / "features.parquet", row_group_size=7)
    messages(tmp_path)
    key = VerifyingKey.load(tmp_path / "labels-signing.pub")
    accepted = [party.messages.accept(tmp_path / f"{name}.parquet", key) for name in ("m1", "m2")]
    file = FeatureFile.open(tmp_path / "features.parquet", "id")
    with SpilledJoin.open(file, tmp_path / "spill", lambda _w, _s: None, memory_mb=64) as work:
        work.bucket_bytes = bucket_bytes
        work.load_features()
        work.load_messages(accepted, "auto")
        counts = work.write(tmp_path / "out.parquet", unmatched=tmp_path / "lonely.parquet")
    memory = join(accepted, feature_table(features, "id"))
    list_unmatched(memory, tmp_path / "memory.parquet")
    assert counts.message_ids_without_features > 5 < counts.features_without_message
    lonely, others = (pq.read_table(tmp_path / f"{name}.parquet") for name in ("lonely", "memory"))
    assert lonely.equals(others.cast(lonely.schema))
    columns = ["id", "raw_label", "corrected_label", "noise_variance", "release"]
    labelled = memory.labelled(memory.table.whole).select(columns)
    assert pq.read_table(tmp_path / "out.parquet").select(columns).equals(labelled)
    assert counts == memory.counts
    assert not (tmp_path / "spill").exists()


def test_whole_number_ids_keep_their_type(shell: Shell) -> None:
    sender = Sender()
    sender.public_key(shell.folder)
    sender.write(shell.folder / "m.parquet", ["1", "20", "3"], np.array([1.0, 2.0, 3.0]))
    pq.write_table(
        pa.table({"id": pa.array([20, 1, 7], pa.int32()), "f": [1, 2, 3]}), shell.folder / "features.parquet"
    )
    told = shell.json("join", "--message", "m.parquet", *KEY, *ASK, "--out", "out.parquet")
    out = pq.read_table(shell.folder / "out.parquet")
    assert out["id"].to_pylist() == [20, 1]
    assert out.schema.field("id").type == pa.int32()
    assert told["counts"]["features_without_message"] == 1


def test_csv_in_and_out(shell: Shell) -> None:
    messages(shell.folder)
    rows = [f"c{i:05d},{'' if i == 3 else i},{'x' if i == 140 else i}" for i in range(150)]
    (shell.folder / "features.parquet").write_text("id,n,mixed\n" + "\n".join(rows) + "\n")
    shell.run("join", *messages(shell.folder), *KEY, *ASK, "--out", "out.csv")
    out = csv.read_csv(shell.folder / "out.csv")
    assert out.num_rows == 200
    assert out.column_names == ["id", "n", "mixed", "raw_label", "corrected_label", "noise_variance", "release"]
    assert out.schema.field("n").type == pa.int64()
    assert out["n"].null_count == 1


def test_nothing_is_overwritten_and_nothing_half_written(shell: Shell) -> None:
    named = messages(shell.folder)
    pq.write_table(odd_features(150), shell.folder / "features.parquet")
    (shell.folder / "out.parquet").write_text("precious")
    ask = ("join", *named, *KEY, *ASK)
    assert "--force" in shell.refused(*ask, "--out", "out.parquet", code=2)
    assert (shell.folder / "out.parquet").read_text() == "precious"
    assert shell.json("audit", "show") == []  # refused before anything was accounted for
    shell.run(*ask, "--out", "out.parquet", "--force")
    assert pq.read_table(shell.folder / "out.parquet").num_rows == 200
    # a CSV cannot hold nested columns: said after the fact, and nothing is left of it
    assert ".parquet" in shell.refused(*ask, "--out", "out.csv", code=2)
    assert sorted(p.name for p in shell.folder.iterdir() if "out" in p.name) == ["out.parquet"]


@pytest.mark.parametrize(
    ("table", "kind", "says"),
    [
        (pa.table({"id": ["a", "b", "a"], "f": [1, 2, 3]}), InvalidRows, "earlier row"),
        (pa.table({"id": ["a", None], "f": [1, 2]}), InvalidRows, "is empty"),
        (pa.table({"id": [1.5], "f": [1]}), InvalidTable, "text or whole numbers"),
        (pa.table({"id": ["a"], "raw_label": [1]}), InvalidTable, "raw_label"),
        (pa.table({"id": pa.array([], pa.string())}), InvalidTable, "no rows"),
        (pa.table({"other": ["a"]}), InvalidTable, "no column 'id'"),
        (pa.table([["a"], [1], [2]], names=["id", "f", "f"]), InvalidTable, "more than one column 'f'"),
    ],
)
def test_bad_features(tmp_path: Path, table: pa.Table, kind: type[Exception], says: str) -> None:
    pq.write_table(table, tmp_path / "f.parquet")

    def load() -> None:
        file = FeatureFile.open(tmp_path / "f.parquet", "id")
        with SpilledJoin.open(file, tmp_path / "s", lambda _w, _s: None, memory_mb=64) as work:
            work.load_features()

    with pytest.raises(kind, match=says):
        load()
    assert not (tmp_path / "s").exists()


def test_repeated_ids_in_many_buckets_are_all_counted(tmp_path: Path) -> None:
    ids = [f"c{i % 150}" for i in range(200)] + ["c7"]
    pq.write_table(pa.table({"id": ids}), tmp_path / "f.parquet")
    file = FeatureFile.open(tmp_path / "f.parquet", "id")
    with SpilledJoin.open(file, tmp_path / "s", lambda _w, _s: None, memory_mb=64) as work:
        work.bucket_bytes = 50
        with pytest.raises(InvalidRows) as refusal:
            work.load_features()
    assert refusal.value.total == 51
    assert [problem.row for problem in refusal.value.problems] == list(range(150, 170))


def test_rows_are_counted_over_the_whole_file(tmp_path: Path) -> None:
    ids = [f"x{i}" for i in range(200_000)]
    ids[150_000] = ""
    pq.write_table(pa.table({"id": ids}), tmp_path / "f.parquet")
    with pytest.raises(InvalidRows) as refusal:
        list(FeatureFile.open(tmp_path / "f.parquet", "id").ids())
    assert refusal.value.problems[0].row == 150_000


@pytest.mark.parametrize("data", [b"", b"PAR1", b"\x00\xff\xfe garbage", b"id,f\n1,2,3\n"])
def test_unreadable_files(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "f").write_bytes(data)
    with pytest.raises((InvalidFile, InvalidTable)):
        FeatureFile.open(tmp_path / "f", "id")


@pytest.mark.parametrize(
    "reader", [lambda p: read_table(p), lambda p: list(FeatureFile.open(p, "id").ids())], ids=["whole", "parts"]
)
def test_a_csv_line_with_too_few_values_is_named(tmp_path: Path, reader: Any) -> None:
    path = tmp_path / "f.csv"
    path.write_text('id,f\n1,"two\nlines"\n\n2\n')
    with pytest.raises(InvalidFile, match=r"Line 5 of '.*f\.csv' has 1 value, but its header names 2 columns"):
        reader(path)


def test_csv_types_are_those_that_print_as_every_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read in small blocks, with types that break late: no cell changes, and numbers and dates are such."""
    monkeypatch.setattr("features_party.tables.feature_files.CSV_BLOCK", 160)
    rng, path, kinds = np.random.default_rng(0), tmp_path / "f.csv", set()
    values = ["", "7", "1.5", "3.0", "true", "2020-01-02", "00037", "1.10", "1E1", "NA", "+49", "abc", '""', "True"]
    values += ["9223372036854775808", "12345678901234567890.5", "2020-01-02 10:00:00"]
    for _ in range(300):
        drawn = [rng.choice(values, rng.integers(1, 3)) for _ in range(3)]
        rows = [[str(i), *(str(rng.choice(k)) for k in drawn)] for i in range(rng.integers(1, 30))]
        path.write_text("\n".join(["id,a,b,c", *map(",".join, rows)]) + "\n")
        text, typed = (pa.concat_tables(FeatureFile.open(path, "id", typed=typed).batches()) for typed in (False, True))
        cells = [[None if cell == "" else cell.strip('"') for cell in column] for column in zip(*rows, strict=True)]
        assert [column.to_pylist() for column in text.columns] == cells
        for column, expected in zip(typed.columns, cells, strict=True):
            kinds.add(str(column.type))
            printed = column.cast(pa.string()).to_pylist()
            if pa.types.is_floating(column.type):
                expected = [cell if cell is None else cell.removesuffix(".0") for cell in expected]
            assert printed == expected
    assert kinds == {"string", "int64", "double", "bool", "date32[day]"}


def three_days(folder: Path) -> tuple[list[Channel], list[Any]]:
    """Daily messages with their own mechanism and ε, of different people."""
    sender, channels = Sender(), [one_bit(epsilon=1.0), rr(epsilon=2.0), one_bit(epsilon=4.0)]
    sender.public_key(folder)
    (folder / "in").mkdir()
    days = [world(3000, seed=day, prefix=f"day{day}-") for day in range(3)]
    for day, (channel, w) in enumerate(zip(channels, days, strict=True)):
        sender.write(
            folder / "in" / f"day-{day}.parquet", w.ids, w.labels, channel, release=f"rel_{day}", batch=f"bat_{day}",
            epsilon=("1", "2", "4")[day], prior=np.full(11, 1 / 11),
        )  # fmt: skip
    pq.write_table(pa.concat_tables([w.table("id") for w in days]), folder / "features.parquet")
    return channels, days


def test_each_day_is_corrected_by_its_own_channel(shell: Shell) -> None:
    """Against fresh draws of each day's channel: the corrected labels are its outputs' corrections, and the noise
    variance is that of the corrected label around its expectation, averaged over the day's prior."""
    channels, days = three_days(shell.folder)
    shell.run("join", "--message", "in", *KEY, *ASK, "--out", "out.parquet", "--correction", "debias")
    out = pq.read_table(shell.folder / "out.parquet")
    for day, (channel, w) in enumerate(zip(channels, days, strict=True)):
        rows = out.filter(pa.compute.equal(out["release"].cast(pa.string()), f"rel_{day}"))
        assert rows["id"].to_pylist() == w.ids
        corrected = channel.debiased_outputs()
        at = np.searchsorted(channel.outputs, rows["raw_label"].to_numpy())
        assert np.array_equal(rows["corrected_label"].to_numpy(), corrected[at])
        (noise,) = set(rows["noise_variance"].to_pylist())
        # the day's prior is uniform: draw for labels that are, as often as it takes for 1 %
        labels = np.repeat(channel.labels, 20_000)
        z = corrected[draw(channel, labels, seed=day)].reshape(11, -1)
        assert noise == pytest.approx(float(z.var(axis=1).mean()), rel=0.02)


def test_folders_patterns_and_further_messages(shell: Shell) -> None:
    three_days(shell.folder)
    ask = ("join", *KEY, *ASK)
    for number, named in enumerate(
        (
            ("--message", "in"),
            ("--message", "in/*.parquet"),  # as it is, which the command expands
            ("--message", "in/day-0.parquet", "in/day-0.prior.parquet", "in/day-1.parquet", "in/day-2.parquet"),
            ("--message", "in/day-0.parquet", "--message", "in"),
        )
    ):
        told = shell.json(*ask, *named, "--out", f"out-{number}.parquet")
        assert [m["release"] for m in told["messages"]] == ["rel_0", "rel_1", "rel_2"]
    (shell.folder / "empty").mkdir()
    assert "no message in 'empty'" in shell.refused(*ask, "--message", "empty", "--out", "o.parquet", code=2)


def test_a_training_says_when_a_table_is_too_large(shell: Shell) -> None:
    three_days(shell.folder)
    big = pq.read_table(shell.folder / "features.parquet")
    wide = {f"f{i}": np.random.default_rng(i).normal(size=big.num_rows) for i in range(40)}
    pq.write_table(pa.table({"id": big["id"], **wide}), shell.folder / "features.parquet")
    shell.env["FEATURES_PARTY_TRAINING_MEMORY_MB"] = "1"
    said = shell.refused("train", "--message", "in", *KEY, *ASK, "--out", "model", code=2)
    assert "FEATURES_PARTY_TRAINING_MEMORY_MB" in said
    assert "--engine disk" in said
    shell.run("join", "--message", "in", *KEY, *ASK, "--out", "out.parquet")  # which works
