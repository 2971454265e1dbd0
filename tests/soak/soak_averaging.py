"""A thousand attempts (at the default scale) to be told more of one label than its budget allows."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.soak.conftest import Scale
from tests.soak.report import Report
from tests.support.averaging import World
from tests.support.averaging_moves import PER_ATTACK, run
from tests.support.posterior import seen_counts

ATTEMPTS = 1000
PER_WORLD = 4 * PER_ATTACK


@pytest.mark.parametrize(("y", "other"), [(9, 1), (0, 10)])
def test_averaging(y: int, other: int, scale: Scale, report: Report, tmp_path: Path) -> None:
    """Of two label vectors each half; a world is one labels party, its seed repeats it."""
    end, share = time.monotonic() + scale.seconds, 0.0
    worlds: list[World] = []
    try:
        with seen_counts() as counts:
            while sum(w.tried for w in worlds) < ATTEMPTS // 2 and time.monotonic() < end:
                seed = scale.seed + len(worlds)
                world = World(tmp_path / f"{seed}" / "home", seed, counts, y, other)
                worlds.append(world)
                try:
                    run(world, PER_WORLD)
                finally:
                    world.close()
    finally:
        tried, refused, charged = (sum(getattr(w, name) for w in worlds) for name in ("tried", "refused", "charged"))
        share = max(w.share for w in worlds)
        limit = f"refused {refused:,} times, {charged:,} messages, at most {share:.0%} of the charged ε given away"
        whole = sum(w.whole for w in worlds)
        report.row(tried, whole, f"{limit} (worlds from seed {scale.seed})")
