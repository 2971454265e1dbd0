"""Commands of the features party whose cluster is the shared session of the tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from features_party.spark import features
from features_party.spark import files as on_spark
from label_dp.spark.cluster import Cluster
from tests.support.features_cli import Shell

SPARK = ("--engine", "spark")


def spark_shell(folder: Path, spark: Cluster, monkeypatch: pytest.MonkeyPatch, rows: int) -> Shell:
    """With parts of so many rows."""

    @contextmanager
    def shared(_master: str | None) -> Iterator[Cluster]:
        yield spark

    spark.ask(lambda session: session.conf.set("spark.sql.legacy.parquet.nanosAsLong", "true"))  # as `on_spark.OPTIONS`
    assert spark.parallelism  # starts it: Java writes lines of its own then, and a refusal is one line
    monkeypatch.setattr(on_spark, "started", shared)
    monkeypatch.setattr(features, "CELLS", 1)
    monkeypatch.setattr(features, "FEWEST_ROWS", rows)
    return Shell(folder)
