"""`train --engine spark`: the model of the local trees, up to which rows share a fold; it predicts without Spark."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from features_party.spark import training as spark_training
from features_party.spark.trees import grow
from label_dp.spark.cluster import Cluster
from tests.support.features_cli import Shell
from tests.support.messages import Sender, one_bit
from tests.support.spark_commands import SPARK, spark_shell

pytestmark = pytest.mark.processes
TREES = (*SPARK, "--model", "trees")
KEY = ("--labels-key", "labels-signing.pub", "--id-column", "id")
N = 6000


@pytest.fixture
def shell(tmp_path: Path, spark: Cluster, monkeypatch: pytest.MonkeyPatch) -> Shell:
    return spark_shell(tmp_path, spark, monkeypatch, 1500)


def examples(seed: int = 0) -> tuple[pa.Table, np.ndarray[Any, Any]]:
    """A number, a small and a large category, a flag and a day; labels of 0 to 10 around what they say."""
    rng = np.random.default_rng(seed)
    age, country, product = rng.normal(40.0, 10.0, N), rng.integers(0, 4, N), rng.integers(0, 150, N)
    signal = 5.0 + 0.12 * (age - 40.0) + np.array([-2.0, 0.0, 1.0, 2.0])[country] + 1.5 * np.sin(product)
    labels = np.clip(np.round(signal), 0, 10).astype(np.float64)
    table = pa.table(
        {
            "id": [f"c{i:05d}" for i in range(N)],
            "age": pa.array(np.where(rng.random(N) < 0.02, np.nan, age)),
            "country": pa.array(np.array(["NA", "DE", "", "US"])[country]),
            "product": pa.array([f"p{i}" for i in product]),
            "flag": pa.array(rng.random(N) < 0.5),
            "day": pa.array(rng.integers(0, 700, N).astype("datetime64[D]")),
            "name": pa.array([f"n{i}" for i in range(N)]),
            "at": pa.array(np.zeros(N, np.int64), pa.timestamp("ns")),
        }
    )
    return table, labels


def world(shell: Shell, more: bool = False) -> np.ndarray[Any, Any]:
    """Features and messages in the folder; `more`: a second message of half of the examples, less noisy."""
    table, labels = examples()
    ids, sender = table["id"].to_pylist(), Sender()
    sender.public_key(shell.folder)
    sender.write(shell.folder / "m1.parquet", ids, labels, one_bit())
    if more:
        half = slice(0, N // 2)
        second = {"release": "rel_2", "batch": "bat_2", "epsilon": "4", "seed": 1}
        sender.write(shell.folder / "m2.parquet", ids[half], labels[half], one_bit(epsilon=4.0), **second)
    pq.write_table(table.take(np.random.default_rng(1).permutation(N)), shell.folder / "features.parquet")
    return labels


def trained(shell: Shell, *more: object, named: tuple[str, ...] = ("m1.parquet",)) -> tuple[Any, Any]:
    """Cards of both engines; their predictions are in local.pq and spark.pq."""
    messages = [part for name in named for part in ("--message", name)]
    ask = ("train", *messages, *KEY, "--features", "features.parquet", *more)
    cards = [
        shell.json(*ask, "--out", "local", "--model", "trees"),
        shell.json(*ask, "--out", "spark", *TREES),
    ]
    for engine in ("local", "spark"):
        at = ("--features", "features.parquet", "--id-column", "id", "--out", f"{engine}.parquet")
        shell.run("predict", "--model", engine, *at)
    return cards[0], cards[1]


def predictions(shell: Shell, engine: str) -> np.ndarray[Any, Any]:
    table = pq.read_table(shell.folder / f"{engine}.parquet").sort_by("id")
    return np.asarray(table["prediction"].to_numpy())


def alike(shell: Shell, labels: np.ndarray[Any, Any], one: str = "local", other: str = "spark") -> None:
    """They err as much, within a twentieth, and differ by less than they err."""
    local, spark = predictions(shell, one), predictions(shell, other)
    errors = [float(np.mean((found - labels) ** 2)) for found in (local, spark)]
    assert errors[1] < 1.05 * errors[0] < 0.4 * float(np.var(labels))
    assert float(np.mean((local - spark) ** 2)) < 0.25 * errors[0]
    assert spark.min() >= 0.0
    assert spark.max() <= 10.0


SAME = ("epsilon", "domain", "features", "statistics", "crossings", "trees", "objective", "kind", "loss")
CAPACITY = ("effective_rows", "depth", "rounds", "rows_per_leaf", "learning_rate", "signal_share")


def test_the_model_is_that_of_the_local_trees(shell: Shell) -> None:
    labels = world(shell)
    local, spark = trained(shell)
    alike(shell, labels)
    assert {name: spark[name] for name in SAME} == {name: local[name] for name in SAME}
    figures = [{name: card["capacity"][name] for name in CAPACITY} for card in (local, spark)]
    assert figures[1] == pytest.approx(figures[0])
    assert spark["statistics"]
    told = ("rows", "matched", "corrected_mean", "noise_variance", "label_variance")
    assert {k: spark["report"][k] for k in told} == pytest.approx({k: local["report"][k] for k in told})
    assert "grown on Spark by 2 workers" in spark["notes"][0]
    assert any("column 'name' was left out" in note for note in spark["notes"])
    assert "Spark holds no rows out" in (shell.folder / "spark" / "card.md").read_text()
    kept = json.loads((shell.folder / "spark" / "model.json").read_text())
    assert kept["body"]["xgboost"]["learner"]["feature_types"].count("c") == 1
    assert not list((shell.folder / "home" / "spill").iterdir())
    # the same again is the same, and events say what was trained
    shell.json("train", "--message", "m1.parquet", *KEY, "--features", "features.parquet", "--out", "again", *TREES)
    assert (shell.folder / "again" / "model.json").read_bytes() == (shell.folder / "spark" / "model.json").read_bytes()
    events = shell.json("audit", "show")
    assert [event["kind"] for event in events].count("model-trained") == 3


def test_messages_that_share_examples_and_the_poisson_loss(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_training, "SOME_CELLS", 4000 * 7)
    labels = world(shell, more=True)
    local, spark = trained(shell, "--loss", "poisson", named=("m1.parquet", "m2.parquet"))
    alike(shell, labels)
    figures = [{name: card["capacity"][name] for name in CAPACITY} for card in (local, spark)]
    assert figures[1] == pytest.approx(figures[0])
    assert spark["report"]["corrected_mean"] == pytest.approx(local["report"]["corrected_mean"])
    assert any("9,000 outputs of 6,000 examples were taken together" in note for note in spark["notes"])
    assert any("were learned from" in note for note in spark["notes"])


@pytest.mark.parametrize("number", [0, 1])
def test_a_worker_that_dies_costs_the_trees_since_the_last_25(
    shell: Shell, spark: Cluster, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """It dies at its first attempt, once trees were kept; the model is as good as that of workers that live."""
    labels = world(shell)
    ask = ("train", "--message", "m1.parquet", *KEY, "--features", "features.parquet", *TREES)
    whole = shell.json(*ask, "--out", "whole")
    notes = shell.folder / "notes"
    notes.mkdir()
    dying = partial(Dying, notes=str(notes), number=number)
    monkeypatch.setattr(spark, "hook", lambda task: dying(task) if getattr(task, "func", None) is grow else task)
    card = shell.json(*ask, "--out", "killed")
    began = [int(note.read_text()) for note in sorted(notes.iterdir())]
    assert began[0] == 0
    assert 25 <= began[1] < whole["trees"] == card["trees"]
    for name in ("whole", "killed"):
        at = ("--features", "features.parquet", "--id-column", "id", "--out", f"{name}.parquet")
        shell.run("predict", "--model", name, *at)
    alike(shell, labels, "whole", "killed")  # the columns that later trees see are drawn anew


@dataclass(frozen=True)
class Dying:
    """A worker's task; the worker of that number ends its process at the first attempt. `notes`: a folder that tells of
    each attempt how many trees there were when it began."""

    task: Any
    notes: str
    number: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import xgboost as xgb
        from pyspark import BarrierTaskContext

        so_far, attempt = self.task.args[-1], len(list(Path(self.notes).iterdir()))
        trees = xgb.Booster(model_file=so_far).num_boosted_rounds() if so_far.exists() else 0
        if BarrierTaskContext.get().partitionId() == self.number:
            Path(self.notes, str(attempt)).write_text(str(trees))
            if attempt == 0:
                Thread(target=self._die, args=(so_far,), daemon=True).start()
        yield from self.task(batches)

    def _die(self, so_far: Path) -> None:
        while not so_far.exists():
            time.sleep(0.001)
        os._exit(1)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--model", "linear"), "Spark trains the model trees; the model linear needs the local engine"),
        (("--warm-start", "m_1"), "Spark takes no earlier model up"),
        (("--loss", "absolute"), "Spark trains with the losses squared and poisson, and here it is absolute"),
        (("--exclude", "none"), "There is no feature column 'none'"),
        (("--categorical", "age"), "On Spark a category holds text, whole numbers, booleans or dates"),
        (("--list-unmatched", "ids.parquet"), "Spark lists no ids without a partner"),
    ],
)
def test_what_the_local_engine_alone_does_is_said(shell: Shell, more: Any, said: str) -> None:
    world(shell)
    ask = ("--message", "m1.parquet", *KEY, "--features", "features.parquet", "--out", "model", "--engine", "spark")
    assert said in shell.refused("train", *ask, *more, code=2)
    assert not (shell.folder / "model").exists()
    assert not list((shell.folder / "home" / "spill").iterdir())


def test_codes_that_the_driver_cannot_hold_are_refused(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_training, "SHARE", 10.0)
    world(shell)
    shell.env["FEATURES_PARTY_TRAINING_MEMORY_MB"] = "1"
    spark_only = ("--message", "m1.parquet", *KEY, "--features", "features.parquet", "--out", "model", *TREES)
    told = shell.refused("train", *spark_only, code=2)
    assert "Raise FEATURES_PARTY_TRAINING_MEMORY_MB" in told
