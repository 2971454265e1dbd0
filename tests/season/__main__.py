"""`python -m tests.season`: ninety days in at most an hour, on PostgreSQL and OpenStack Swift; plots, and what grew.

What is stored may grow as the days do, and no time may grow with them. The exit code is 1 where something grew faster.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from tests.season.season import Day, Season
from tests.support import object_store, postgres, swift_store

RESULTS = Path(__file__).parent / "results"
STORED = {
    "database": "database, bytes",
    "digests": "digests of ids, bytes",
    "chain": "audit events",
    "backup": "backup, bytes",
}
TIMES = {
    "seal": "seal of a batch",
    "release": "release of a batch",
    "accept": "receipt of a message",
    "page": "slowest page",
}
MOST_GROWTH = 1.3  # of what a day adds, from the first third of the season to the last
MOST_SLOWER = 1.5  # of a median time, likewise
FEWEST = 4  # days with a figure


def growth(days: Sequence[Day], name: str) -> float:
    """What a day adds in the last third over what it adds in the first, of days that have the figure."""
    rows = [(day.day, float(getattr(day, name))) for day in days if getattr(day, name)]
    third = max(2, len(rows) // 3)
    slopes = [(part[-1][1] - part[0][1]) / (part[-1][0] - part[0][0]) for part in (rows[:third], rows[-third:])]
    return slopes[1] / slopes[0] if slopes[0] > 0 else float("nan")


def slower(days: Sequence[Day], name: str) -> float:
    """The median of the last third over that of the first."""
    values, third = [float(getattr(day, name)) for day in days], max(1, len(days) // 3)
    return float(np.median(values[-third:]) / np.median(values[:third]))


def table(days: Sequence[Day]) -> tuple[list[str], bool]:
    """Lines of what grew, and whether all of it stays within its bound."""
    lines, good = [f"{'':26}{'first day':>14}{'last day':>16}{'growth':>9}{'at most':>9}"], True
    for names, measure, most in ((STORED, growth, MOST_GROWTH), (TIMES, slower, MOST_SLOWER)):
        for name, title in names.items():
            values = [value for day in days if (value := getattr(day, name))]
            if len(values) < FEWEST:
                lines.append(f"{title:26}{'too few days have one':>39}")
                continue
            ratio = measure(days, name)
            good &= not ratio > most
            first, last = (f"{v:,}" if isinstance(v, int) else f"{1000 * v:.1f} ms" for v in (values[0], values[-1]))
            lines.append(f"{title:26}{first:>14}{last:>16}{ratio:>9.2f}{most:>9}")
    return lines, good


def draw(days: Sequence[Day], out: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 7), layout="constrained")
    for axis, names, unit in zip(figure.subplots(2, 1), (STORED, TIMES), (1.0, 1000.0), strict=True):
        for name, title in names.items():
            points = [(day.day, unit * getattr(day, name)) for day in days if getattr(day, name)]
            axis.plot(*zip(*points, strict=True), marker="." if name == "backup" else "", label=title)
        axis.set_yscale("log")
        axis.set_xlabel("day")
        axis.set_ylabel("stored" if unit == 1.0 else "ms")
        axis.legend()
    figure.savefig(out, dpi=110)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.season", description=__doc__)
    parser.add_argument("--days", type=int, default=90)
    parser.add_argument("--rows", type=int, default=100_000, help="labels of a batch (default 100,000)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", action="store_true", help="keep the figures in tests/season/results")
    asked = parser.parse_args()
    began = time.monotonic()
    with ExitStack() as stack:
        environment = stack.enter_context(pytest.MonkeyPatch.context())
        for name, value in object_store.CREDENTIALS.items():
            environment.setenv(name, value)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        databases = postgres.Databases(stack.enter_context(postgres.server()))
        stack.callback(databases.close)
        room = stack.enter_context(swift_store.server(folder / "swift")).room()
        season = Season(
            folder / "home",
            lambda: stack.enter_context(databases.empty(bare=True)),
            room,
            asked.rows,
            asked.days,
            seed=asked.seed,
        )
        days = season.run(
            lambda day: print(f"day {day + 1} of {asked.days}, {time.monotonic() - began:.0f} s", file=sys.stderr)
        )
    lines, good = table(days)
    labels = sum(1 for _ in season.batches) * asked.rows
    text = "\n".join(
        [
            f"{asked.days} days, {len(season.batches)} batches, {labels:,} labels, {time.monotonic() - began:.0f} s",
            *lines,
        ]
    )
    print(text)
    if asked.keep:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "season.txt").write_text(text + "\n")
        (RESULTS / "season.json").write_text(json.dumps([asdict(day) for day in days]) + "\n")
        draw(days, RESULTS / "season.png")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
