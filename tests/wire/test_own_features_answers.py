"""Rectangles and linear models among the signed answers: how they are applied, and what a receiver refuses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from label_dp.companions.kinds.linear_model import LINEAR_MODEL, open_linear_model
from label_dp.companions.kinds.rectangle import RECTANGLE, open_rectangle
from label_dp.documents.signing import SigningKey
from label_dp.errors import InvalidInput, MalformedAnswer
from tests.support.own_features import signed

KEY = SigningKey.generate()
X, Y = {"name": "x", "range": ["0", "10"]}, {"name": "y", "range": ["-1", "1"]}
KIND = {"name": "kind", "values": ["a", "7"]}
SIDES = [
    {"name": "x", "first": 2, "last": 5, "from": "2", "to": "5"},
    {"name": "y", "first": 0, "last": 5, "from": "-1", "to": "0"},
]
R_GIVEN: dict[str, Any] = {
    "threshold": "5",
    "features": [X, Y],
    "examples": 90,
    "levels": 10,
    "method": "ranks",
    "slice": 20,
    "slice_noise": 0,
    "epsilon_per_side": "0.125",
    "delta_per_side": "0",
    "delta_of_bound": "0",
    "bound": "composition",
    "rho": [],
}
R_RESULT: dict[str, Any] = {"found": True, "sides": SIDES}
M_GIVEN: dict[str, Any] = {
    "features": [X, KIND],
    "examples": 100,
    "levels": 8192,
    "rule": "uniform",
    "steps": 10,
    "minibatch": 10,
    "slice_noise": 0,
    "clip": 2,
    "huber": 2,
    "rate": "1",
    "epsilon_per_step": "0.5",
    "delta_of_bound": "0",
    "bound": "composition",
    "rho": [],
    "middle": "5",
    "half_width": "5",
}
WEIGHTS = [
    {"name": "x", "value": None, "weight": "0.5"},
    {"name": "kind", "value": "a", "weight": "0.25"},
    {"name": "kind", "value": "7", "weight": "-4"},
]
M_RESULT: dict[str, Any] = {"constant": "0.125", "weights": WEIGHTS}


# by slices a side may be missing, which costs δ
S_GIVEN = R_GIVEN | {"levels": 200, "method": "slices", "delta_per_side": "0.0000001"}
S_SIDES = [SIDES[0] | {"first": 40, "last": 100}, SIDES[1] | {"last": 100}]
S_DELTA = {
    "epsilon": {"clip": "0", "prior": "0", "randomize": "0.5", "total": "0.5", "delta": "0.0000004"},
    "delta_spent": "0.0000004",
    "delta_lifetime": "0.000001",
}


def by_slices(result: dict[str, Any], **changes: Any) -> bytes:
    return signed(KEY, RECTANGLE, S_GIVEN, result, **(S_DELTA | changes))


def rectangle(result: dict[str, Any] = R_RESULT, **given: Any) -> bytes:
    return signed(KEY, RECTANGLE, R_GIVEN | given, result)


def model(result: dict[str, Any] = M_RESULT, **given: Any) -> bytes:
    return signed(KEY, LINEAR_MODEL, M_GIVEN | given, result)


def test_a_rectangle_is_read_and_applied() -> None:
    found = open_rectangle(rectangle(), KEY.public, "features-party")
    columns = {
        "x": [2, 1.5, 1.49, 5.49, 5.5, -3, 99, None, math.nan, 3],
        "y": [-9, 0, 0, 0.09, 0, 0, 0, 0, 0, 0.11],
        "more": range(10),
    }
    assert found.contains(columns).tolist() == [True, True, False, True, *[False] * 6]
    assert found.contains({"x": [], "y": []}).tolist() == []
    with pytest.raises(InvalidInput, match="no column 'y'"):
        found.contains({"x": [1]})
    with pytest.raises(InvalidInput, match="numbers"):
        found.contains({"x": ["a"], "y": [1]})


def test_values_beyond_a_range_count_as_its_ends() -> None:
    sides = [SIDES[0] | {"last": 10, "to": "10"}, SIDES[1]]
    found = open_rectangle(rectangle({"found": True, "sides": sides}), KEY.public, None)
    assert found.contains({"x": [1e300, -1e300, math.inf], "y": [-1e300] * 3}).tolist() == [True, False, True]


def test_nothing_is_inside_where_a_side_was_not_found_or_sides_cross() -> None:
    columns = {"x": [3, 5], "y": [0, -1]}
    missing = [S_SIDES[0] | {"first": None, "from": None}, S_SIDES[1]]
    found = open_rectangle(by_slices({"found": False, "sides": missing}), KEY.public, None)
    assert not found.found
    assert not found.contains(columns).any()
    crossed = [SIDES[0] | {"first": 7, "from": "7"}, SIDES[1]]
    assert not open_rectangle(rectangle({"found": True, "sides": crossed}), KEY.public, None).contains(columns).any()


def test_a_linear_model_is_read_and_applied() -> None:
    found = open_linear_model(model(), KEY.public, "features-party")
    columns = {"x": [0, 10, 5, None, 99, 5], "kind": ["a", "a", "other", None, "7", 7]}
    # middle + half·(constant + Σ weight·x), clipped to the ends of the domain
    scaled = np.array([-0.5 + 0.25, 0.5 + 0.25, 0, 0, 0.5 - 4, -4]) + 0.125
    assert found.predict(columns).tolist() == np.clip(5 + 5 * scaled, 0, 10).tolist()
    with pytest.raises(InvalidInput, match="no column 'kind'"):
        found.predict({"x": [1]})


R_LIES: list[bytes] = [
    rectangle(threshold=5),
    rectangle(threshold="nan"),
    rectangle(features=[]),
    rectangle(features=[X, KIND]),
    rectangle(features=[X, X]),
    rectangle(features=[X, Y | {"range": ["1", "-1"]}]),
    rectangle(features=[X, Y | {"range": ["0", "1e3"]}]),
    rectangle(features=[X, Y | {"range": ["-1"]}]),
    rectangle(features=[X, "y"]),
    rectangle(levels=0),
    rectangle(levels=1 << 40),
    rectangle(levels=True),
    rectangle(examples=101),
    rectangle(method="guess"),
    rectangle(slice="20"),
    rectangle(more=1),
    rectangle({"found": False, "sides": SIDES}),
    rectangle({"found": True, "sides": SIDES[:1]}),
    rectangle({"found": True, "sides": SIDES[::-1]}),
    rectangle({"found": True, "sides": [SIDES[0] | {"last": 11, "to": "11"}, SIDES[1]]}),
    rectangle({"found": True, "sides": [SIDES[0] | {"to": "6"}, SIDES[1]]}),
    rectangle({"found": True, "sides": [SIDES[0] | {"first": None}, SIDES[1]]}),
    rectangle({"found": False, "sides": [SIDES[0] | {"first": None}, SIDES[1]]}),
    rectangle({"found": True, "sides": [SIDES[0] | {"more": 1}, SIDES[1]]}),
    rectangle({"found": True, "sides": [SIDES[0] | {"first": "2"}, SIDES[1]]}),
    rectangle({"found": True, "sides": None}),
    rectangle({"sides": SIDES}),
]
M_LIES: list[bytes] = [
    model(features=[X, KIND | {"values": ["a", "a"]}]),
    model(features=[X, KIND | {"values": []}]),
    model(features=[X, KIND | {"values": ["a", 7]}]),
    model(features=[X]),
    model(rule="best"),
    model(steps=0),
    model(levels=0),
    model(examples=101),
    model(middle="4"),
    model(half_width="10"),
    model(rate="fast"),
    model(epsilon_per_step=1),
    model({"constant": "0.125", "weights": WEIGHTS[:2]}),
    model({"constant": "0.125", "weights": [WEIGHTS[0], WEIGHTS[2], WEIGHTS[1]]}),
    model({"constant": "inf", "weights": WEIGHTS}),
    model({"constant": "0.125", "weights": [*WEIGHTS[:2], WEIGHTS[2] | {"weight": "1e9"}]}),
    model({"constant": "0.125", "weights": [*WEIGHTS[:2], {"name": "kind", "value": "7"}]}),
    model({"constant": 1, "weights": WEIGHTS}),
    model({"weights": WEIGHTS}),
    model({"constant": "0.125", "weights": WEIGHTS, "more": "1"}),
]


@pytest.mark.parametrize("lie", R_LIES, ids=range(len(R_LIES)))
def test_a_signed_rectangle_that_cannot_be_is_refused(lie: bytes) -> None:
    with pytest.raises(MalformedAnswer):
        open_rectangle(lie, KEY.public, "features-party")


@pytest.mark.parametrize("lie", M_LIES, ids=range(len(M_LIES)))
def test_a_signed_linear_model_that_cannot_be_is_refused(lie: bytes) -> None:
    with pytest.raises(MalformedAnswer):
        open_linear_model(lie, KEY.public, "features-party")


def test_one_kind_is_not_taken_for_the_other() -> None:
    with pytest.raises(MalformedAnswer):
        open_rectangle(model(), KEY.public, None)
    with pytest.raises(MalformedAnswer):
        open_linear_model(rectangle(), KEY.public, None)
