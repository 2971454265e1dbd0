"""Pairs given in any order are read by row, each once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from features_party.tables.join_spilled import AT_ONCE, Ranges


@pytest.mark.parametrize("at_once", [1, 7, 64, AT_ONCE])
@pytest.mark.parametrize("step", [1, 13, 500])
def test_read_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int, step: int) -> None:
    monkeypatch.setattr("features_party.tables.join_spilled.AT_ONCE", at_once)
    rng = np.random.default_rng(at_once + step)
    rows, indices = rng.integers(0, 200, 400), rng.permutation(400)
    ranges = Ranges(tmp_path, "r", 200, 400)
    for part in np.split(np.arange(400), [3, 3, 250]):
        ranges.add(rows[part], indices[part])
    assert ranges.count == 400
    found = [ranges.up_to(stop) for stop in range(step, 200 + step, step)]
    row, index = (np.concatenate(column) for column in zip(*found, strict=True))
    order = np.lexsort((indices, rows))
    assert np.array_equal(row, rows[order])
    assert np.array_equal(index, indices[order])
    assert not list(tmp_path.iterdir())  # a file is gone once it is read


def test_ranges_of_full_width(tmp_path: Path) -> None:
    """At both sides of every border, with the largest index."""
    rows, largest = 3 * AT_ONCE + 5, (1 << 40) - 1
    ranges = Ranges(tmp_path, "r", rows, rows)
    at = np.array([0, AT_ONCE - 1, AT_ONCE, 2 * AT_ONCE - 1, 2 * AT_ONCE, 3 * AT_ONCE - 1, 3 * AT_ONCE + 4])
    ranges.add(at[::-1], np.full(len(at), largest))
    stops = [1, AT_ONCE, AT_ONCE + 1, 2 * AT_ONCE, 3 * AT_ONCE, rows]
    found = [ranges.up_to(stop) for stop in stops]
    assert [row.tolist() for row, _ in found] == [[0], [at[1]], [at[2]], [at[3]], [at[4], at[5]], [at[6]]]
    assert {int(i) for _, index in found for i in index} == {largest}
