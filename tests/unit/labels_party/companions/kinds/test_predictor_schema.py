"""The one spelling of queries: numbers, categories, what is missing; a table's rows and a query alike."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from label_dp.companions.maps.places import MISSING, category_text
from label_dp.errors import InvalidInput, InvalidRequest, InvalidRows, InvalidTable
from label_dp.schemas.predictor import Predictor
from label_dp.schemas.validation import as_model
from labels_party.companions.kinds.feature_schema import COARSE, FINE, Schema
from labels_party.companions.kinds.prediction.plan import schema_of
from labels_party.companions.mechanisms.private_prediction import UNIT

SCHEMA = Schema.from_json(
    [{"name": "x", "range": ["-1", "3"]}, {"name": "kind", "values": ["a", 7, "7.5"]}, {"name": "y", "range": [0, 1]}]
)


@settings(deadline=None)
@given(st.floats(allow_infinity=False, width=64), st.sampled_from([COARSE, FINE]))
def test_a_number_has_a_place_within_its_range(value: float, levels: int) -> None:
    schema = Schema(SCHEMA.features[:1], levels)
    (code,) = schema.query({"x": value})
    if math.isnan(value):
        assert code == MISSING
        return
    exact = (min(max(value, -1.0), 3.0) + 1) / 4
    assert 0 <= code <= levels
    assert abs(code - exact * levels) <= 0.5 + 1e-6
    assert schema.query({"x": repr(value)}) == schema.query({"x": value})
    shown = schema.shown((code,))["x"]
    assert schema.query({"x": shown}) == (code,)  # what the answer names is the same query


@pytest.mark.parametrize(
    "same", [[0, 0.0, -0.0, "0", "-0", " 0.0e9 "], [None, math.nan, "nan", "NaN"], [3, 3.0, 99, "1e300"]]
)
def test_numbers_that_mean_the_same_are_the_same(same: list[Any]) -> None:
    assert len({SCHEMA.query({"x": value}) for value in same}) == 1


@pytest.mark.parametrize("same", [[7, 7.0, "7"], [7.5, "7.5"], [None, math.nan, "b", "", -0.0]])
def test_categories_that_mean_the_same_are_the_same(same: list[Any]) -> None:
    assert len({SCHEMA.query({"kind": value}) for value in same}) == 1


def test_negative_zero_is_zero_as_a_category_too() -> None:
    assert category_text(-0.0, "kind") == category_text(0, "kind") == "0"


@settings(deadline=None)  # the first one loads pyarrow
@given(
    st.lists(
        st.tuples(
            st.none() | st.floats(allow_infinity=False),
            st.none() | st.sampled_from(["a", "7", "7.5", "z"]),
            st.none() | st.integers(-9, 9),
        ),
        min_size=1,
        max_size=20,
    )
)
def test_rows_of_a_table_are_coded_as_queries_are(rows: list[tuple[Any, ...]]) -> None:
    table = pa.table(
        {
            "x": pa.array([r[0] for r in rows], pa.float64()),
            "kind": pa.array([r[1] for r in rows], pa.string()),
            "y": pa.array([r[2] for r in rows], pa.int64()),
        }
    )
    codes = SCHEMA.table_codes(table)
    assert [tuple(row) for row in codes.tolist()] == [
        SCHEMA.query(dict(zip(SCHEMA.names, row, strict=True))) for row in rows
    ]
    x = SCHEMA.coordinates(codes)
    assert x.shape == (len(rows), SCHEMA.width) == (len(rows), 6)
    assert int(np.abs(x).max()) <= UNIT
    assert int((x**2).sum(1).max()) <= SCHEMA.squared_norm * UNIT**2
    assert (x[:, -1] == UNIT).all()


def test_texts_of_a_csv_are_numbers_where_numbers_are_wanted() -> None:
    table = pa.table(
        {"x": ["1", " 2.5 ", "", None, "nan"], "kind": [7, 8, None, 7, 7], "y": [0.5, None, 1.0, 0.0, 1.0]}
    )
    assert SCHEMA.table_codes(table)[:, 0].tolist()[2:] == [MISSING] * 3
    assert SCHEMA.table_codes(table)[:, 1].tolist() == [1, MISSING, MISSING, 1, 1]


@pytest.mark.parametrize(
    ("column", "error"),
    [
        (["1", "two"], InvalidRows),
        ([1.0, math.inf], InvalidRows),
        ([b"1", b"2"], InvalidTable),
        ([[1], [2]], InvalidTable),
    ],
)
def test_columns_that_are_no_numbers_are_refused_by_row(column: list[Any], error: type[InvalidInput]) -> None:
    schema = Schema(SCHEMA.features[:1])
    with pytest.raises(error) as caught:
        schema.table_codes(pa.table({"x": column}))
    assert "two" not in caught.value.detail


PRICES = [1.25 * i for i in range(400)]


@pytest.mark.parametrize(
    ("column", "values", "word"),
    [
        (PRICES, ["7"], "none"),
        (PRICES, ["5"], "few"),
        (list(range(400)), ["5", "7"], "few"),
        ([None, 1, 2], ["a", "b"], "none"),
        ([1.5, math.nan, None], ["2"], "none"),
    ],
)
def test_values_listed_for_a_column_of_numbers_are_refused(column: list[Any], values: list[str], word: str) -> None:
    schema = Schema.from_json([{"name": "x", "values": values}])
    with pytest.raises(InvalidTable, match=f"numbers, {word} of them.*--feature x=LO:HI"):
        schema.check(pa.table({"x": column}))


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ([0] * 99 + [1], ["1"]),  # a rare code of few
        ([*range(400), *[5] * 40], ["5"]),  # a frequent one of many
        ([*[None] * 999, *range(400), *[5] * 40], ["5"]),
        ([None, math.nan], ["5"]),  # nothing is there
        (["4.95", "7", "nine"], ["5"]),  # texts
        ([], ["5"]),
    ],
)
def test_codes_that_are_whole_numbers_may_be_listed(column: list[Any], values: list[str]) -> None:
    table = pa.table({"x": pa.array(column, None if column else pa.int64())})
    Schema.from_json([{"name": "x", "values": values}]).check(table)


BAD: list[Any] = [
    "x=0:1",
    [],
    [{"name": "x"}],
    [{"name": "x", "range": [0, 1], "values": ["a"]}],
    [{"name": "", "range": [0, 1]}],
    [{"name": "x\n", "range": [0, 1]}],
    [{"name": "x", "range": [0]}],
    [{"name": "x", "range": [1, 1]}],
    [{"name": "x", "range": ["a", 1]}],
    [{"name": "x", "range": [True, 2]}],
    [{"name": "x", "range": [0, 1e200]}],
    [{"name": "x", "values": ["a", "a"]}],
    [{"name": "x", "values": [1, "1"]}],
    [{"name": "x", "values": [None]}],
    [{"name": "x", "values": ["a" * 201]}],
    [{"name": "x", "values": [str(i) for i in range(101)]}],
    [{"name": f"x{i}", "range": [0, 1]} for i in range(65)],
    [{"name": f"x{i}", "values": [str(v) for v in range(100)]} for i in range(3)],
]


@pytest.mark.parametrize("features", BAD, ids=[str(i) for i in range(len(BAD))])
def test_bad_features_are_refused(features: Any) -> None:
    asked = {"batch": "b", "method": "average", "epsilon": "1", "epsilon_cap": "1", "features": features}
    with pytest.raises(InvalidInput):
        schema_of(as_model(asked, Predictor))


def test_features_are_told_as_they_are_read() -> None:
    assert Schema.from_json(SCHEMA.as_json()) == SCHEMA
    assert SCHEMA.as_json()[0] == {"name": "x", "range": ["-1", "3"]}


@pytest.mark.parametrize(
    ("feature", "says"),
    [
        ({"name": "x", "range": "0:9"}, "'features.0.range' must be a list"),  # the other alternative has no range
        ({"name": "x", "rnage": [0, 9]}, "'features.0.rnage' is not known here; the members are name, range, values."),
    ],
)
def test_a_misspelt_feature_is_told_by_the_alternative_it_fits(feature: dict[str, Any], says: str) -> None:
    asked = {"batch": "b", "method": "average", "epsilon": "1", "epsilon_cap": "1", "features": [feature]}
    with pytest.raises(InvalidRequest) as refused:
        as_model(asked, Predictor)
    details = [refused.value.detail, *(f"'{p['where'][5:]}' {p['rule']}." for p in refused.value.places)]
    assert any(says in text for text in details), details
