"""The fold of events beside a plain oracle, over random histories: repeats, merges, refunds, windows, orders."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from label_dp.domain import Domain
from label_dp.schemas.events import EventRule
from labels_party.labels.columns import NONE
from labels_party.labels.digests import EventKeys
from labels_party.labels.events import fold
from labels_party.labels.events.bodies import EVENT, event_objects, stored_events
from labels_party.labels.events.files import event_tables
from labels_party.ledger.event_rules import data_sets
from tests.support.events import DAY, SECOND, oracle

KEYS = EventKeys(bytes(range(16)), bytes(range(16, 32)), bytes(range(32, 48)))
CLICKS = [f"click-{i}" for i in range(6)]
DOMAIN = Domain.from_json("-50:50:0.25")

record = st.fixed_dictionaries(
    {
        "data_set_id": st.just("d"),
        "timestamp": st.integers(-3, 3).map(lambda day: SECOND + day * DAY // 2),
        "event_type": st.sampled_from(["purchase", "refund", "page_view", "custom"]),
        "custom_event": st.sampled_from(["trial", "other"]),
        "id": st.sampled_from([None, 1, "1", "2", "3", "4"]),
        "value": st.sampled_from([None, 0, 0.25, 1.5, 19.75, 40, -3]),
        "currency_code": st.sampled_from(["EUR", "eur", "USD"]),
        "user_data": st.one_of(
            st.none(),
            st.fixed_dictionaries(
                {
                    "click_id": st.sampled_from([None, *CLICKS, "unlisted"]),
                    "mmt_only": st.sampled_from([None, None, True, False]),
                }
            ),
        ),
    }
)
rules = st.fixed_dictionaries(
    {
        "data_set_id": st.just("d"),
        "take": st.sampled_from(["any", "count", "sum", "first", "last", "max"]),
        "types": st.sampled_from(
            [{"purchase": "+"}, {"purchase": "+", "refund": "-"}, {"custom:trial": "+", "refund": "-"}]
        ),
        "currency": st.just("EUR"),
        "other_currency": st.just("leave-out"),
        "window_days": st.sampled_from([None, 1]),
        "mmt_only": st.sampled_from(["leave-out", "count"]),
    }
)


def labels(records: list[Any], rule: EventRule, times: dict[str, int], folder: Path, cut: int) -> dict[str, int]:
    """Positions of the listed examples that have a label, by the product, in two uploads."""
    with closing(fold.EventFold(rule, KEYS, max(len(records), len(times)), folder)) as of_rule:
        for part in (records[:cut], records[cut:]):
            stored = stored_events(event_objects(0, part), data_sets([rule]), {"d": KEYS})
            of_rule.add(stored.get("d", np.zeros(0, EVENT)))
        listed = [(pa.array(list(times)[i : i + 4]), np.array(list(times.values())[i : i + 4])) for i in (0, 4)]
        positions = of_rule.positions(listed, len(times), DOMAIN)
    counts = of_rule.counts.as_json()
    examples = counts.pop("examples")
    assert counts.pop("records") == len(records) == sum(counts.values())
    assert examples == np.count_nonzero(positions != NONE)
    return {click: int(at) for click, at in zip(times, positions, strict=True) if at != NONE}


def expected(records: list[Any], rule: dict[str, Any], times: dict[str, int]) -> dict[str, int]:
    by_oracle = oracle(records, rule, times)
    clipped = {click: min(max(label, Decimal(-50)), Decimal(50)) for click, label in by_oracle.items()}
    return {click: int((label + 50) * 4 // 1) for click, label in clipped.items()}


@pytest.mark.parametrize("rows_of_part", [1 << 20, 2], ids=["one part", "many parts"])
@given(data=st.data())
def test_the_fold_is_the_oracles(
    tmp_path_factory: pytest.TempPathFactory, rows_of_part: int, data: st.DataObject
) -> None:
    records = data.draw(st.lists(record, max_size=24))
    rule = data.draw(rules)
    times = {click: SECOND + data.draw(st.integers(-1, 1)) * DAY for click in CLICKS}
    cut = data.draw(st.integers(0, len(records)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fold, "ROWS_OF_PART", rows_of_part)
        folder = tmp_path_factory.getbasetemp()
        assert labels(records, EventRule(**rule), times, folder, cut) == expected(records, rule, times)


def test_a_fold_that_forgets_a_rule_is_noticed(tmp_path: Path) -> None:
    """The control: an oracle with another rule disagrees."""
    click = {"click_id": CLICKS[0]}
    of_all = {"data_set_id": "d", "timestamp": SECOND, "currency_code": "EUR", "user_data": click}
    records = [of_all | {"event_type": "purchase", "value": 3}, of_all | {"event_type": "refund", "value": 1}]
    rule = {"data_set_id": "d", "take": "sum", "types": {"purchase": "+", "refund": "-"}, "currency": "EUR"}
    times = dict.fromkeys(CLICKS, SECOND)
    got = labels(records, EventRule(**rule), times, tmp_path, 1)
    assert got == expected(records, rule, times) == {CLICKS[0]: 208}
    assert got != expected(records, rule | {"types": {"purchase": "+"}}, times)


def test_sums_beyond_a_word_are_clipped_and_not_wrapped(tmp_path: Path) -> None:
    rule = EventRule(data_set_id="d", take="sum", types={"purchase": "+"}, currency="EUR")
    stored = np.zeros(20_000, EVENT)
    one = {"data_set_id": "d", "timestamp": 1, "event_type": "purchase", "value": 999_999_999, "currency_code": "EUR"}
    row = stored_events(event_objects(0, [one | {"user_data": {"click_id": "a"}}]), data_sets([rule]), {"d": KEYS})["d"]
    stored[:] = row
    stored["event_low"] = np.arange(len(stored))
    for sign, end in ((1, DOMAIN.k - 1), (-1, 0)):
        stored["amount"] = row["amount"] * sign
        with closing(fold.EventFold(rule, KEYS, 20_000, tmp_path)) as of_rule:
            of_rule.add(stored)
            assert of_rule.positions([(pa.array(["a"]), None)], 1, DOMAIN).tolist() == [end]


@given(st.lists(record, min_size=1, max_size=24), st.booleans())
def test_a_table_is_stored_as_its_objects_are(records: list[Any], nulls: bool) -> None:
    """Whether a member that no event has is a column of nulls or none."""
    records = [one | {"id": None if one["id"] is None else str(one["id"])} for one in records]
    names = [name for name in records[0] if nulls or any(one[name] is not None for one in records)]
    table = pa.table({name: pa.array([one[name] for one in records]) for name in names})
    sets = data_sets([EventRule(data_set_id="d", take="count", types={"purchase": "+"})])

    def without_id(places: Sequence[int]) -> Any:
        return np.array(places, np.uint64), np.array(places, np.uint64)

    (rows,) = event_tables([table], sets.values())
    of_table = stored_events(rows, sets, {"d": KEYS}, without_id)["d"]
    of_objects = stored_events(event_objects(0, records), sets, {"d": KEYS}, without_id)["d"]
    assert of_table.tobytes() == of_objects.tobytes()
