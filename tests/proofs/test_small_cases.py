"""What the statements of `statements.py` assume of the code, and what no formula says: all small cases of the code.

N is 2⁶⁴ in the product. Tables and draws that take it as a name run here with a small one, so that every row of weights
and every word can be tried.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest

from label_dp.channels.base import N
from label_dp.channels.laplace import LaplaceChannel
from label_dp.channels.noise import NoiseChannel
from label_dp.channels.noise_weights import ONE, half_table, shrink_upper
from label_dp.channels.rr import rr_weights
from label_dp.channels.staircase import StaircaseChannel
from label_dp.domain import Domain
from label_dp.errors import BudgetExceeded, InvalidEpsilon, InvalidMechanism
from label_dp.privacy import Epsilon, EpsilonSplit
from labels_party.ledger.rules import Account, Granted, judge
from labels_party.mechanisms import alias, randomized_response
from labels_party.mechanisms.one_bit import one_bit_channel
from labels_party.mechanisms.randomized_response import sample_rr
from tests.support.exact_matrix import columns_of, lattice_rows, worst_odds

EPSILONS = [
    Epsilon.parse(text) for text in ("0.000000001", "0.01", "0.5", "0.693147181", "1", "3.7", "24", "40", "64", "65")
]

# --- alias tables --------------------------------------------------------------------------------------------


def compositions(total: int, parts: int) -> Iterator[list[int]]:
    """Every way to write `total` as a sum of so many whole numbers from 0 on."""
    for bars in itertools.combinations(range(total + parts - 1), parts - 1):
        yield [after - before - 1 for before, after in itertools.pairwise((-1, *bars, total + parts - 1))]


def wrong_tables(total: int, bits: int) -> int:
    """How many rows of 2ᵇ weights with that sum get a table whose columns add up to other weights."""
    capacity, wrong = total >> bits, 0
    for row in compositions(total, 1 << bits):
        words = [0] * len(row)
        entries = alias._entries(np.array(row, dtype=np.uint64), bits)
        for column, entry in enumerate(entries.tolist()):
            threshold, other = entry >> bits, entry & ((1 << bits) - 1)
            words[column] += threshold
            words[other] += capacity - threshold
            wrong += threshold >= capacity
        wrong += words != row
    return wrong


# 2 columns of up to 128 words, 4 of up to 16, 8 of up to 2
SIZES = [(2, 1), (256, 1), (4, 2), (32, 2), (64, 2), (8, 3), pytest.param(16, 3, marks=pytest.mark.extended)]


@pytest.mark.parametrize(("total", "bits"), SIZES)
def test_every_row_of_a_small_sum_has_its_table(total: int, bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alias, "N", total)
    assert wrong_tables(total, bits) == 0


class SearchFromTheLeft:
    """numpy but for one argument: a heavy output that is filled exactly counts as one that gets too much."""

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    def searchsorted(self, a: Any, v: Any, side: Any) -> Any:
        right = np.searchsorted(a, v, side=side)
        return np.where(right < len(a), np.searchsorted(a, v, side="left"), right)


def test_control_a_search_from_the_other_side_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alias, "N", 16)
    monkeypatch.setattr(alias, "np", SearchFromTheLeft())
    assert wrong_tables(16, 2) > 0


# --- randomized response -------------------------------------------------------------------------------------


class AllWords:
    """Every word below a sum once, in order."""

    def uint64(self, n: int) -> Any:
        return np.arange(n, dtype=np.uint64)


def outcomes(total: int, d: int, own: int, other: int, place: int) -> list[int]:
    """How many of all words give each bin to a label of the bin `place`."""
    drawn = sample_rr(np.full(total, place, dtype=np.uint8), d, own, other, AllWords())
    counts = Counter(drawn.tolist())
    return [counts[at] for at in range(d)]


def test_every_word_of_a_small_sum_gives_its_bin(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = 0
    for total, d in itertools.product((2, 3, 7, 16, 61), range(2, 9)):
        monkeypatch.setattr(randomized_response, "N", total)
        for other in range(1, total // d + 1):
            own = total - (d - 1) * other
            for place in range(d):
                assert outcomes(total, d, own, other, place) == [own if at == place else other for at in range(d)]
                tried += 1
            with pytest.raises(InvalidMechanism):  # a word more
                outcomes(total, d, own + 1, other, 0)
    assert tried > 400


def test_weights_of_randomized_response_are_the_stated_formula() -> None:
    for epsilon, d in itertools.product(EPSILONS, [*range(1, 40), 1000, 1 << 24]):
        share = epsilon.exp_lower() + d - 1
        try:
            own, other = rr_weights(epsilon, d)
        except InvalidEpsilon:
            assert Fraction(N, d) < -(-N // share)  # the own bin would weigh less than another
            continue
        assert (other - 1) * share < N <= other * share
        assert own == N - (d - 1) * other >= other


def test_weights_of_one_bit_lie_between_its_two() -> None:
    for epsilon, k in itertools.product(EPSILONS, (2, 3, 7, 20)):
        channel: Any = one_bit_channel(Domain.parse(f"0:{k - 1}"), epsilon)
        weights = channel.weights.tolist()
        assert (min(weights), max(weights), channel.A + channel.B) == (channel.B, channel.A, N)
        assert channel.satisfies(epsilon)


# --- noise ---------------------------------------------------------------------------------------------------

SMALL = list(itertools.product((1, 2, 3, 5), (0, 1, 2, 7), (2, 10, 1 << 32), EPSILONS[1:8]))


def small_noise() -> Iterator[NoiseChannel]:
    """Noise of all sizes in SMALL whose weights, rounded, still fall with distance: others are refused."""
    for cells, reach, peak, epsilon in SMALL:
        about: dict[str, Any] = {"domain": Domain.parse(f"0:{cells}"), "noise_epsilon": epsilon, "cells": cells}
        about |= {"reach": reach, "peak": peak}
        makers = [partial(StaircaseChannel, width=width) for width in range(1, cells + 1)]
        for make in (LaplaceChannel, *makers):
            with suppress(InvalidMechanism):
                yield make(**about)


def test_small_noise_keeps_the_premises_of_its_steps() -> None:
    for channel in small_noise():
        cells, reach, b = channel.cells, channel.reach, shrink_upper(channel.noise_epsilon.fraction)
        low = channel.noise_epsilon.exp_lower()
        assert b * low >= ONE > max(b, (b - 1) * low)  # each bound is the least that holds: one less is noticed
        weights, remainder = half_table(channel.noise_epsilon, channel._period(), reach)
        pairs = zip(weights[:reach], weights[cells : cells + reach], strict=True)
        assert all(later * ONE >= w * b > (later - 1) * ONE for w, later in pairs)
        tail = weights[-1] - remainder // 2
        assert remainder >= 0
        assert tail * (ONE - b) >= sum(weights[reach:-1]) * b > (tail - 1) * (ONE - b)


def test_small_noise_states_the_odds_of_all_pairs_of_points() -> None:
    planted = 0
    for channel in small_noise():
        weights = channel.weights.tolist()
        odds = worst_odds(columns_of(lattice_rows(channel.cells, channel.reach, weights)))
        assert odds == channel.worst_case_odds
        heavier = [*weights[:-1], weights[-1] - 1]  # a word moved out of the tail to zero noise
        heavier[0] += 2
        planted += worst_odds(columns_of(lattice_rows(channel.cells, channel.reach, heavier))) != odds
    assert planted > len(SMALL) // 2


# --- charges -------------------------------------------------------------------------------------------------


def test_a_charge_is_granted_if_and_only_if_it_fits_for_all_small_accounts() -> None:
    verdicts = Counter[bool]()
    for lifetime, spent, *parts in itertools.product(range(5), range(5), range(3), range(3), range(3)):
        split = EpsilonSplit(*map(Epsilon, parts))
        if spent > lifetime or not sum(parts):
            continue
        for life, used, asked in itertools.product(range(3), repeat=3):
            if used > life or (asked and not life):
                continue
            verdict = judge(
                Account(Epsilon(lifetime), Epsilon(spent), life, used), EpsilonSplit(*map(Epsilon, parts), asked)
            )
            fits = spent + sum(parts) <= lifetime and used + asked <= life
            assert isinstance(verdict, Granted if fits else BudgetExceeded)
            if isinstance(verdict, Granted):
                assert (verdict.account.spent.nano, verdict.account.spent_delta) == (
                    spent + split.total.nano,
                    used + asked,
                )
            verdicts[fits] += 1
    assert min(verdicts.values()) > 100
