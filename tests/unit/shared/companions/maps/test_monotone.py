"""A monotone step function is what it says, also when somebody else sent it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from label_dp.companions.maps.monotone import MonotoneMap
from label_dp.documents.canonical import canonical_bytes, parse_canonical
from label_dp.errors import InvalidInput

STEPS = MonotoneMap(10, np.array([3, 7]), np.array([0.1, 0.1, 2.0]))


def changed(**members: object) -> dict[str, object]:
    return {**STEPS.as_json(), **members}


def test_a_breakpoint_belongs_to_the_piece_that_it_begins() -> None:
    assert STEPS.apply(np.arange(10)).tolist() == [0.1] * 7 + [2.0] * 3
    assert STEPS.apply(np.array([7, 6], np.uint8)).tolist() == [2.0, 0.1]
    assert STEPS.apply(np.empty(0, np.int64)).size == 0


def test_a_constant_has_no_breakpoint() -> None:
    constant = MonotoneMap(1 << 32, np.empty(0, np.int64), np.array([-0.5]))
    assert constant.apply(np.array([0, (1 << 32) - 1])).tolist() == [-0.5, -0.5]
    assert MonotoneMap.from_json(constant.as_json()) == constant


@pytest.mark.parametrize("x", [[-1], [10], [0.0], [float("nan")], ["1"]])
def test_only_whole_numbers_of_its_domain_are_mapped(x: Any) -> None:
    with pytest.raises(InvalidInput):
        STEPS.apply(np.array(x))


@given(st.sets(st.integers(1, (1 << 32) - 1), max_size=30), st.data())
def test_canonical_json_gives_back_the_same_map(edges: set[int], data: st.DataObject) -> None:
    count = len(edges) + 1
    floats = st.floats(allow_nan=False, allow_infinity=False)
    values = sorted(data.draw(st.lists(floats, min_size=count, max_size=count)))
    sent = MonotoneMap(1 << 32, np.array(sorted(edges), np.int64), np.array(values))
    received = MonotoneMap.from_json(parse_canonical(canonical_bytes(sent.as_json())))
    assert received == sent
    assert hash(received) == hash(sent)
    assert received.values.tobytes() == sent.values.tobytes()


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {},
        {**STEPS.as_json(), "more": 1},
        changed(kind="linear"),
        changed(x_size="10"),
        changed(x_size=True),
        changed(x_size=0),
        changed(x_size=7),
        changed(x_size=(1 << 32) + 1),
        changed(breakpoints=[3]),
        changed(breakpoints=[7, 3]),
        changed(breakpoints=[3, 3]),
        changed(breakpoints=[0, 7]),
        changed(breakpoints=[3, 10]),
        changed(breakpoints=[3.0, 7.0]),
        changed(breakpoints=[True, 7]),
        changed(breakpoints=[3, 1 << 70]),
        changed(breakpoints="37"),
        changed(values=["0.1", "2.0"]),
        changed(values=["0.1", "2.0", "0.1"]),
        changed(values=[0.1, 0.1, 2.0]),
        changed(values=["0.1", "0.1", "2"]),
        changed(values=["0.1", "0.1", "2.00"]),
        changed(values=["0.1", "0.1", "nan"]),
        changed(values=["0.1", "0.1", "1e999"]),
        changed(values=["0.1", "0.1", "٢.0"]),
        changed(values=[]),
        changed(values=["0.0"] * 70_000),
    ],
)
def test_anything_else_is_refused(data: object) -> None:
    with pytest.raises(InvalidInput):
        MonotoneMap.from_json(data)


@pytest.mark.parametrize(
    ("edges", "values"),
    [([], []), ([1], [1.0]), ([1], [2.0, 1.0]), ([1], [0.0, np.inf]), ([1], [np.nan, 1.0]), ([0.5], [0.0, 1.0])],
)
def test_what_is_no_monotone_map_cannot_be_made(edges: list[Any], values: list[float]) -> None:
    with pytest.raises(InvalidInput):
        MonotoneMap(10, np.array(edges), np.array(values))
