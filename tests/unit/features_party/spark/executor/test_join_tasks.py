"""What tasks of a join and of a training do, called without any engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from features_party.spark.executor.blocks import (
    AT,
    FEATURES,
    ID,
    MATCHES,
    MESSAGES,
    ROW_BITS,
    Blocks,
    Piece,
    block_rows,
    packed,
    runs,
    sum_counts,
    unpacked,
)
from features_party.spark.executor.encoding import ExampleArrays, Looks, Matrix, poisson_gradients
from features_party.spark.executor.meeting import DRAW_BITS, Meeting, Writing
from features_party.tables.buckets import IdHash
from features_party.tables.label_columns import LabelColumns
from features_party.training.effects import Effects
from features_party.training.encoding import FeatureSchema
from features_party.training.learner import ModelInput
from features_party.training.learners.trees import TreeInput
from features_party.training.links import PoissonScore
from label_dp.spark.task import TaskFailed

N, PARTS, MOST = 600, 3, 150
KEY = IdHash.keyed(b"key")
LABELS = LabelColumns(
    ("a", "b"), np.array([0, 2]), np.arange(5.0), np.arange(5.0) * 10.0, np.array([4.0, 4.0, 1.0, 1.0, 1.0])
)
Batches = list[pa.RecordBatch]


def feature_rows() -> pa.Table:
    rng = np.random.default_rng(0)
    ids = [f"c{i:04d}" for i in rng.permutation(N)]
    return pa.table({"id": ids, "x": rng.normal(size=N), "group": [f"g{i}" for i in rng.integers(0, 80, N)]})


def message_rows() -> list[pa.Table]:
    """The first message has half of the ids and some more, the second every third one."""
    ids = [f"c{i:04d}" for i in range(300, 700)], [f"c{i:04d}" for i in range(0, N, 3)]
    bins = [pa.array(np.arange(len(one)) % (2 + at), pa.uint8()) for at, one in enumerate(ids)]
    return [pa.table({"example_id": one, "bin": of}) for one, of in zip(ids, bins, strict=True)]


def pieces(folder: Path, features: pa.Table) -> tuple[Piece, ...]:
    """Two of the features, of one row group and of two, and one of each message."""
    folder.mkdir(exist_ok=True)
    pq.write_table(features, folder / "features.parquet", row_group_size=200)
    of = [Piece(str(folder / "features.parquet"), range(1), 0, 200)]
    of.append(Piece(str(folder / "features.parquet"), range(1, 9), 200, features.num_rows - 200))
    for at, rows in enumerate(message_rows()):
        pq.write_table(rows, folder / f"{at}.parquet")
        of.append(Piece(str(folder / f"{at}.parquet"), range(1 << 31), 0, rows.num_rows, message=at))
    return tuple(of)


def numbers(*of: int) -> Iterator[pa.RecordBatch]:
    return iter([pa.record_batch({"id": [number]}) for number in of])


def of_part(found: Batches, part: int) -> Iterator[pa.RecordBatch]:
    for batch in found:
        yield batch.filter(pa.array(batch["part"].to_numpy() == part))


def blocks(of: tuple[Piece, ...], schema: pa.Schema) -> Batches:
    return list(Blocks(of, schema, "id", LABELS.starts, IdHash.fresh(), PARTS)(numbers(*range(len(of)))))


def matched(found: Batches) -> Batches:
    return [batch for part in range(PARTS) for batch in Meeting(2)(of_part(found, part))]


def written(folder: Path, features: pa.Table | None = None, bare: bool = False, backwards: bool = False) -> Batches:
    """Records of the files in `folder`, in their order."""
    table = feature_rows() if features is None else features
    of = pieces(folder.parent / "in", table)
    folder.mkdir()
    names = tuple(table.column_names)
    writing = Writing(of[:2], table.schema, names, "id", LABELS, str(folder), MOST, KEY if bare else None)
    found = blocks(of, table.schema)
    met = matched(found[::-1] if backwards else found)
    return [record for part in range(2) for record in writing(of_part(met[::-1] if backwards else met, part))]


def files(records: Batches) -> list[dict[str, Any]]:
    rows = [row for batch in records for row in batch.to_pylist()]
    assert all(row["problem"] is None for row in rows)
    return [row for row in rows if row["name"]]


def counts(records: Batches) -> dict[str, int]:
    return sum_counts([row["counts"] for batch in records for row in batch.to_pylist() if row["counts"]])


def expected() -> list[tuple[str, str, float]]:
    features, found = set(feature_rows()["id"].to_pylist()), []
    for at, rows in enumerate(message_rows()):
        values = (LABELS.starts[at] + rows["bin"].to_numpy()) * 10.0
        found += [(i, "ab"[at], value) for i, value in zip(rows["example_id"].to_pylist(), values, strict=True)]
    return sorted(row for row in found if row[0] in features)


def test_runs_of_a_rising_column() -> None:
    for kind in (np.uint16, np.int64):
        assert runs(np.array([], kind))[1] == []
        present, places = runs(np.array([0, 0, 3, 65535, 65535], kind))
        assert (present.tolist(), places) == ([0, 3, 65535], [(0, 2), (2, 3), (3, 5)])


def test_rows_of_one_id_meet_in_the_order_of_the_features(tmp_path: Path) -> None:
    records = written(tmp_path / "out")
    tables = [pq.read_table(tmp_path / "out" / record["name"]) for record in files(records)]
    assert [(record["piece"], record["row"]) for record in files(records)] == [
        (0, 0),
        (0, 150),
        (1, 0),
        (1, 150),
        (1, 300),
    ]
    rows = [row for table in tables for row in table.to_pylist()]
    assert sorted((r["id"], r["release"], r["corrected_label"]) for r in rows) == expected()
    place = {i: at for at, i in enumerate(feature_rows()["id"].to_pylist())}
    assert [(place[r["id"]], r["release"]) for r in rows] == sorted((place[r["id"]], r["release"]) for r in rows)
    x = dict(zip(*(feature_rows()[name].to_pylist() for name in ("id", "x")), strict=True))
    assert all(row["x"] == x[row["id"]] for row in rows)
    assert tables[0].column_names == ["id", "x", "group", "raw_label", "corrected_label", "noise_variance", "release"]
    assert counts(records) == {"feature_rows": N, "message_rows": 600, "alone": 100}
    ids = [row["id"] for row in rows]
    assert sum(record["matched"] for record in files(records)) == len(ids)
    assert sum(record["examples"] for record in files(records)) == len(set(ids))
    assert sum(record["several"] for record in files(records)) == len(ids) - len(set(ids)) == 100


def test_a_table_may_have_more_pieces_than_sixteen_bits_count() -> None:
    ids, places = pa.array(["a", "b"], pa.large_string()), [3, 70_000 << ROW_BITS | 5]
    features, messages = (packed(pa.table({ID: ids, AT: at})) for at in (places, [1, 2]))
    given = [block_rows([0], kind, [block]) for kind, block in ((FEATURES, features), (MESSAGES, messages))]
    rows = [row for batch in Meeting(80_000)(iter(given)) for row in batch.to_pylist() if row["kind"] == MATCHES]
    assert [row["part"] for row in rows] == [0, 70_000]
    assert [int(np.frombuffer(row["block"], "<i8")[0]) for row in rows] == [3 << 32 | 1, 5 << 32 | 2]


def test_a_file_does_not_depend_on_the_order_of_blocks(tmp_path: Path) -> None:
    one, other = (files(written(tmp_path / str(way), backwards=way)) for way in (False, True))
    for a, b in zip(one, other, strict=True):
        assert pq.read_table(tmp_path / "False" / a["name"]).equals(pq.read_table(tmp_path / "True" / b["name"]))


def test_ids_that_break_a_rule_are_counted_and_not_quoted(tmp_path: Path) -> None:
    table = feature_rows()
    ids = table["id"].to_pylist()
    ids[7], ids[250], ids[251], ids[300] = "", None, "secret" * 100, ids[5]
    wrong = table.set_column(0, "id", pa.array(ids, pa.string()))
    found = counts(written(tmp_path / "out", wrong))
    place = 1 << 40  # of the second piece, which begins at row 200
    assert (found["refused"], found["refused_at"]) == (3, 7)
    # rows beside a refused one are not looked at
    assert found.get("repeated", 0) == 0
    repeated = table.set_column(0, "id", pa.array([*table["id"].to_pylist()[:-1], table["id"][400].as_py()]))
    found = counts(written(tmp_path / "again", repeated))
    assert (found["repeated"], found["repeated_at"]) == (2, place + 200)
    told = blocks(pieces(tmp_path / "in", wrong), wrong.schema)
    assert not any(b"secret" in row["block"] for batch in told for row in batch.to_pylist())


def test_a_column_that_a_folder_names_is_written(tmp_path: Path) -> None:
    table = feature_rows()
    schema = table.schema.append(pa.field("day", pa.date32()))
    of = pieces(tmp_path / "in", table)
    day = pa.scalar(19000, pa.int32()).cast(pa.date32())
    own = tuple(Piece(one.address, one.groups, one.start, one.rows, {"day": day}) for one in of[:2])
    writing = Writing(own, schema, tuple(schema.names), "id", LABELS, str(tmp_path), MOST)
    records = list(writing(of_part(matched(blocks((*own, *of[2:]), schema)), 0)))
    names = [record["name"] for record in files(records)]
    assert {str(day) for name in names for day in pq.read_table(tmp_path / name)["day"]} == {str(day)}


def test_what_a_task_raises_quotes_nothing(tmp_path: Path) -> None:
    of, schema = pieces(tmp_path / "in", feature_rows()), feature_rows().schema
    met = matched(blocks(of, schema))
    with pytest.raises(TaskFailed, match=r"^FileNotFoundError$"):
        list(Writing(of[:2], schema, ("id", "x"), "id", LABELS, str(tmp_path / "gone"), MOST)(of_part(met, 0)))
    with pytest.raises(TaskFailed, match=r"^InvalidTable$"):
        list(Blocks(of, schema, "none", LABELS.starts, KEY, PARTS)(numbers(0)))
    (tmp_path / "in" / "features.parquet").unlink()
    with pytest.raises(TaskFailed, match=r"^FileNotFoundError$"):
        list(Blocks(of, schema, "id", LABELS.starts, KEY, PARTS)(numbers(0)))


# --- training -----------------------------------------------------------------------------------------------


@pytest.fixture
def looks(tmp_path: Path) -> Looks:
    records = files(written(tmp_path / "out", bare=True))
    paths = tuple(str(tmp_path / "out" / record["name"]) for record in records)
    return Looks(paths, LABELS.corrected, LABELS.noise_variance)


def test_outputs_of_one_example_are_one_row_of_least_noise(looks: Looks) -> None:
    by_id: dict[int, list[float]] = {}
    for _, release, value in expected():
        assert release in "ab"
        by_id.setdefault(len(by_id), []).append(value)
    rows = [looks.read(number) for number in range(len(looks.paths))]
    assert sum(len(found.labels) for found in rows) == len({i for i, _, _ in expected()})
    noise = np.concatenate([found.noise for found in rows])
    assert set(np.round(noise, 9)) == {4.0, 1.0, 0.8}  # 1/(1/4 + 1) of both
    assert {int(fold) for found in rows for fold in found.fold} == set(range(5))
    assert rows[0].features.column_names == ["x", "group"]


def test_how_often_outputs_come_together_is_told(tmp_path: Path, looks: Looks) -> None:
    from features_party.spark.joined import _outputs

    records = files(written(tmp_path / "again", bare=True))
    sets, often = _outputs([record["outputs"] for record in records])
    assert int(often.sum()) == sum(record["examples"] for record in records)
    labels, noise = looks.of(sets)
    rows = [looks.read(number) for number in range(len(looks.paths))]
    every = np.concatenate([found.labels for found in rows])
    assert float(np.average(labels, weights=often)) == pytest.approx(float(every.mean()))
    assert float(np.average(noise, weights=often)) == pytest.approx(
        float(np.concatenate([found.noise for found in rows]).mean())
    )


def test_trees_see_what_those_of_a_local_training_see(looks: Looks) -> None:
    rows = looks.read(1)
    schema = FeatureSchema.learn(rows.features, categorical=["group"])
    encoded = schema.encode(rows.features)
    folds = tuple(Effects((np.arange(schema.sizes[0]) + 100.0 * at,)) for at in range(5))
    matrix = Matrix(looks, schema, folds, np.array([0.8, 1.0, 4.0]), np.array([3.0, 2.0, 1.0]))
    inputs, labels, weights = matrix.of_file(1)
    effects = np.array([[folds[f].tables[0][c + 1]] for f, c in zip(rows.fold, encoded.codes[:, 0], strict=True)])
    wanted = TreeInput.of(ModelInput(encoded, effects.astype(np.float32), schema.sizes))
    assert matrix.kinds == wanted.kinds
    assert np.array_equal(inputs, wanted.matrix(), equal_nan=True)
    assert labels.tolist() == rows.labels.tolist()
    assert weights is not None
    assert dict(zip(np.round(rows.noise, 9).tolist(), weights.tolist(), strict=True)) == {
        0.8: 3.0,
        1.0: 2.0,
        4.0: 1.0,
    }
    none = Matrix(looks, schema, folds, np.empty(0), np.empty(0))
    assert none.of_file(1)[2] is None
    data = matrix.binned([0, 1], 1, 256)
    assert (data.num_row(), data.num_col()) == (len(looks.read(0).labels) + len(labels), len(matrix.kinds))
    assert data.get_label()[-len(labels) :].tolist() == labels.astype(np.float32).tolist()
    assert data.get_weight()[-len(labels) :].tolist() == weights.tolist()
    record = ExampleArrays(looks, schema=schema).one(1)
    assert np.frombuffer(record["codes"], "<i4").tolist() == encoded.codes[:, 0].tolist()
    below = 1 << (DRAW_BITS - 2)
    some = ExampleArrays(looks, below).one(1)
    assert unpacked([some["features"]]).equals(rows.features.filter(pa.array(rows.draws < below)))
    assert 0.05 < len(np.frombuffer(some["draws"], "<u8")) / len(rows.labels) < 0.5


def test_the_poisson_objective_takes_negative_labels_and_weights() -> None:
    class Data:
        def get_label(self) -> np.ndarray[Any, Any]:
            return np.array([-3.0, 5.0], np.float32)

        def get_weight(self) -> np.ndarray[Any, Any]:
            return np.array([2.0, 1.0], np.float32)

    link = PoissonScore.around(2.0, 0.0, 10.0)
    gradient, hessian = poisson_gradients(link, np.zeros(2, np.float32), Data())
    plain = link.gradients(np.zeros(2), np.array([-3.0, 5.0]))
    assert gradient.tolist() == (plain[0] * [2.0, 1.0]).tolist()
    assert hessian.tolist() == (plain[1] * [2.0, 1.0]).tolist()
