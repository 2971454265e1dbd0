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

import pyarrow as pa
import pytest

from features_party.spark import training as spark_training
from features_party.spark.trees import grow
from label_dp.spark.cluster import Cluster
from tests.support.features_cli import Shell
from tests.support.spark_commands import SPARK, spark_shell
from tests.support.trees_from_files import KEY, alike, learns_from_two_messages, predicted, same_choices, trained, world

pytestmark = pytest.mark.processes
TREES = (*SPARK, "--model", "trees")


@pytest.fixture
def shell(tmp_path: Path, spark: Cluster, monkeypatch: pytest.MonkeyPatch) -> Shell:
    return spark_shell(tmp_path, spark, monkeypatch, 1500)


def test_the_model_is_that_of_the_local_trees(shell: Shell) -> None:
    labels = world(shell)
    local, spark = trained(shell, "spark")
    alike(shell, labels, "local", "spark")
    same_choices(local, spark)
    assert spark["statistics"]
    assert "grown on Spark" in spark["notes"][0]
    assert any("column 'name' was left out" in note for note in spark["notes"])
    assert "a training from files holds no rows out" in (shell.folder / "spark" / "card.md").read_text()
    kept = json.loads((shell.folder / "spark" / "model.json").read_text())
    assert kept["body"]["xgboost"]["learner"]["feature_types"].count("c") == 1
    assert not list((shell.folder / "home" / "spill").iterdir())
    # the same again is the same, and events say what was trained
    shell.json("train", "--message", "m1.parquet", *KEY, "--features", "features.parquet", "--out", "again", *TREES)
    assert (shell.folder / "again" / "model.json").read_bytes() == (shell.folder / "spark" / "model.json").read_bytes()
    events = shell.json("audit", "show")
    assert [event["kind"] for event in events].count("model-trained") == 3


def test_messages_that_share_examples_and_the_poisson_loss(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    learns_from_two_messages(shell, "spark", monkeypatch)


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
    predicted(shell, "whole", "killed")
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
        (("--model", "linear"), "--engine spark trains the model trees; the model linear needs the local engine"),
        (("--warm-start", "m_1"), "--engine spark takes no earlier model up"),
        (("--loss", "absolute"), "--engine spark trains with the losses squared and poisson, not with absolute"),
        (("--exclude", "none"), "There is no feature column 'none'"),
        (("--categorical", "age"), "On Spark a category holds text, whole numbers, booleans or dates"),
        (("--list-unmatched", "ids.parquet"), "lists no ids without a partner"),
    ],
)
def test_what_the_local_engine_alone_does_is_said(shell: Shell, more: Any, said: str) -> None:
    world(shell)
    ask = ("--message", "m1.parquet", *KEY, "--features", "features.parquet", "--out", "model", "--engine", "spark")
    assert said in shell.refused("train", *ask, *more, code=2)
    assert not (shell.folder / "model").exists()
    assert not list((shell.folder / "home" / "spill").iterdir())


def test_codes_that_the_driver_cannot_hold_are_refused(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_training, "COPIES", 10.0)
    world(shell)
    shell.env["FEATURES_PARTY_TRAINING_MEMORY_MB"] = "1"
    spark_only = ("--message", "m1.parquet", *KEY, "--features", "features.parquet", "--out", "model", *TREES)
    told = shell.refused("train", *spark_only, code=2)
    assert "Raise FEATURES_PARTY_TRAINING_MEMORY_MB" in told
