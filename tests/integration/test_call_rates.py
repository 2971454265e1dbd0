"""A key that calls too often is refused for a while, unread, and nobody else is."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from label_dp.client.peer import BUSY
from label_dp.errors import TooManyCalls
from label_dp.http.rates import Rates
from tests.support.labels import LabelsParty


def taken(rates: Rates, key: str, calls: int) -> int:
    done = 0
    for _ in range(calls):
        try:
            rates.take(key)
        except TooManyCalls:
            continue
        done += 1
    return done


def test_so_many_calls_a_minute_some_of_them_at_once() -> None:
    now = [0.0]
    rates = Rates(60, lambda: now[0])
    assert taken(rates, "a", 100) == 60
    assert taken(rates, "b", 100) == 60
    now[0] += 10
    assert taken(rates, "a", 100) == 10
    with pytest.raises(TooManyCalls) as refused:
        rates.take("a")
    assert refused.value.seconds == 1
    now[0] += 1
    assert taken(rates, "a", 2) == 1
    now[0] += 10_000  # what was not used does not add up
    assert taken(rates, "a", 100) == 60
    # over an hour, whoever tries all the time gets no more than the rate and what may come at once
    total = 0
    for _ in range(36_000):
        now[0] += 0.1
        total += taken(rates, "c", 3)
    assert 3600 <= total <= 3660


def test_without_a_limit_none_is_refused() -> None:
    assert taken(Rates(0), "a", 10_000) == 10_000


def test_the_service_refuses_by_key_counts_it_and_says_when_to_come_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with LabelsParty(tmp_path / "home", worker=False, calls_per_minute=5) as party, caplog.at_level(logging.WARNING):
        one, other = party.client(), party.client()
        answers = [one.get("/v1/populations") for _ in range(7)]
        assert [a.status_code for a in answers] == [200] * 5 + [429] * 2
        assert answers[-1].json()["code"] == "too-many-calls"
        assert 1 <= int(answers[-1].headers["Retry-After"]) <= 12
        refused = one.post("/v1/populations", content=b"{", headers={"Content-Type": "application/json"})
        assert refused.status_code == 429, "before a byte of the body is read"
        assert other.get("/v1/populations").status_code == 200
        one.headers["Authorization"] = "Bearer lp_nobody"
        assert one.get("/v1/populations").status_code == 401
        metrics = one.get("/metrics").text
    assert 'label_dp_refused_keys_total{reason="too many calls"} 3.0' in metrics
    assert 'label_dp_refused_keys_total{reason="unknown key"} 1.0' in metrics
    assert len([r for r in caplog.records if "calls too often" in r.getMessage()]) == 1
    assert 429 in BUSY  # our clients wait as they are told
