"""The balanced randomizer: never worse than one bit, better than the unbiased program at large ε, exact ε."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from label_dp.channels.base import Channel
from label_dp.channels.knots import KnotsChannel
from label_dp.channels.one_bit import OneBitChannel
from label_dp.channels.registry import channel_from_json
from label_dp.domain import Domain
from label_dp.errors import InvalidEpsilon, InvalidPrior
from label_dp.privacy import Epsilon
from labels_party.mechanisms.balanced import balanced_channel
from labels_party.mechanisms.catalogue import MECHANISMS
from labels_party.mechanisms.model_error import model_error

DOMAIN = Domain.parse("0:100")
PRIOR = np.exp(-np.arange(101) / 20.0) + 0.5 * np.exp(-((np.arange(101) - 60.0) ** 2) / 200.0)
PRIOR /= PRIOR.sum()
ROWS = 100_000


@functools.cache
def designed(name: str, epsilon: str, **options: str) -> Channel:
    """Solved once: a linear program each."""
    return MECHANISMS[name].design(DOMAIN, PRIOR, Epsilon.parse(epsilon), "squared", options, ROWS)


def error(name: str, epsilon: str, **options: str) -> float:
    return float(model_error(designed(name, epsilon, **options), PRIOR, ROWS)["expected_model_error"])


@pytest.mark.parametrize("epsilon", ["0.05", "0.7", "2", "4"])
def test_its_model_error_beats_one_bit_and_at_large_epsilon_the_program(
    epsilon: str,
) -> None:
    balanced = error("balanced", epsilon)
    assert balanced <= error("one-bit", epsilon, clip="auto")
    assert balanced < error("one-bit", epsilon)
    if float(epsilon) >= 2:
        assert balanced < 0.99 * error("unbiased", epsilon)
        assert balanced < 0.95 * error("one-bit", epsilon, clip="auto")


def test_it_has_no_mean_bias_and_less_noise_than_the_unbiased_one() -> None:
    eps = Epsilon.parse("2")
    channel, unbiased = designed("balanced", "2"), designed("unbiased", "2")
    assert isinstance(channel, KnotsChannel)
    assert channel.satisfies(eps)
    assert not channel.satisfies(Epsilon.parse("1.9999"))
    assert not channel.unbiased
    means, _ = channel.moments(channel.outputs)
    assert abs(float(PRIOR @ (means - channel.labels))) < 0.1
    assert channel.residual_bias == pytest.approx(float(np.max(np.abs(means - channel.labels))), rel=1e-6)
    assert channel.corrected_variance(PRIOR) < 0.95 * unbiased.corrected_variance(PRIOR)
    assert channel_from_json(channel.as_json(), DOMAIN).as_json() == channel.as_json()


def test_more_rows_mean_less_bias() -> None:
    few, many = (balanced_channel(DOMAIN, PRIOR, Epsilon.parse("3"), n) for n in (1_000, 10_000_000))
    biases = [float(PRIOR @ (c.moments(c.outputs)[0] - DOMAIN.values) ** 2) for c in (few, many)]
    assert biases[1] < biases[0] / 2


def test_two_outputs_at_small_epsilon_and_for_two_labels() -> None:
    assert isinstance(balanced_channel(DOMAIN, PRIOR, Epsilon.parse("0.1"), ROWS), OneBitChannel)
    two = balanced_channel(Domain.parse("0:1"), np.array([0.9, 0.1]), Epsilon.parse("3"), ROWS)
    assert isinstance(two, OneBitChannel)
    assert balanced_channel(Domain.parse("4:4"), np.ones(1), Epsilon.parse("1"), 1).outputs.tolist() == [4.0]


def test_odd_priors_domains_and_numbers_of_rows() -> None:
    eps = Epsilon.parse("2.5")
    one, zeros = np.zeros(101), np.zeros(101)
    one[7], zeros[[0, 50, 100]] = 1.0, (0.6, 0.3, 0.1)
    for prior, n in ((one, 10_000), (zeros, 1), (np.full(101, 1 / 101), 100)):
        channel = balanced_channel(DOMAIN, prior, eps, n)
        assert channel.satisfies(eps)
        assert np.all(np.isfinite(channel.outputs))
    listed = Domain.from_values([-5, 0, "0.25", 90, 1000])
    assert balanced_channel(listed, np.full(5, 0.2), eps, 1000).satisfies(eps)
    with pytest.raises(InvalidEpsilon):
        balanced_channel(DOMAIN, PRIOR, Epsilon(0), ROWS)
    with pytest.raises(InvalidPrior, match="needs a prior"):
        MECHANISMS["balanced"].design(DOMAIN, None, eps, "squared", {})
