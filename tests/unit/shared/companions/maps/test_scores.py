"""Numbers of scores: monotone, the same for both parties, total on finite floats."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from label_dp.companions.maps.scores import LARGEST, ScoreGrid
from label_dp.errors import InvalidInput

GRIDS = ["float32", "0:1:65536", "-3.5:7:11", "0:400:1", "-1e30:1e30:4294967296"]
FLOATS = st.floats(allow_nan=False, allow_infinity=False)


@pytest.mark.parametrize("text", GRIDS)
@given(st.lists(FLOATS, min_size=2, max_size=20))
def test_larger_scores_never_get_smaller_numbers(text: str, scores: list[float]) -> None:
    grid = ScoreGrid.parse(text)
    numbers = grid.index(np.sort(np.array(scores)))
    assert np.all(np.diff(numbers) >= 0)
    assert numbers[0] >= 0
    assert numbers[-1] < grid.size <= 1 << 32
    assert ScoreGrid.parse(str(grid)) == grid


def test_float32_numbers_every_float_in_order_and_zero_once() -> None:
    grid = ScoreGrid.parse("float32")
    assert grid.index(np.array([-0.0, 0.0])).tolist() == [LARGEST, LARGEST]
    ends = np.array([-math.inf, math.inf], np.float32)
    tiny = np.float64(np.nextafter(np.float32(0), np.float32(1)))
    assert grid.index(np.array([-tiny, tiny])).tolist() == [LARGEST - 1, LARGEST + 1]
    assert grid.index(np.array([-1e300, 1e300])).tolist() == [0, grid.size - 1]
    neighbours = np.nextafter(np.float32(1.5), ends).astype(np.float64)
    assert np.diff(grid.index(np.array([neighbours[0], 1.5, neighbours[1]]))).tolist() == [1, 1]


@given(st.integers(0, 2 * LARGEST))
def test_the_score_of_a_float32_number_has_that_number(number: int) -> None:
    grid = ScoreGrid.parse("float32")
    assert grid.index(np.array([grid.score(number)]))[0] == number


def test_a_range_takes_its_ends_for_what_lies_outside() -> None:
    grid = ScoreGrid.parse("0:10:5")
    assert grid.index(np.array([-7.0, 0.0, 1.99, 2.0, 9.9, 10.0, 11.0])).tolist() == [0, 0, 0, 1, 4, 4, 4]


def test_ends_are_inside_and_by_float32_nothing_is_outside() -> None:
    scores = np.array([-1e300, -0.001, 0.0, -0.0, 10.0, 10.001])
    assert ScoreGrid.parse("0:10:5").outside(scores).tolist() == [True, True, False, False, False, True]
    assert not ScoreGrid.parse("float32").outside(scores).any()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("text", ["float32", "0:10:5"])
def test_what_is_no_finite_number_is_refused(bad: float, text: str) -> None:
    with pytest.raises(InvalidInput):
        ScoreGrid.parse(text).index(np.array([1.0, bad]))


@pytest.mark.parametrize(
    "text", ["", "float64", "0:1", "0:1:0", "1:1:4", "2:1:4", "0:1:4294967297", "a:b:3", "0:inf:3", "nan:1:3", "0:1:٣"]
)
def test_other_spellings_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        ScoreGrid.parse(text)
