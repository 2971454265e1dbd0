"""The rule of events in words, and in signed documents."""

from __future__ import annotations

import pytest

from label_dp.schemas.events import EventRule

WORDS = {
    "sum of the values of the events purchase (+) and refund (-) of data set shop-orders; by user_data.click_id, 7 "
    "days from the example's time on; values are in EUR, those in another currency are refused": {
        "types": {"purchase": "+", "refund": "-"},
        "take": "sum",
        "currency": "EUR",
        "window_days": 7,
    },
    "1 if more count as + than as -, else 0, of the events purchase (+) of data set shop-orders; by "
    "user_data.click_id, until the seal; events marked mmt_only count too": {
        "types": {"purchase": "+"},
        "take": "any",
        "mmt_only": "count",
    },
}


@pytest.mark.parametrize("words", WORDS)
def test_a_rule_in_words(words: str) -> None:
    assert EventRule(data_set_id="shop-orders", **WORDS[words]).sentence == words
