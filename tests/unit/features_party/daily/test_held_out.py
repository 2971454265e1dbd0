"""Which examples are held out follows from ids and the folder's key; when a model takes over from its interval."""

from __future__ import annotations

import pyarrow as pa
import pytest

from features_party.daily.comparison import HoldoutComparison, split
from features_party.tables.feature_tables import FeatureTable
from features_party.training.intervals import Interval
from label_dp.errors import InvalidTable


def table(ids: list[str]) -> FeatureTable:
    return FeatureTable(pa.array(ids), pa.table({"x": list(range(len(ids)))}), "id")


def test_an_example_is_held_out_on_every_day_or_on_none() -> None:
    ids = [f"c{number}" for number in range(4000)]
    (train, held), (later, still) = split(table(ids), 0.1, "k"), split(table([*ids[::-1], "new"]), 0.1, "k")
    assert set(train.ids.to_pylist()) | set(held.ids.to_pylist()) == set(ids)
    assert 340 < held.rows < 460  # 400 ± 3 standard errors
    assert set(held.ids.to_pylist()) <= set(still.ids.to_pylist())
    assert not set(later.ids.to_pylist()) & set(held.ids.to_pylist())
    assert [ids[at] for at in held.features["x"].to_pylist()] == held.ids.to_pylist()
    wider = split(table(ids), 0.3, "k")[1]
    assert set(held.ids.to_pylist()) < set(wider.ids.to_pylist())
    other = split(table(ids), 0.1, "another folder")[1]
    assert len(set(held.ids.to_pylist()) & set(other.ids.to_pylist())) < 80  # 40 ± 6 by chance


def test_too_few_rows_are_refused() -> None:
    with pytest.raises(InvalidTable, match="too few"):
        split(table(["a"]), 0.1, "k")


@pytest.mark.parametrize(
    ("low", "high", "takes"),
    [(1, 3, {"better", "surely-better", "unless-surely-worse"}), (-1, 3, {"better", "unless-surely-worse"}),
     (-3, 1, {"unless-surely-worse"}), (-3, -1, set())],
)  # fmt: skip
def test_takes_over(low: float, high: float, takes: set[str]) -> None:
    found = HoldoutComparison("mse", 100, Interval((low + high) / 2, 1.0, low, high))
    assert {rule for rule in ("better", "surely-better", "unless-surely-worse") if found.takes_over(rule)} == takes
