"""Tables of conversion events, as Parquet with struct columns: the labels of the same events as JSON."""

from __future__ import annotations

import io
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.events import DATA_SET, DAY, SECOND, EventShop, event, event_table
from tests.support.labels import LabelsParty


@pytest.fixture
def shop(party_on: LabelsParty) -> EventShop:
    return EventShop(party_on)


EXT = {"example_id": "user_data.ext.order.click", "types": {"purchase": "+", "refund": "-", "custom:trial": "+"}}
HISTORY = [
    {"id": "1", "value": 10.25},
    {"id": "2", "value": 12.5, "timestamp": SECOND + 9},
    {"id": "1", "event_type": "refund"},  # what it lacks stays
    {"value": 7, "event_type": "custom", "custom_event": "trial"},
    {"value": 30, "currency_code": "usd"},
    {"id": "3", "value": 5, "event_type": "page_view"},
    {},
]
CLICKS = ["a", "a", "a", "b", "b", "b", None]


def history() -> list[dict[str, Any]]:
    """Events of every kind whose clicks stand deep in `user_data`; a member may be missing, or null."""
    events = []
    for members, click in zip(HISTORY, CLICKS, strict=True):
        own = None if click is None else {"mmt_only": None, "ext": {"order": {"click": click, "shop": 1}}}
        events.append(event(None, **({"currency_code": "EUR", "user_data": own} | members)))
    events.append(event(None, 3, user_data={"mmt_only": True, "ext": {"order": {"click": "b"}}}))
    events.append(event(None, 4, user_data={"mmt_only": False, "ext": {"order": {"click": "c"}}}))
    return events


def test_the_same_events_as_a_table_give_the_same_labels(shop: EventShop) -> None:
    one, other = (shop.population(name, other_currency="leave-out", **EXT) for name in ("one", "other"))
    first = shop.open(one, ["a", "b", "c", "d"])
    shop.send(*history())
    labels, counts = shop.sealed(first), shop.counts(first)
    assert labels == {"a": 2, "b": 7, "c": 4, "d": 0}
    second = shop.open(other, ["a", "b", "c", "d"])
    assert shop.send_table(event_table(history())).json() == {"accepted": len(history())}
    assert (shop.sealed(second), shop.counts(second)) == (labels, counts)


def columns(**changes: Any) -> dict[str, Any]:
    """Columns of two events of the click "1"; `changes` replace, add or (None) drop some."""
    core: dict[str, Any] = {
        "data_set_id": pa.array([DATA_SET] * 2),
        "timestamp": pa.array([SECOND, SECOND + 1]),
        "event_type": pa.array(["purchase"] * 2),
        "value": pa.array([12.5, 0.25]),
        "currency_code": pa.array(["EUR"] * 2),
        "user_data": pa.array([{"click_id": "1"}] * 2),
    }
    return {name: column for name, column in (core | changes).items() if column is not None}


