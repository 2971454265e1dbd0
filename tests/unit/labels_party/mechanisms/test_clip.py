"""Ends of clipping for one bit: the best of all pairs by the expected model error, as exact values of the domain."""

from __future__ import annotations

import itertools
from decimal import Decimal

import numpy as np
import pytest

from label_dp.channels.one_bit import OneBitChannel
from label_dp.domain import Domain
from label_dp.errors import InvalidEpsilon, InvalidPrior
from label_dp.privacy import Epsilon
from labels_party.mechanisms.catalogue import MECHANISMS
from labels_party.mechanisms.clip import best_clip
from labels_party.mechanisms.model_error import model_error
from labels_party.mechanisms.one_bit import one_bit_channel

E = Epsilon.parse


@pytest.mark.parametrize("epsilon", ["0.1", "1", "4"])
@pytest.mark.parametrize("shape", [0.15, 1.0])
def test_no_other_pair_is_better(epsilon: str, shape: float) -> None:
    domain, n = Domain.parse("-3:3:0.25"), 20_000
    prior = np.random.default_rng(int(10 * shape)).dirichlet(np.full(domain.k, shape))
    found = best_clip(domain, prior, E(epsilon), n)
    figures = {
        pair: model_error(one_bit_channel(domain, E(epsilon), pair), prior, n)["expected_model_error"]
        for pair in itertools.combinations([Decimal(i) / 4 for i in range(-12, 13)], 2)
    }
    assert figures[found] <= min(figures.values()) * (1 + 1e-6)
    # a pair that is much worse shows that the figures tell them apart
    assert max(figures.values()) > 1.2 * figures[found]


@pytest.mark.parametrize("epsilon", ["0.5", "2", "6"])
@pytest.mark.parametrize("sold", [0.03, 0.3])
def test_no_other_pair_is_better_for_labels_that_are_mostly_zero(epsilon: str, sold: float) -> None:
    domain, n = Domain.parse("0:30"), 200_000
    prior = np.exp(-domain.values / 8.0)
    prior[0] = 0.0
    prior *= sold / prior.sum()
    prior[0] = 1.0 - sold
    found = best_clip(domain, prior, E(epsilon), n)
    figures = {
        pair: model_error(one_bit_channel(domain, E(epsilon), pair), prior, n)["expected_model_error"]
        for pair in itertools.combinations([Decimal(i) for i in range(31)], 2)
    }
    assert found[0] == 0
    assert figures[found] <= min(figures.values()) * (1 + 1e-6)
    assert max(figures.values()) > 1.2 * figures[found]


def test_a_large_domain_and_listed_values() -> None:
    domain = Domain.parse("0:1000000:0.5")
    prior = np.exp(-domain.values / 1e4)
    low, high = best_clip(domain, prior / prior.sum(), E("1"), 100_000)
    assert 0 <= low < high < 100_000
    listed = Domain.from_values(["-1.5", "0", "0.125", "1000"])
    assert best_clip(listed, np.array([0.3, 0.3, 0.39, 0.01]), E("0.2"), 1000)[1] < 1000


def test_degenerate_priors() -> None:
    domain = Domain.parse("0:9")
    assert best_clip(domain, np.eye(10)[4], E("1"), 100) == (0, 9)
    assert best_clip(domain, np.full(10, 0.1), E("1"), 1)[0] >= 0
    assert best_clip(Domain.parse("0:1"), np.array([0.5, 0.5]), E("1"), 100) == (0, 1)


def test_the_option_of_one_bit() -> None:
    domain, mechanism = Domain.parse("0:100"), MECHANISMS["one-bit"]
    prior = np.exp(-domain.values / 8.0)
    prior /= prior.sum()
    assert mechanism.needs_prior({"clip": "auto"})
    assert not mechanism.needs_prior({})
    assert not mechanism.needs_prior({"clip": ["0", "30"]})
    channel = mechanism.design(domain, prior, E("0.5"), "squared", {"clip": "auto"}, 50_000)
    assert isinstance(channel, OneBitChannel)
    assert channel.high < 50
    assert channel.satisfies(E("0.5"))
    with pytest.raises(InvalidPrior, match="needs a prior"):
        mechanism.design(domain, None, E("0.5"), "squared", {"clip": "auto"})
    one_value = mechanism.design(Domain.parse("3:3"), np.ones(1), E("1"), "squared", {"clip": "auto"})
    assert one_value.m == 1


@pytest.mark.filterwarnings("error")
def test_no_epsilon_is_refused_before_anything_divides_by_it() -> None:
    domain, prior, design = Domain.parse("0:9"), np.full(10, 0.1), MECHANISMS["one-bit"].design
    with pytest.raises(InvalidEpsilon, match="needs an ε greater than zero"):
        design(domain, prior, Epsilon(0), "squared", {"clip": "auto"})
    for n in (1, 1_000_000):  # the smallest there is works, for few labels and for many
        assert design(domain, prior, Epsilon(1), "squared", {"clip": "auto"}, n).satisfies(Epsilon(1))
