"""The benchmark of the network says why it measures nothing, and measures on a CPU when it is told to."""

from __future__ import annotations

from typing import Any

import pytest

from tests.benchmarks import bench_gpu
from tests.unit.features_party.training.learners import test_mlp

torch = test_mlp.torch


def test_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_gpu, "obstacle", lambda: "there is no GPU here")
    (line,) = bench_gpu.lines()
    assert (line.name, line.figure, line.note) == ("nothing was measured", 0.0, "there is no GPU here")


def test_it_measures_few_rows_on_a_cpu(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_gpu, "EPOCHS", 2)
    monkeypatch.setattr(bench_gpu, "VALUES", 50)
    preparation, loop, both = bench_gpu.measured(12_000)
    assert 0.0 < preparation.figure < both.figure
    assert loop.figure > 0.0
    assert both.name == "12,000 rows × 39, 2 epochs"
