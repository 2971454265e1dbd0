"""A thousand attempts (at the default scale) to be told more of one label than its budget allows."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.soak.conftest import Scale
from tests.soak.report import Report
from tests.support import postgres
from tests.support.averaging import World
from tests.support.averaging_moves import PER_ATTACK, run
from tests.support.posterior import seen_counts

ATTEMPTS = 500  # on either engine
PER_WORLD = 4 * PER_ATTACK


@pytest.mark.parametrize(("engine", "y", "other"), [("sqlite", 9, 1), ("postgresql", 0, 10)])
def test_averaging(
    engine: str,
    y: int,
    other: int,
    scale: Scale,
    report: Report,
    tmp_path: Path,
    postgres_databases: postgres.Databases,
) -> None:
    """A world is one labels party; the seed of its first, plus its number, repeats it."""
    end, worlds = time.monotonic() + scale.seconds, list[World]()
    try:
        while sum(w.tried for w in worlds) < ATTEMPTS and time.monotonic() < end:
            with ExitStack() as stack:
                url = stack.enter_context(postgres_databases.empty()) if engine == "postgresql" else None
                counts, seed = stack.enter_context(seen_counts()), scale.seed + len(worlds)
                worlds.append(World(tmp_path / f"{seed}" / "home", seed, counts, y, other, url))
                stack.callback(worlds[-1].close)
                run(worlds[-1], PER_WORLD)
    finally:
        tried, within, refused, charged = (
            sum(getattr(w, name) for w in worlds) for name in ("tried", "whole", "refused", "charged")
        )
        share = max((w.share for w in worlds), default=0.0)
        limit = f"refused {refused:,} times, {charged:,} messages, at most {share:.0%} of the charged ε given away"
        report.row(tried, within, f"{limit}; first world of seed {scale.seed}")
