"""One category whatever format its cells came in, numbers and times as training saw them, and what is refused."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from features_party.training.column_cells import Holds, categories, numbers, times
from features_party.training.encoding import Column, FeatureSchema
from label_dp.errors import InvalidRows, InvalidTable

WORDS = ["NA", "null", "nan", "None", "N/A"]
DAY = dt.datetime.fromisoformat("2024-07-01T12:00")
EPOCH = dt.date(1970, 1, 1).toordinal()
TEXTS = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
)
def test_words_are_text_among_texts_and_an_empty_text_is_missing(kind: pa.DataType) -> None:
    cells = pa.array([*WORDS, "", None, "DE"]).cast(kind)
    assert categories(cells, "c", "text").to_pylist() == [*WORDS, None, None, "DE"]
    assert categories(pa.array(["1", "NA", ""]), "c", "whole").to_pylist() == ["1", None, None]


@pytest.mark.parametrize("holds", ["whole", "number"])
@pytest.mark.parametrize(
    "cells",
    [
        pa.array([3, 0, None], pa.int8()),
        pa.array([3, 0, None], pa.uint64()),
        pa.array([3.0, -0.0, float("nan")]),
        pa.array([3.0, 0.0, None], pa.float32()),
        pa.array([3.0, 0.0, None], pa.float16()),
        pa.array([Decimal("3.00"), Decimal("0.00"), None]),
        pa.array([3, 0, None]).dictionary_encode(),
        pa.array([3.0, 0.0, None]).dictionary_encode(),
        pa.array(["3", "0", None]),
        pa.array(["3.0", "-0.0", "NA"], pa.string_view()),
        pa.array([" 3.", "0E0", ""]),
    ],
    ids=str,
)
def test_whole_numbers_are_one_category_in_every_type(holds: Holds, cells: Any) -> None:
    assert categories(cells, "c", holds).to_pylist() == ["3", "0", None]


def test_other_numbers_are_one_category_in_every_type() -> None:
    for cells in (
        pa.array([1.5, 0.1, 1e20]),
        pa.array(["1.50", ".1", "1e20"]),
        pa.array(["+1.5", "0.10", "1.0E20"]),
    ):
        assert categories(cells, "c", "number").to_pylist() == ["1.5", "0.1", "1e+20"]
    assert categories(pa.array([1.5, 0.1], pa.float32()), "c", "number").to_pylist() == ["1.5", "0.1"]
    assert categories(pa.array([Decimal("1.50"), Decimal("0.10")]), "c", "number").to_pylist() == ["1.5", "0.1"]


@pytest.mark.parametrize(
    "cells",
    [
        pa.array([True, False, None]),
        pa.array([1, 0, None]),
        pa.array([1.0, 0.0, float("nan")]),
        pa.array(["true", "false", None]),
        pa.array(["True", "False", ""]),
        pa.array(["TRUE", "0", "NA"]),
        pa.array(["1.0", "FALSE", "null"]),
    ],
    ids=str,
)
def test_booleans_are_one_category_in_every_type(cells: Any) -> None:
    assert categories(cells, "c", "boolean").to_pylist() == ["true", "false", None]
    assert categories(cells, "c", "whole").to_pylist() == ["1", "0", None]
    assert numbers(cells, "c").to_pylist()[:2] == [1.0, 0.0]


@pytest.mark.parametrize(
    ("cells", "holds", "vocabulary"),
    [
        (["2", "1", "1"], "whole", ("1", "2")),
        (["2.0", "1.0", "1.0"], "number", ("1", "2")),  # as pandas writes whole numbers with gaps
        (["2.5", "1.0", "1.0"], "number", ("1", "2.5")),
        (["True", "False", "True"], "boolean", ("true", "false")),
        (["02", "1", "1"], "text", ("1", "02")),
        (["1.10", "1.1", "1.1"], "text", ("1.1", "1.10")),
        (["NA", "1", "1"], "text", ("1", "NA")),
        (["2024-07-01", "2024-07-02", "2024-07-02"], "text", ("2024-07-02", "2024-07-01")),
        ([], "text", ()),
    ],
)
def test_texts_hold_what_all_of_them_are_spelt_as(cells: list[str], holds: Holds, vocabulary: tuple[str, ...]) -> None:
    (column,) = FeatureSchema.learn(pa.table({"c": pa.array(cells, pa.string())}), categorical=["c"]).columns
    assert (column.holds, column.vocabulary) == (holds, vocabulary)
    assert not FeatureSchema((column,)).encode(pa.table({"c": pa.array(cells, pa.string())})).unknown


def test_rows_with_unknown_categories_are_noted_by_column() -> None:
    schema = FeatureSchema.learn(
        pa.table({"store": [1, 2, 3, 1], "country": ["NA", "DE", "DE", "FR"]}), categorical=["store"]
    )
    encoded = schema.encode(pa.table({"store": ["1.0", "4", "", "x"], "country": ["NA", "null", "", None]}))
    assert {name: rows.tolist() for name, rows in encoded.unknown.items()} == {"store": [1, 3], "country": [1]}
    assert encoded.unknown_cells == {"store": 2, "country": 1}
    assert encoded.codes[:, 0].tolist() == [0, -1, -1, -1]


@pytest.mark.parametrize("day", ["0001-01-01", "1600-01-01", "9999-12-31"])
def test_a_time_far_away_is_one_odd_cell(day: str) -> None:
    odd = dt.datetime.fromisoformat(day)
    for holds, kind in (("time", pa.timestamp("us")), ("time", pa.timestamp("s")), ("date", pa.date32())):
        cells = [DAY, odd] if holds == "time" else [DAY.date(), odd.date()]
        schema = FeatureSchema.learn(pa.table({"t": pa.array(cells, kind)}))
        found = schema.encode(pa.table({"t": pa.array(cells, kind)})).numbers
        assert found[1, 0] == pytest.approx(odd.toordinal() - EPOCH, rel=1e-6)
        assert found[:, 1].tolist() == [7.0, odd.month]


def test_times_beyond_every_calendar_are_named() -> None:
    with pytest.raises(InvalidTable, match="column 't' holds a time that is more than 292,000 years from 1970"):
        times(pa.array([10**15], pa.timestamp("s")), "t", "time")


LOCAL = [
    pa.array([DAY], pa.timestamp("ms")),
    pa.array([DAY], pa.timestamp("ns")),
    pa.array([DAY.date()]),
    pa.array(["2024-07-01T12:00:00"]),
    pa.array(["2024-07-01 12:00:00.000000000"]),
]
ZONED = [
    pa.array([DAY], pa.timestamp("us", "UTC")),
    pa.array([DAY], pa.timestamp("s", "Europe/Berlin")),
    pa.array(["2024-07-01T12:00:00Z"]),
    pa.array(["2024-07-01T14:00:00+02:00"]),
    pa.array(["2024-07-01 14:00:00.000+0200"]),
]


@pytest.mark.parametrize("cells", LOCAL, ids=str)
def test_times_without_a_zone_never_meet_times_with_one(cells: Any) -> None:
    assert times(cells, "t", "date").to_pylist() == [DAY.date()]
    assert times(cells, "t", "time")[0].as_py() in (DAY, dt.datetime.combine(DAY.date(), dt.time()))
    with pytest.raises((InvalidTable, InvalidRows), match="zone"):
        times(cells, "t", "zoned time")


@pytest.mark.parametrize("cells", ZONED, ids=str)
def test_times_with_a_zone_are_read_in_utc_and_never_as_others(cells: Any) -> None:
    assert times(cells, "t", "zoned time").to_pylist() == [DAY]
    for holds in ("time", "date"):
        with pytest.raises((InvalidTable, InvalidRows), match=r"zone|ISO 8601 date"):
            times(cells, "t", holds)


def test_an_invalid_cell_is_named_by_row_and_column_without_its_value() -> None:
    with pytest.raises(InvalidRows) as caught:
        times(pa.array(["2024-07-01", "NA", "secret", "2024-13-01"]), "t", "date")
    assert [(p.row, p.field) for p in caught.value.problems] == [(2, "t"), (3, "t")]
    assert "secret" not in str(caught.value)
    with pytest.raises(InvalidTable, match="The column 't' holds whole numbers, and the model learned dates"):
        times(pa.array([19_000]), "t", "date")
    with pytest.raises(InvalidTable, match="The column 'x' holds dates, and the model learned numbers"):
        numbers(pa.array([DAY.date()]), "x")
    with pytest.raises(InvalidTable, match="The feature column 'x' holds list<item: int64>"):
        numbers(pa.array([[1]]), "x")


def test_a_saved_column_says_what_it_holds() -> None:
    column = Column("t", "timestamp", "zoned time")
    assert Column.from_json(column.as_json()) == column
    for change in ({"holds": "time zone"}, {"kind": "number"}, {"kind": "date"}):
        with pytest.raises((KeyError, ValueError)):
            Column.from_json(column.as_json() | change)
