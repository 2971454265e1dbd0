"""Calls of other parties that callers of ours wait for: so many at once, each with an end."""

from __future__ import annotations

from contextlib import ExitStack

import httpx
import pytest

from label_dp.client.budgets import AT_ONCE, OF_ONE, SECONDS, Late, Outgoing
from label_dp.errors import Busy
from label_dp.problems import status_of

THREADS = 40  # that answer callers, by the web framework


def test_few_calls_run_at_once_and_fewer_of_one_party() -> None:
    outgoing = Outgoing()
    with ExitStack() as running:
        for _ in range(OF_ONE):
            running.enter_context(outgoing.call("https://slow.example"))
        with pytest.raises(Busy, match="8 of them of this one") as refusal, outgoing.call("https://slow.example"):
            raise AssertionError
        assert status_of(refusal.value) == 503
        for n in range(AT_ONCE - OF_ONE):
            running.enter_context(outgoing.call(f"https://labels-{n}.example"))
        with pytest.raises(Busy), outgoing.call("https://another.example"):
            raise AssertionError
    with outgoing.call("https://slow.example") as budget:
        assert SECONDS - 5 < budget.left() <= SECONDS
    assert AT_ONCE < THREADS / 2


def test_a_failed_call_gives_its_place_back() -> None:
    outgoing = Outgoing()
    for _ in range(3 * AT_ONCE):
        with pytest.raises(httpx.ReadError), outgoing.call("https://slow.example"):
            raise httpx.ReadError("gone")


def test_calls_end_with_the_service() -> None:
    outgoing, ends = Outgoing(), False
    outgoing.stopping = lambda: ends
    with outgoing.call("https://labels.example") as budget:
        assert budget.left() > 0
        ends = True
        with pytest.raises(Late, match="the service stops"):
            budget.left()
