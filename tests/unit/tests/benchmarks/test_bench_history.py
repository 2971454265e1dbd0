"""The part "history" of `make bench` on a small scale: what it says is opened is what the tiers leave."""

from __future__ import annotations

import pytest

from tests.benchmarks import bench_history

pytestmark = pytest.mark.extended


def test_it_tells_how_many_runs_a_seal_opens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_history, "IDS", 20)
    monkeypatch.setattr(bench_history, "PREFIXED", 3)
    found = bench_history.lines((1, 7, 8, 9))
    opened = {line.size: line.figure for line in found if line.name == "comparison, opened"}
    assert opened == {1: 1, 7: 7, 8: 1, 9: 2}
    (apart,) = (line.figure for line in found if line.name == "opened under a prefix of its own")
    assert apart == 0
