"""A short season: all that happens in a long one, with few rows; the long one is `python -m tests.season`."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from tests.season.__main__ import table
from tests.season.season import Day, Season
from tests.support.object_store import Room
from tests.support.postgres import Databases

pytestmark = [pytest.mark.extended, pytest.mark.usefixtures("migrations_themselves")]


def test_nothing_is_lost_or_spent_twice(postgres_databases: Databases, bucket: Room, tmp_path: Path) -> None:
    with ExitStack() as stack:
        season = Season(
            tmp_path,
            lambda: stack.enter_context(postgres_databases.empty(bare=True)),
            bucket,
            rows=20,
            days=6,
            populations=3,
        )
        days = season.run(lambda _day: None)
    assert len(days) == 6
    assert len(season.batches) == 6 * 3
    assert sum("upgraded" in note for note in season.notes) == 2
    assert any("full disk" in note for note in season.notes)


def test_what_grows_faster_than_days_is_seen() -> None:
    """The control: a table whose digests grow as the square of the days, and one whose pages become slow."""
    steady = [Day(day, 0.1, 0.2, 0.1, 0.05, *(1000 * (day + 1),) * 5, backup=500 * (day + 1)) for day in range(30)]
    assert table(steady)[1]
    square = [replace(day, digests=day.digests**2) for day in steady]
    slow = [replace(day, page=0.05 * (1 + day.day / 30)) for day in steady]
    assert [table(days)[1] for days in (square, slow)] == [False, False]
    assert "too few" in table([replace(day, backup=0) for day in steady])[0][4]
