"""Lower bounds of ε by right guesses of canaries: how often they err, and what they find.

`tests/privacy_audit/test_auditor.py` does the same for `audit`.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from label_dp.domain import Domain
from label_dp.privacy import Epsilon
from labels_party.companions.audit_bounds import guess_bound, lower_bound, power
from labels_party.companions.privacy_audit import (
    CONSISTENT,
    EXCEEDS,
    GROUPS,
    INCONCLUSIVE,
    guess,
    judgement,
    output_groups,
    verdict_of,
    worst_pair,
)
from tests.support.exact_matrix import design

ALPHA = 0.1


def test_it_errs_no_more_often_than_it_says_and_nearly_as_often() -> None:
    """Randomized response of ε = 1 is the worst that ε allows. Of 4000 audits of 400 guesses at an α of a tenth, 400
    are wrong on average at most; more than 480 (4σ) or fewer than 250 have a chance below 10⁻⁴."""
    rng, p = np.random.default_rng(5), math.e / (1 + math.e)
    wrong = sum(guess_bound(int(right), 400, ALPHA) > 1 for right in rng.binomial(400, p, 4000))
    assert 250 < wrong < 480


def test_a_bound_of_guesses_is_that_of_clopper_and_pearson() -> None:
    p = lower_bound(70, 100, 0.05)
    assert guess_bound(70, 100, 0.05) == pytest.approx(math.log(p / (1 - p)))
    assert (guess_bound(50, 100, 0.05), guess_bound(0, 0, 0.05), guess_bound(3, 100, 0.05)) == (0, 0, 0)
    assert guess_bound(100, 100, 0.05) == pytest.approx(math.log(0.05**0.01 / (1 - 0.05**0.01)))


@pytest.mark.parametrize("name", ["one-bit", "rr", "discrete-laplace", "subset-selection"])
def test_guesses_are_decided_without_the_coins(name: str) -> None:
    """The same outputs with all coins turned: as many guesses, and those that were right are wrong."""
    channel = design(name, Domain.parse("0:30"), Epsilon.parse("1"), {})
    rng = np.random.default_rng(1)
    coins = rng.integers(0, 2, 500).astype(bool)
    ends = channel.rows(0, 1)[0], channel.rows(30, 31)[0]
    bins = np.array([rng.choice(channel.m, p=ends[0 if coin else 1] / ends[0 if coin else 1].sum()) for coin in coins])
    right, guesses = guess(channel, bins, coins, ALPHA)
    wrong, same = guess(channel, bins, ~coins, ALPHA)
    assert guesses == same
    assert right + wrong == guesses
    assert 0 < guess_bound(right, guesses, 1e-4) < 1.2  # ε is 1; a bound above it has a chance of 10⁻⁴


def test_nothing_published_of_a_canary_is_no_guess() -> None:
    channel = design("one-bit", Domain.parse("0:30"), Epsilon.parse("1"), {})
    assert guess(channel, np.empty(0, np.int64), np.empty(0, np.bool_), ALPHA) == (0, 0)


def test_power_grows_with_trials_and_ends_at_what_they_can_prove() -> None:
    assert 0.9 < power(1.0, 100_000, 0.05) < 1
    assert power(1.0, 1_000, 0.05) < power(1.0, 10_000, 0.05)
    assert power(math.inf, 100, 0.05) < power(math.inf, 1_000, 0.05)


def test_the_worst_two_labels_are_those_that_the_channel_tells_apart_best() -> None:
    ends = design("one-bit", Domain.parse("0:30"), Epsilon.parse("1"), {})
    clipped = design("one-bit", Domain.parse("0:30"), Epsilon.parse("1"), {"clip": ("10", "20")})
    assert worst_pair(ends, (0, 30)) == (0, 30)
    assert worst_pair(ends, (3, 4)) == (0, 30)
    low, high = worst_pair(clipped, (14, 15))
    assert low <= 10 < 20 <= high


def test_outputs_beyond_the_groups_are_put_together_by_their_odds() -> None:
    few = design("rr", Domain.parse("0:30"), Epsilon.parse("1"), {})
    assert output_groups(few, (0, 30)).tolist() == list(range(31))
    many = design("laplace", Domain.parse("0:100"), Epsilon.parse("1"), {})
    groups = output_groups(many, (0, 100))
    odds = np.log(many.rows(0, 1)[0] / many.rows(100, 101)[0])
    assert many.m > GROUPS > groups.max()
    assert [float(groups[odds < -0.9].max()) < float(groups[odds > 0.9].min())] == [True]


def test_verdicts() -> None:
    epsilon = Epsilon.parse("1")
    assert judgement("rr", epsilon, 0.9, 2, 1.8, 8)["verdict"] == CONSISTENT
    assert judgement("rr", epsilon, 1.1, 2, 1.8, 8)["verdict"] == EXCEEDS
    assert judgement("rr", epsilon, 0.2, 2, 0.9, 8)["verdict"] == INCONCLUSIVE
    assert judgement("rr", epsilon, 1.1, 2, 0.9, 8)["verdict"] == EXCEEDS  # a leak that was found needs no control
    rows = [judgement("rr", epsilon, bound, 2, control, 8) for bound, control in ((0.9, 1.8), (0.2, 0.9), (1.1, 1.8))]
    assert [verdict_of(rows[:n]) for n in range(4)] == [INCONCLUSIVE, CONSISTENT, INCONCLUSIVE, EXCEEDS]