def written(columns: dict[str, Any]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue()


FITTING: list[tuple[dict[str, Any], int]] = [
    ({}, 12),
    ({"timestamp": pa.array([SECOND, SECOND + 1], pa.timestamp("s"))}, 12),
    ({"timestamp": pa.array([SECOND * 1000 + 999, SECOND * 1000], pa.timestamp("ms", "Europe/Berlin"))}, 12),
    ({"timestamp": pa.array([SECOND, SECOND + DAY], pa.uint32())}, 12),
    ({"data_set_id": pa.array([DATA_SET] * 2).dictionary_encode()}, 12),
    ({"event_type": pa.array(["purchase"] * 2, pa.large_string())}, 12),
    ({"value": pa.array([Decimal("12.50"), Decimal("0.25")])}, 12),
    ({"value": pa.array([14, None], pa.int16())}, 14),
    ({"value": pa.array([12.7, 0.3], pa.float32())}, 13),  # each is what it prints as
    ({"value": None, "currency_code": None}, 0),
    ({"currency_code": pa.array(["eur", None]), "value": pa.array([8.0, None])}, 8),
    ({"id": pa.array([7, 7])}, 0),
    ({"id": pa.array(["7", None])}, 12),
    ({"id": pa.nulls(2)}, 12),
    ({"user_data": pa.array([{"click_id": 1}, None])}, 12),
    ({"user_data": pa.array([{"click_id": 1, "mmt_only": True}, {"click_id": 1}])}, 0),
    ({"user_data": pa.array([{"uids": [{"id": "x"}] * 3, "click_id": "1"}] * 2)}, 12),
    ({"user_data": None}, 0),
    ({"properties": pa.array([{"items": [{"sku": 1}], "ext": None}] * 2)}, 12),
]  # fmt: skip


def test_columns_of_any_fitting_type_are_read(shop: EventShop) -> None:
    labels = []
    for number, (changes, _) in enumerate(FITTING):
        batch = shop.open(shop.population(f"case {number}"), ["1"])
        answer = shop.send_table(written(columns(**changes)))
        assert (answer.status_code, answer.json()) == (200, {"accepted": 2}), (changes, answer.text)
        labels.append(shop.sealed(batch)["1"])
    assert labels == [label for _, label in FITTING]


UNFIT: list[tuple[dict[str, Any], int, str, str]] = [
    ({"timestamp": pa.array([SECOND, None])}, 2, "timestamp", "whole seconds"),
    ({"timestamp": pa.array([SECOND, SECOND * 1000])}, 2, "timestamp", "whole seconds"),
    ({"timestamp": pa.array([0, -1], pa.timestamp("us"))}, 2, "timestamp", "whole seconds"),
    ({"timestamp": None}, 1, "timestamp", "whole seconds"),
    ({"timestamp": pa.array([1.5, 2])}, 1, "timestamp", "the column holds double"),
    ({"data_set_id": None}, 1, "data_set_id", "names no data set"),
    ({"data_set_id": pa.array([DATA_SET, "another"])}, 2, "data_set_id", "names no data set"),
    ({"event_type": pa.array(["purchase", ""])}, 2, "event_type", "must be text"),
    ({"event_type": pa.nulls(2)}, 1, "event_type", "must be text"),
    ({"event_type": pa.array([b"purchase"] * 2)}, 1, "event_type", "the column holds binary"),
    ({"event_type": pa.array(["purchase", "custom"])}, 2, "custom_event", "must name the event"),
    ({"value": pa.array([1, 1e12])}, 2, "value", "must be a number"),
    ({"value": pa.array([1, float("nan")])}, 2, "value", "must be a number"),
    ({"value": pa.array(["12.5", "1"])}, 1, "value", "the column holds string"),
    ({"currency_code": pa.array(["EUR", None])}, 2, "currency_code", "since value is set"),
    ({"currency_code": pa.array(["EUR", "USD"])}, 2, "currency_code", "is not the currency"),
    ({"id": pa.array(["", "1"])}, 1, "id", "1 to 1,024 bytes"),
    ({"id": pa.array([1.0, 2.0])}, 1, "id", "the column holds double"),
    ({"id": pa.array([["a"], ["b"]])}, 1, "id", "the column holds list"),
    ({"user_data": pa.array(["{}", "{}"])}, 1, "user_data", "a struct column; it holds string"),
    ({"user_data": pa.array([{"click_id": "1"}, {"click_id": ""}])}, 2, "user_data.click_id", "is empty"),
    ({"user_data": pa.array([{"click_id": 1.0}] * 2)}, 1, "user_data.click_id", "the column holds double"),
    ({"user_data": pa.array([{"mmt_only": "no"}] * 2)}, 1, "user_data.mmt_only", "true or false"),
    ({"user_data": None, "user_data.click_id": pa.array(["1", "2"])}, 1, "user_data.click_id", "struct column"),
]  # fmt: skip


def test_a_bad_table_is_refused_by_row_and_rule(shop: EventShop) -> None:
    batch = shop.open(shop.population(), ["1"])
    for changes, row, field, rule in UNFIT:
        answer = shop.send_table(written(columns(**changes)))
        assert answer.status_code == 400, (changes, answer.text)
        (problem, *_) = answer.json()["rows"]
        assert (problem["row"], problem["field"]) == (row, field), changes
        assert rule in problem["rule"], changes
    assert shop.sealed(batch) == {"1": 0}


def test_a_table_of_two_data_sets_feeds_both(shop: EventShop) -> None:
    first = shop.open(shop.population("first"), ["a", "b"])
    second = shop.open(shop.population("second", data_set_id="other", example_id="ext.click"), ["a", "b"])
    events = [event("a", 5), event("b", 7), event("a", 9, data_set_id="other", ext={"click": "b"})] * 3
    assert shop.send_table(event_table(events)).json() == {"accepted": 9}
    assert (shop.sealed(first), shop.sealed(second)) == ({"a": 15, "b": 21}, {"a": 0, "b": 27})
    bad = [*events, event("a", 5, data_set_id="other", ext={"click": ""})]
    assert shop.send_table(event_table(bad)).json()["rows"][0] | {"rule": ""} == {
        "row": 10,
        "field": "ext.click",
        "rule": "",
    }


def test_what_is_no_table_is_refused(shop: EventShop) -> None:
    shop.population()
    whole = event_table([event("a", 1)] * 50)
    for content, status in ((b"", 422), (b"PAR1", 422), (whole[:-9], 422), (whole[:99] + whole[120:], 422)):
        answer = shop.send_table(content)
        assert answer.status_code == status, answer.text
        assert "Parquet" in answer.json()["detail"]
    table = pa.table(columns())
    twice = pa.Table.from_arrays([*table.columns, table["value"]], [*table.column_names, "value"])
    sink = io.BytesIO()
    pq.write_table(twice, sink)
    assert shop.send_table(sink.getvalue()).json()["rows"][0]["rule"] == "must be the name of one column"


def test_a_large_table_is_read_in_pieces(shop: EventShop) -> None:
    """Beyond the rows of a chunk and of a row group; the row of a fault counts from the first of the table."""
    batch = shop.open(shop.population(domain="0:100000"), ["a", "b"])
    rows = 150_000
    table = pa.table(
        {
            "data_set_id": pa.array(np.full(rows, DATA_SET)),
            "timestamp": pa.array(np.full(rows, SECOND)),
            "event_type": pa.array(np.full(rows, "purchase")),
            "value": pa.array(np.full(rows, 0.5)),
            "currency_code": pa.array(np.full(rows, "EUR")),
            "id": pa.array(np.arange(rows) // 2),
            "user_data": pa.StructArray.from_arrays([pa.array(np.where(np.arange(rows) < 6, "a", "b"))], ["click_id"]),
        }
    )
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=70_000)
    assert shop.send_table(sink.getvalue()).json() == {"accepted": rows}
    times = table["timestamp"].to_numpy().copy()
    times[140_000] = -1
    sink = io.BytesIO()
    pq.write_table(table.set_column(1, "timestamp", pa.array(times)), sink)
    assert shop.send_table(sink.getvalue()).json()["rows"][0]["row"] == 140_001
    assert shop.sealed(batch) == {"a": 1, "b": rows // 4 - 2}
