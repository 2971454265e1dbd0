"""Fits of two scores: where the cells of a public grid lie, which grids are taken, and maps that fall in neither."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from label_dp.companions.maps.shapes import MAX_DOWN_SETS, MAX_GRID_CELLS, grid_cells
from label_dp.domain import Domain
from label_dp.errors import InvalidEpsilon, InvalidInput, InvalidMechanism
from label_dp.privacy import Epsilon
from labels_party.companions.mechanisms.isotonic.antichains import poset_grid
from labels_party.companions.mechanisms.isotonic.cells import Cells
from labels_party.companions.mechanisms.isotonic.posets import Poset
from labels_party.companions.mechanisms.isotonic.surfaces import SurfacePlan, axis_cells
from tests.support.isotonic_bounds import poset_excess_bound

pytestmark = pytest.mark.extended

TEN = Domain.parse("0:10")
ONE, HUGE = Epsilon.parse("1"), Epsilon.parse("1000000")


def plan(a: int, b: int, n: int = 100, epsilon: Epsilon = ONE, size: int = 1000, **options: Any) -> SurfacePlan:
    return SurfacePlan(options.pop("domain", TEN), (Cells.even(size, a), Cells.even(size, b)), n, epsilon, **options)


# --- cells --------------------------------------------------------------------------------------------------


def test_cells_hold_about_equally_many_scores_and_lie_midway() -> None:
    numbers = np.concatenate([np.arange(0, 40), np.arange(900, 940)])
    cells = axis_cells(np.random.default_rng(1).permutation(numbers), 1 << 32, 4)
    assert cells.edges.tolist() == [0, 20, 470, 920, 1 << 32]
    assert np.bincount(cells.of(numbers)).tolist() == [20] * 4


def test_few_numbers_have_a_cell_each_whatever_was_sent() -> None:
    assert axis_cells(np.array([3, 3]), 8, 8).edges.tolist() == list(range(9))
    assert axis_cells(np.array([3, 3]), 5, 8).edges.tolist() == list(range(6))


def test_few_different_scores_have_a_cell_each_however_often_they_come() -> None:
    numbers = np.repeat([10, 50, 90], [9998, 1, 1])
    assert axis_cells(numbers, 100, 8).edges.tolist() == [0, 30, 70, 100]
    assert axis_cells(np.full(7, 42), 100, 8).edges.tolist() == [0, 100]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 99), min_size=1, max_size=40), st.integers(1, 12))
def test_every_number_has_one_cell_and_equal_ones_the_same(numbers: list[int], most: int) -> None:
    cells = axis_cells(np.array(numbers), 100, most)
    assert 1 <= cells.count <= most
    placed = cells.of(np.arange(100))
    assert np.all(np.diff(placed) >= 0)
    assert (placed[0], placed[-1]) == (0, cells.count - 1)
    assert all(cells.edges[j] <= x < cells.edges[j + 1] for x, j in enumerate(placed))


@pytest.mark.parametrize(
    ("text", "cells"),
    [("8x8", (8, 8)), ("8", (8, 8)), ("9x9", (9, 9)), ("7x12", (7, 12)), ("3x70", (3, 70)), ("1x256", (1, 256))],
)
def test_grids_that_are_taken(text: str, cells: tuple[int, int]) -> None:
    assert grid_cells(text) == cells
    assert Poset.grid(*cells).down_set_count == math.comb(sum(cells), cells[0])


@pytest.mark.parametrize("text", ["10x10", "2x360", "100x100", "1x257", "9999x9999", "3x86"])
def test_grids_that_are_too_fine_are_refused_with_those_that_are_not(text: str) -> None:
    with pytest.raises(InvalidMechanism, match=r"8x8, 9x9, 7x12.*\.$"):
        grid_cells(text)


@pytest.mark.parametrize("text", ["", "x", "8x", "x8", "0x8", "08x8", "8X8", "8x8x8", "-8x8", "8.0x8", "8x٣", " 8x8"])
def test_cells_of_another_spelling_are_refused(text: str) -> None:
    with pytest.raises(InvalidMechanism, match="AxB"):
        grid_cells(text)


def test_every_grid_that_is_taken_has_few_enough_down_sets() -> None:
    taken = 0
    for a in range(1, MAX_GRID_CELLS + 1):
        for b in range(a, MAX_GRID_CELLS // a + 1):
            try:
                assert grid_cells(f"{a}x{b}") == (a, b)
            except InvalidMechanism:
                assert math.comb(a + b, a) > MAX_DOWN_SETS
            else:
                assert math.comb(a + b, a) <= MAX_DOWN_SETS
                taken += 1
    assert taken > 400


# --- fits ---------------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(
    st.tuples(st.integers(1, 5), st.integers(1, 5)),
    st.sampled_from(["0.01", "1", "100"]),
    st.sampled_from(["squared", "absolute"]),
    st.sampled_from([None, 2, 7, 16]),
    st.integers(0, 2**32),
)
def test_the_map_falls_in_neither_score_and_stays_within_the_labels(
    cells: tuple[int, int], epsilon: str, loss: str, values: int | None, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    x, y = rng.integers(0, 1000, (2, 30)), rng.integers(0, 11, 30)
    found = plan(*cells, 30, Epsilon.parse(epsilon), loss=loss, asked=values).fit(x, y)
    points = np.sort(rng.integers(0, 1000, 50))
    first, second = np.meshgrid(points, points, indexing="ij")
    applied = found.apply(first.reshape(-1), second.reshape(-1)).reshape(50, 50)
    assert np.all(np.diff(applied, axis=0) >= 0)
    assert np.all(np.diff(applied, axis=1) >= 0)
    assert applied.min() >= 0
    assert applied.max() <= 10


def test_much_epsilon_gives_what_is_there() -> None:
    i, j = np.divmod(np.arange(12).repeat(30), 4)
    found = plan(3, 4, i.size, HUGE, asked=11, loss="squared", size=12).fit(np.stack([4 * i, 3 * j]), 2 * (i + j))
    assert found.values.tolist() == [[2.0 * (a + b) for b in range(4)] for a in range(3)]


def test_degenerate_data() -> None:
    none = plan(3, 4, 1, HUGE, asked=11, loss="squared").fit(
        np.zeros((2, 0), np.int64), np.zeros(0, np.int64)
    )  # drawn as any other
    assert none.values.shape == (3, 4)
    one = plan(8, 8, 1, HUGE, loss="squared", asked=11).fit(np.array([[500], [500]]), np.array([7]))
    assert one.apply(np.array([500]), np.array([500])).tolist() == [7.0]
    constant = plan(2, 2, 3, domain=Domain.parse("3:3"), loss="squared").fit(np.zeros((2, 3), int), np.zeros(3, int))
    assert constant.values.tolist() == [[3.0, 3.0], [3.0, 3.0]]


@pytest.mark.parametrize(
    ("error", "changes"),
    [
        (InvalidEpsilon, {"epsilon": Epsilon(900)}),
        (InvalidMechanism, {"asked": 1}),
        (InvalidMechanism, {"asked": 257}),
        (InvalidInput, {"a": 20, "b": 20}),
    ],
)
def test_what_a_fit_would_refuse_is_refused_before_it_sees_a_label(
    error: type[Exception], changes: dict[str, Any]
) -> None:
    with pytest.raises(error):
        plan(**({"a": 2, "b": 2, "loss": "squared"} | changes))


def test_the_bound_holds_less_for_more_epsilon_and_finer_grids() -> None:
    def bound(cells: int, epsilon: str) -> float:
        poset = Poset.grid(cells, cells)
        return poset_excess_bound(
            poset_grid(TEN, poset, 1000, Epsilon.parse(epsilon), "squared", 16), poset, Epsilon.parse(epsilon)
        )

    bounds = [bound(4, epsilon) for epsilon in ("0.5", "1", "2")]
    assert bounds == sorted(bounds, reverse=True)
    assert bound(8, "1") > bounds[1]
