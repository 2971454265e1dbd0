"""Commands of the features party whose cluster is the shared session of the tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from features_party.spark import files as on_spark
from features_party.spark import joined
from label_dp.spark.cluster import Cluster
from tests.support.features_cli import Shell

SPARK = ("--engine", "spark")


def spark_shell(folder: Path, spark: Cluster, monkeypatch: pytest.MonkeyPatch, rows: int) -> Shell:
    """With parts of so many rows."""

    @contextmanager
    def shared(_master: str | None) -> Iterator[Cluster]:
        yield spark

    assert spark.parallelism  # starts it: Java writes lines of its own then, and a refusal is one line
    monkeypatch.setattr(on_spark, "started", shared)
    monkeypatch.setattr(joined, "CELLS", 1)
    monkeypatch.setattr(joined, "FEWEST_ROWS", rows)
    return Shell(folder)
