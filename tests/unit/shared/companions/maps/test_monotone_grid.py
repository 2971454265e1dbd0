"""The map of two scores: what it is, its one spelling, and how it is applied by steps and by straight lines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from label_dp.companions.maps.monotone import MonotoneMap
from label_dp.companions.maps.monotone_grid import MonotoneGrid
from label_dp.companions.maps.score_maps import PairMap, ScoreMap
from label_dp.companions.maps.scores import ScoreGrid
from label_dp.documents.canonical import canonical_bytes, parse_canonical
from label_dp.errors import InvalidInput
from tests.support.calibrations import grid_map

GRID = grid_map()
SCORES = ScoreGrid.parse("0:10:100"), ScoreGrid.parse("0:1:10")


def changed(**members: object) -> dict[str, object]:
    return {**GRID.as_json(), **members}


@st.composite
def grids(draw: st.DrawFn) -> MonotoneGrid:
    edges = [sorted(draw(st.sets(st.integers(1, size - 1), max_size=4))) for size in (100, 10)]
    shape = tuple(len(e) + 1 for e in edges)
    rises = np.array(draw(st.lists(st.floats(0, 1e6), min_size=shape[0] * shape[1], max_size=shape[0] * shape[1])))
    values = np.maximum.accumulate(np.maximum.accumulate(rises.reshape(shape), axis=0), axis=1)
    return MonotoneGrid((100, 10), (np.array(edges[0], np.int64), np.array(edges[1], np.int64)), values)


def test_breakpoints_belong_to_the_cells_that_they_begin() -> None:
    found = GRID.apply(np.array([0, 49, 50, 99, 50]), np.array([0, 3, 2, 9, 6]))
    assert found.tolist() == [0.0, 1.0, 0.5, 9.0, 9.0]
    assert GRID.apply(np.empty(0, np.int64), np.empty(0, np.int64)).size == 0


@pytest.mark.parametrize(("first", "second"), [([-1], [0]), ([100], [0]), ([0], [10]), ([0.5], [0]), ([1, 2], [1])])
def test_only_pairs_of_its_domain_are_mapped(first: Any, second: Any) -> None:
    with pytest.raises(InvalidInput):
        GRID.apply(np.array(first), np.array(second))


@settings(max_examples=60, deadline=None)
@given(grids())
def test_canonical_json_gives_back_the_same_map(sent: MonotoneGrid) -> None:
    received = MonotoneGrid.from_json(parse_canonical(canonical_bytes(sent.as_json())))
    assert received == sent
    assert hash(received) == hash(sent)
    assert received.values.tobytes() == sent.values.tobytes()


@settings(max_examples=60, deadline=None)
@given(grids(), st.booleans(), st.integers(0, 2**32))
def test_neither_steps_nor_lines_fall_or_leave_the_values(found: MonotoneGrid, lines: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    first, second = np.sort(rng.uniform(-2, 12, 30)), np.sort(rng.uniform(-0.2, 1.2, 30))
    a, b = np.meshgrid(first, second, indexing="ij")
    applied = PairMap(SCORES, found, lines).apply(a.reshape(-1), b.reshape(-1)).reshape(30, 30)
    slack = 1e-12 * float(found.values[-1, -1])
    assert np.diff(applied, axis=0).min() >= -slack
    assert np.diff(applied, axis=1).min() >= -slack
    assert found.values[0, 0] <= applied.min()
    assert applied.max() <= found.values[-1, -1]


def test_a_grid_of_one_row_is_a_map_of_one_score() -> None:
    cuts, values = np.array([2, 5]), np.array([0.0, 3.0, 4.0])
    one = MonotoneMap(10, cuts, values)
    row = MonotoneGrid((100, 10), (np.empty(0, np.int64), cuts), values[None, :])
    second = np.linspace(-1, 2, 100)
    for lines in (False, True):
        wanted = ScoreMap(SCORES[1], one, lines).apply(second)
        assert PairMap(SCORES, row, lines).apply(np.full(100, 7.0), second) == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {**GRID.as_json(), "more": 1},
        changed(kind="step"),
        changed(x_sizes=[100]),
        changed(x_sizes=[100, "10"]),
        changed(x_sizes=[True, 10]),
        changed(x_sizes=[40, 10]),
        changed(x_sizes=[100, (1 << 32) + 1]),
        changed(breakpoints=[[50]]),
        changed(breakpoints=[[50], 3]),
        changed(breakpoints=[[50], [3]]),
        changed(breakpoints=[[50], [6, 3]]),
        changed(breakpoints=[[50], [3, 10]]),
        changed(breakpoints=[[0], [3, 6]]),
        changed(breakpoints=[[50.0], [3, 6]]),
        changed(breakpoints=[[1 << 70], [3, 6]]),
        changed(values=[]),
        changed(values=[[], []]),
        changed(values=["0.0", "1.0"]),
        changed(values=[["0.0", "1.0", "2.5"], ["0.5", "4.0"]]),
        changed(values=[["0.0", "1.0", "2.5"], ["0.5", "0.25", "9.0"]]),
        changed(values=[["0.0", "1.0", "2.5"], ["0.5", "4.0", "2.0"]]),
        changed(values=[["0.0", "1.0", "2.5"], ["0.5", "4.0", "nan"]]),
        changed(values=[["0.0", "1.0", "2.5"], ["0.5", "4.0", "1e999"]]),
        changed(values=[["0.0", "1.0", "2.5"], ["0.5", "4.0", "9"]]),
        changed(values=[[0.0, 1.0, 2.5], [0.5, 4.0, 9.0]]),
        changed(values=[["0.0"] * 300] * 300),
        MonotoneMap(10, np.array([3]), np.array([0.0, 1.0])).as_json(),
    ],
)
def test_anything_else_is_refused(data: object) -> None:
    with pytest.raises(InvalidInput):
        MonotoneGrid.from_json(data)


def test_a_reader_of_one_score_refuses_a_map_of_two() -> None:
    """What every reader before this map did with the `map` of an answer."""
    with pytest.raises(InvalidInput):
        MonotoneMap.from_json(GRID.as_json())
    with pytest.raises(InvalidInput):
        grid_map(((0.0, 1.0, np.inf), (0.5, 4.0, np.inf)))
