"""Every mechanism behind one interface: design, sample, refuse."""

from __future__ import annotations

import numpy as np
import pytest

from label_dp.channels.base import N
from label_dp.channels.rr import RRChannel
from label_dp.domain import Domain
from label_dp.errors import InvalidEpsilon, InvalidLoss, InvalidMechanism, InvalidPrior
from label_dp.privacy import Epsilon
from labels_party.mechanisms.bins import solve_bins
from labels_party.mechanisms.catalogue import MECHANISMS, get_mechanism, sample
from labels_party.mechanisms.one_bit import one_bit_channel
from labels_party.mechanisms.randomized_response import rr_weights

DOMAIN = Domain.parse("0:99")
UNIFORM = np.full(100, 0.01)
ONE = Epsilon.parse("1")


@pytest.mark.parametrize("name", list(MECHANISMS))
def test_design_and_sample(name: str) -> None:
    mechanism = get_mechanism(name)
    channel = mechanism.design(DOMAIN, UNIFORM, ONE, "squared", {})
    assert channel.satisfies(ONE)
    drawn = mechanism.sample(channel, np.arange(100).repeat(3))
    assert drawn.shape == (300,)
    assert drawn.dtype == np.min_scalar_type(channel.m - 1)
    assert int(drawn.max()) < channel.m
    assert mechanism.sample(channel, np.zeros(0, dtype=np.int64)).size == 0


@pytest.mark.parametrize("name", list(MECHANISMS))
def test_a_domain_of_one_value_is_constant(name: str) -> None:
    domain = Domain.from_values([7])
    channel = get_mechanism(name).design(domain, np.ones(1), ONE, "squared", {})
    assert channel.satisfies(Epsilon(0))
    assert channel.outputs.tolist() == [7.0]
    assert np.array_equal(sample(channel, np.zeros(5, dtype=np.int64)), np.zeros(5))


def test_two_draws_differ() -> None:
    channel = get_mechanism("one-bit").design(DOMAIN, None, ONE, "squared", {})
    index = np.full(500, 50)
    assert not np.array_equal(sample(channel, index), sample(channel, index))


def test_many_bins_take_a_wider_type() -> None:
    domain = Domain.parse("0:599")
    channel = get_mechanism("rr-on-bins").design(domain, np.full(600, 1 / 600), Epsilon.parse("40"), "squared", {})
    assert channel.m == 600
    drawn = sample(channel, np.arange(600))
    assert drawn.dtype == np.uint16
    assert np.array_equal(drawn, np.arange(600))  # at ε = 40 a label is kept but for 10⁻¹⁴


def test_bin_means_follow_the_prior_and_empty_bins_their_labels() -> None:
    prior = np.zeros(100)
    prior[[10, 20, 90]] = [0.25, 0.25, 0.5]
    channel = get_mechanism("rr-on-bins").design(DOMAIN, prior, Epsilon.parse("2"), "squared", {})
    assert isinstance(channel, RRChannel)
    y = DOMAIN.values
    for j in range(channel.d):
        inside = slice(channel.boundaries[j], channel.boundaries[j + 1])
        assert channel.bin_means[j] == pytest.approx(prior[inside] @ y[inside] / prior[inside].sum(), rel=1e-12)


@pytest.mark.parametrize(
    ("loss", "domain"),
    [("squared", DOMAIN), ("absolute", DOMAIN), ("poisson", DOMAIN), ("log", Domain.parse("0:0.99:0.01"))],
)
def test_the_channel_loses_what_the_solver_promised(loss: str, domain: Domain) -> None:
    prior = np.exp(-np.arange(100) / 15.0)
    prior /= prior.sum()
    for epsilon in ("0.2", "1", "5"):
        eps = Epsilon.parse(epsilon)
        channel = get_mechanism("rr-on-bins").design(domain, prior, eps, loss, {})
        promised = solve_bins(prior, domain.values, eps, loss).expected_loss
        assert channel.expected_loss(prior, loss) == pytest.approx(promised, rel=1e-10)


def test_refusals() -> None:
    with pytest.raises(InvalidMechanism, match="rr-on-bins, one-bit, "):
        get_mechanism("gaussian")
    with pytest.raises(InvalidPrior):
        get_mechanism("rr-on-bins").design(DOMAIN, None, ONE, "squared", {})
    with pytest.raises(InvalidLoss):
        get_mechanism("rr-on-bins").design(Domain.parse("-1:1"), np.full(3, 1 / 3), ONE, "poisson", {})
    with pytest.raises(InvalidMechanism):
        get_mechanism("one-bit").design(DOMAIN, None, ONE, "squared", {"gamma": 1})
    for clip in ((5, 5), (9, 1), ("a", 1), (1,), 3):
        with pytest.raises(InvalidMechanism):
            get_mechanism("one-bit").design(DOMAIN, None, ONE, "squared", {"clip": clip})
    for name in ("one-bit", "discrete-laplace"):
        with pytest.raises(InvalidEpsilon):
            get_mechanism(name).design(DOMAIN, None, Epsilon(0), "squared", {})
    channel = one_bit_channel(DOMAIN, ONE)
    for index in ([-1], [100]):
        with pytest.raises(InvalidMechanism):
            sample(channel, np.array(index))


def test_one_bit_clip_is_used_exactly() -> None:
    channel = get_mechanism("one-bit").design(DOMAIN, None, ONE, "squared", {"clip": ("10.5", 60)})
    assert channel.as_json()["low"] == "10.5"
    assert not channel.unbiased
    assert channel.matrix() @ channel.outputs == pytest.approx(np.clip(DOMAIN.values, 10.5, 60), abs=1e-10)


def test_weights_cap_and_refuse() -> None:
    assert rr_weights(Epsilon.parse("1000000"), 5) == (N - 4, 1)
    assert rr_weights(Epsilon(0), 2) == (N // 2, N // 2)
    with pytest.raises(InvalidEpsilon):
        rr_weights(Epsilon(0), 3)
    with pytest.raises(InvalidMechanism):
        rr_weights(ONE, 0)
