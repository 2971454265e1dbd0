"""What tasks of a join and of a training do, called without any engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from features_party.spark.executor.blocks import FEATURES, HASH, MESSAGES, REFUSED, Blocks, unpacked
from features_party.spark.executor.encoding import LABEL, WEIGHT, Codes, Looks, Matrix, PoissonObjective, Some
from features_party.spark.executor.meeting import BIN, MESSAGE, Meeting
from features_party.tables.label_columns import LabelColumns
from features_party.training.effects import Effects
from features_party.training.encoding import FeatureSchema
from features_party.training.learner import ModelInput
from features_party.training.learners.trees import TreeInput
from features_party.training.links import PoissonScore
from label_dp.spark.task import TaskFailed

N, PARTS = 600, 3
LABELS = LabelColumns(
    ("a", "b"), np.array([0, 2]), np.arange(5.0), np.arange(5.0) * 10.0, np.array([4.0, 4.0, 1.0, 1.0, 1.0])
)


def hashes(ids: list[str]) -> np.ndarray[Any, Any]:
    """Any that are the same on both sides."""
    return np.array([int.from_bytes(i.encode(), "big") * 0x9E3779B97F4A7C15 % (1 << 62) for i in ids])


def feature_rows() -> pa.RecordBatch:
    rng = np.random.default_rng(0)
    ids = [f"c{i:04d}" for i in rng.permutation(N)]
    groups = pa.array([f"g{i}" for i in rng.integers(0, 80, N)])
    columns = {"id": ids, "x": rng.normal(size=N), "group": groups, HASH: hashes(ids)}
    return pa.record_batch(columns)


def message_rows() -> pa.RecordBatch:
    """The first message has half of the ids and some more, the second every third one."""
    first, second = [f"c{i:04d}" for i in range(300, 700)], [f"c{i:04d}" for i in range(0, N, 3)]
    ids = first + second
    message = np.array([0] * len(first) + [1] * len(second), np.int32)
    bins = np.where(message == 0, np.arange(len(ids)) % 2, np.arange(len(ids)) % 3).astype(np.int32)
    return pa.record_batch({"example_id": ids, MESSAGE: message, BIN: bins, HASH: hashes(ids)})


def blocks(*more: pa.RecordBatch) -> list[pa.RecordBatch]:
    mine, theirs = feature_rows(), message_rows()
    features = Blocks(FEATURES, "id", PARTS)(iter([mine.slice(0, 100), mine.slice(100), *more]))
    return [*features, *Blocks(MESSAGES, "example_id", PARTS)(iter([theirs]))]


def of_part(found: list[pa.RecordBatch], part: int) -> Iterator[pa.RecordBatch]:
    for batch in found:
        yield batch.filter(pa.array(batch["part"].to_numpy() == part))


def met(folder: Path, found: list[pa.RecordBatch], bare: bool = False) -> list[dict[str, Any]]:
    folder.mkdir(exist_ok=True)
    meeting = Meeting("id", LABELS, str(folder), bare)
    return [next(meeting(of_part(found, part))).to_pylist()[0] for part in range(PARTS)]


def expected() -> list[tuple[str, str, float]]:
    features, rows = set(feature_rows()["id"].to_pylist()), message_rows().to_pylist()
    index = [int(LABELS.starts[row[MESSAGE]]) + row[BIN] for row in rows]
    there = [(row["example_id"], "ab"[row[MESSAGE]], at * 10.0) for row, at in zip(rows, index, strict=True)]
    return sorted(row for row in there if row[0] in features)


def test_rows_of_one_id_meet_in_one_part(tmp_path: Path) -> None:
    records = met(tmp_path / "out", blocks())
    tables = [pq.read_table(tmp_path / "out" / record["name"]) for record in records]
    rows = [row for table in tables for row in table.to_pylist()]
    assert sorted((r["id"], r["release"], r["corrected_label"]) for r in rows) == expected()
    x = dict(zip(*(feature_rows()[name].to_pylist() for name in ("id", "x")), strict=True))
    assert all(row["x"] == x[row["id"]] for row in rows)
    assert tables[0].column_names == ["id", "x", "group", "raw_label", "corrected_label", "noise_variance", "release"]
    whole = {name: sum(record[name] for record in records) for name in ("feature_rows", "message_rows", "alone")}
    assert whole == {"feature_rows": N, "message_rows": 600, "alone": 100}
    ids = [row["id"] for row in rows]
    assert sum(record["examples"] for record in records) == len(set(ids))
    assert sum(record["several"] for record in records) == len(ids) - len(set(ids)) == 100


def test_a_file_does_not_depend_on_the_order_of_blocks(tmp_path: Path) -> None:
    found = blocks()
    one, other = met(tmp_path / "one", found), met(tmp_path / "other", found[::-1])
    for a, b in zip(one, other, strict=True):
        assert pq.read_table(tmp_path / "one" / a["name"]).equals(pq.read_table(tmp_path / "other" / b["name"]))


def test_ids_that_break_a_rule_are_counted_and_not_quoted(tmp_path: Path) -> None:
    wrong = ["", None, "secret" * 100]
    bad = pa.record_batch({"id": wrong, "x": [1.0] * 3, "group": ["g"] * 3, HASH: np.zeros(3, np.int64)})
    found = blocks(bad, feature_rows().slice(5, 2))
    (refused,) = (row for batch in found for row in batch.to_pylist() if row["kind"] == REFUSED)
    assert np.frombuffer(refused["block"], "<i8").tolist() == [3]
    records = met(tmp_path / "out", found)
    assert sum(record["refused"] for record in records) == 3
    assert sum(record["repeated"] for record in records) == 2
    assert not any(b"secret" in row["block"] for batch in found for row in batch.to_pylist())


def test_what_a_task_raises_quotes_nothing(tmp_path: Path) -> None:
    with pytest.raises(TaskFailed, match=r"^FileNotFoundError$"):
        list(Meeting("id", LABELS, str(tmp_path / "gone"))(iter(blocks())))
    with pytest.raises(TaskFailed, match=r"^KeyError$"):
        list(Blocks(FEATURES, "none", PARTS)(iter([feature_rows()])))


# --- training -----------------------------------------------------------------------------------------------


@pytest.fixture
def looks(tmp_path: Path) -> Looks:
    records = met(tmp_path / "out", blocks(), bare=True)
    paths = tuple(str(tmp_path / "out" / record["name"]) for record in records)
    return Looks(paths, LABELS.corrected, LABELS.noise_variance)


def test_outputs_of_one_example_are_one_row_of_least_noise(looks: Looks) -> None:
    by_id: dict[int, list[float]] = {}
    for _, release, value in expected():
        assert release in "ab"
        by_id.setdefault(len(by_id), []).append(value)
    rows = [looks.read(number) for number in range(PARTS)]
    assert sum(len(found.labels) for found in rows) == len({i for i, _, _ in expected()})
    noise = np.concatenate([found.noise for found in rows])
    assert set(np.round(noise, 9)) == {4.0, 1.0, 0.8}  # 1/(1/4 + 1) of both
    assert {int(fold) for found in rows for fold in found.fold} == set(range(5))
    assert rows[0].features.column_names == ["x", "group"]


def test_how_often_outputs_come_together_is_told(tmp_path: Path, looks: Looks) -> None:
    from features_party.spark.joined import _outputs

    records = met(tmp_path / "again", blocks(), bare=True)
    sets, often = _outputs([record["outputs"] for record in records])
    assert int(often.sum()) == sum(record["examples"] for record in records)
    labels, noise = looks.of(sets)
    rows = [looks.read(number) for number in range(PARTS)]
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
    found = pa.Table.from_batches(list(matrix(iter([pa.record_batch({"id": [1]})]))))
    effects = np.array([[folds[f].tables[0][c + 1]] for f, c in zip(rows.fold, encoded.codes[:, 0], strict=True)])
    wanted = TreeInput.of(ModelInput(encoded, effects.astype(np.float32), schema.sizes))
    assert matrix.kinds == wanted.kinds
    columns = [found[name].to_numpy() for name in found.column_names]
    assert np.array_equal(np.column_stack(columns[:-2]), wanted.matrix(), equal_nan=True)
    assert found.column_names[-2:] == [LABEL, WEIGHT]
    assert columns[-2].tolist() == rows.labels.astype(np.float32).tolist()
    weights = dict(zip(np.round(rows.noise, 9).tolist(), columns[-1].tolist(), strict=True))
    assert weights == {0.8: 3.0, 1.0: 2.0, 4.0: 1.0}
    record = Codes(looks, schema).one(1)
    assert np.frombuffer(record["codes"], "<i4").tolist() == encoded.codes[:, 0].tolist()
    some = Some(looks, (5, 7, 9)).one(1)
    assert unpacked([some["features"]]).equals(looks.read(1, 7).features)


def test_the_poisson_objective_takes_negative_labels_and_weights() -> None:
    class Data:
        def get_label(self) -> np.ndarray[Any, Any]:
            return np.array([-3.0, 5.0], np.float32)

        def get_weight(self) -> np.ndarray[Any, Any]:
            return np.array([2.0, 1.0], np.float32)

    link = PoissonScore.around(2.0, 0.0, 10.0)
    gradient, hessian = PoissonObjective(link)(np.zeros(2, np.float32), Data())
    plain = link.gradients(np.zeros(2), np.array([-3.0, 5.0]))
    assert gradient.tolist() == (plain[0] * [2.0, 1.0]).tolist()
    assert hessian.tolist() == (plain[1] * [2.0, 1.0]).tolist()
