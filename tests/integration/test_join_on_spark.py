"""`join --engine spark`: the rows of a local join, and its refusals; nothing is left of what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from features_party.spark.executor.meeting import Writing
from label_dp.spark.cluster import Cluster
from tests.integration.test_join_files import ASK, KEY, messages
from tests.support.features_cli import Shell
from tests.support.spark_commands import SPARK, spark_shell

pytestmark = pytest.mark.processes


@pytest.fixture
def shell(tmp_path: Path, spark: Cluster, monkeypatch: pytest.MonkeyPatch) -> Shell:
    return spark_shell(tmp_path, spark, monkeypatch, 40)


def features(n: int) -> pa.Table:
    rng = np.random.default_rng(0)
    return pa.table(
        {
            "number": rng.normal(size=n),
            "id": pa.array([f"c{i:05d}" for i in rng.permutation(n)]),
            "group": pa.array([None if i % 7 == 0 else f"g{i % 3}" for i in range(n)]),
            "flag": pa.array([i % 2 == 0 for i in range(n)]),
            "tags": pa.array([["a", None], []] * (n // 2) + [None] * (n % 2)),
            "at": pa.array(np.arange(n), pa.timestamp("ns")),
            "word": pa.array([f"w{i % 2}" for i in range(n)]).dictionary_encode(),
            "count": pa.array(np.arange(n) % 200, pa.uint8()),
        }
    )


def stored(shell: Shell, table: pa.Table, files: int = 3) -> None:
    """As one file for the local engine, and as a folder."""
    pq.write_table(table, shell.folder / "features.parquet")
    (shell.folder / "features").mkdir()
    for i in range(files):
        pq.write_table(table.slice(i * 50, 50), shell.folder / "features" / f"{i}.parquet")


def both(shell: Shell, *named: object) -> tuple[dict[str, Any], dict[str, Any]]:
    local = shell.json("join", *named, *KEY, *ASK, "--out", "local.parquet")
    ask = ("--features", "features", "--id-column", "id", "--out", "spark")
    return local, shell.json("join", *named, *KEY, *ask, *SPARK)


def rows(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    return sorted(found, key=lambda row: (row["id"], row["release"]))


@pytest.mark.parametrize("count", [1, 2])
def test_the_dataset_has_the_rows_of_a_local_join(shell: Shell, count: int) -> None:
    named = messages(shell.folder)[: 2 * count]
    stored(shell, features(150))
    local, spark = both(shell, *named)
    assert rows(shell.folder / "spark") == rows(shell.folder / "local.parquet")
    assert spark["counts"] == local["counts"]
    corrections = [{k: v for k, v in m.items() if k != "already_accepted"} for m in spark["messages"]]
    assert corrections == [{k: v for k, v in m.items() if k != "already_accepted"} for m in local["messages"]]
    names = [path.name for path in sorted((shell.folder / "spark").iterdir())]
    assert names == [f"part-{i:05d}.parquet" for i in range(len(names))]
    assert len(names) > 2
    # the same files whenever it is joined, whichever task was quicker
    shell.run("join", *named, *KEY, "--features", "features", "--id-column", "id", "--out", "again", *SPARK)
    for name in names:
        assert pq.read_table(shell.folder / "again" / name).equals(pq.read_table(shell.folder / "spark" / name))


def test_whole_numbers_are_ids_in_decimal(shell: Shell) -> None:
    from tests.support.messages import Sender, one_bit

    sender = Sender()
    sender.public_key(shell.folder)
    sender.write(shell.folder / "m.parquet", ["7", "-3", "12"], np.array([1.0, 2.0, 3.0]), one_bit())
    stored(shell, pa.table({"id": pa.array([12, 7, -3, 5]), "number": [1.0, 2.0, 3.0, 4.0]}), files=1)
    local, spark = both(shell, "--message", "m.parquet")
    assert spark["counts"] == local["counts"]
    assert rows(shell.folder / "spark") == rows(shell.folder / "local.parquet")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda ids: [*ids[:-1], ids[3]], "2 rows are refused"),
        (lambda ids: [*ids[:-1], None], "between 1 and 512 bytes"),
        (lambda ids: [*ids[:-1], "x" * 513], "between 1 and 512 bytes"),
        (lambda ids: ["x" + i for i in ids], "None of the 250 message rows"),
    ],
)
def test_ids_that_a_local_join_refuses_leave_nothing(shell: Shell, change: Any, said: str) -> None:
    named = messages(shell.folder)
    table = features(150)
    ids = pa.array(change(table["id"].to_pylist()), pa.string())
    stored(shell, table.set_column(1, "id", ids))
    shell.refused("join", *named, *KEY, *ASK, "--out", "local.parquet", code=2)
    ask = ("--features", "features", "--id-column", "id", "--out", "spark")
    told = shell.refused("join", *named, *KEY, *ask, *SPARK, code=2)
    assert said in told
    assert not any(i in told for i in ("xc0", "xxx"))
    assert sorted(p.name for p in shell.folder.iterdir() if "spark" in p.name) == []


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--out", "taken", *SPARK), "'taken' exists already"),
        (("--out", "new", "--list-unmatched", "ids.parquet", *SPARK), "lists no ids without a partner"),
        (("--out", "new", "--master", "local[2]"), "say --engine spark with it"),
        (("--out", "new", "--id-column", "none", *SPARK), "has no column 'none'"),
        (("--out", "new", "--id-column", "number", *SPARK), "must hold text or whole numbers; it holds double"),
        (("--out", "new", "--features", "features.csv", *SPARK), "Spark takes features as Parquet files"),
        (("--out", "s3://shop/new", *SPARK), "Spark writes a folder that every worker sees"),
        (("--out", "new", "--features", "nowhere", *SPARK), "'nowhere' cannot be read (No such file or directory)"),
    ],
)
def test_what_is_asked_wrongly_is_said_before_a_message_is_accepted(shell: Shell, more: Any, said: str) -> None:
    named = messages(shell.folder)
    stored(shell, features(150))
    (shell.folder / "taken").mkdir()
    (shell.folder / "features.csv").write_text("id,number\nc1,2\n")
    assert said in shell.refused("join", *named, *KEY, *ASK, *more, code=2)
    assert not list((shell.folder / "home" / "messages").glob("rel_*"))


def test_a_task_that_is_lost_is_done_again(shell: Shell, spark: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    named = messages(shell.folder)
    stored(shell, features(150))
    notes = shell.folder / "notes"
    notes.mkdir()
    monkeypatch.setattr(spark, "hook", lambda task: Once(task, str(notes)) if isinstance(task, Writing) else task)
    both(shell, *named)
    assert list(notes.iterdir())
    assert rows(shell.folder / "spark") == rows(shell.folder / "local.parquet")


class Once:
    """A task whose first attempt writes its file and then dies."""

    def __init__(self, task: Writing, notes: str) -> None:
        self.task, self.notes, self.columns = task, notes, task.columns

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for record in self.task(batches):
            note = Path(self.notes, "died")
            if record["name"][0].as_py() and not note.exists():
                note.touch()
                raise OSError
            yield record
