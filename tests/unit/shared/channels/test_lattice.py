"""Channels on a lattice: labels between its points, and every figure against the matrix written out."""

from __future__ import annotations

import time
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from label_dp.channels.base import Channel
from label_dp.channels.lattice import LatticeChannel
from label_dp.domain import Domain
from label_dp.errors import InvalidLoss, InvalidMechanism
from label_dp.losses import MatrixLoss
from label_dp.privacy import Epsilon
from labels_party.mechanisms.catalogue import MECHANISMS

UNEVEN = Domain.from_values(["0", "1", "2.5", "2.75", "10", "30"])


def design(name: str, domain: Domain | str, epsilon: str = "1.5", **options: bool) -> LatticeChannel:
    parsed = Domain.parse(domain) if isinstance(domain, str) else domain
    channel = MECHANISMS[name].design(parsed, None, Epsilon.parse(epsilon), "squared", options)
    assert isinstance(channel, LatticeChannel)
    return channel


CASES = [
    design("discrete-laplace", "0:7"),
    design("discrete-laplace", "-2:1:0.25", unclipped=True),
    design("discrete-staircase", "0:1"),
    design("discrete-staircase", "3:9", unclipped=True),
    design("exponential", "0:9"),
    design("laplace", UNEVEN),  # labels between points
    design("staircase", UNEVEN, "8"),
    design("exponential", UNEVEN, tight=True),
]


@pytest.mark.parametrize("channel", CASES, ids=lambda c: f"{c.kind}-{c.k}-{c.m}")
def test_every_figure_is_that_of_the_matrix(channel: LatticeChannel) -> None:
    M, y, rng = channel.matrix(), channel.labels, np.random.default_rng(channel.m)
    assert M.sum(axis=1) == pytest.approx(np.ones(channel.k), abs=1e-13)
    prior = rng.random(channel.k) / channel.k
    prior /= prior.sum()
    assert channel.output_distribution(prior) == pytest.approx(prior @ M, abs=1e-14)
    assert np.all(channel.output_distribution(prior) > 0)
    assert channel.flip_probability(prior) == pytest.approx(1 - float(prior @ M.max(axis=1)), abs=1e-12)
    span = float(channel.outputs[-1] - channel.outputs[0])
    for values in (channel.outputs, rng.normal(5.0, 2.0, channel.m)):
        mean, (means, variances) = M @ values, channel.moments(values)
        assert means == pytest.approx(mean, abs=1e-12 * span)
        assert variances == pytest.approx((M * (values[None, :] - mean[:, None]) ** 2).sum(axis=1), abs=1e-12 * span**2)
    for loss in ("squared", "absolute", "poisson", "log"):
        if (loss != "poisson" or y[0] >= 0) and (loss != "log" or (y[0] >= 0 and y[-1] <= 1)):
            plain = Channel.expected_loss(channel, prior, loss)
            assert channel.expected_loss(prior, loss) == pytest.approx(plain, rel=1e-9)


@pytest.mark.parametrize("channel", CASES, ids=lambda c: f"{c.kind}-{c.k}-{c.m}")
def test_labels_keep_their_mean_on_the_lattice_exactly(channel: LatticeChannel) -> None:
    scale, ints = channel.domain.lattice[0], channel.domain.integers()
    base, upper = channel.positions
    for i, label in enumerate(ints):
        exact = Fraction((label - ints[0]) * channel.cells, ints[-1] - ints[0])
        held = int(base[i]) + Fraction(int(upper[i]), 1 << 64)
        assert 0 <= exact - held < Fraction(1, 1 << 64)
    assert channel.on_lattice == (not upper.any())
    inside = channel.outputs[channel._reach : channel.m - channel._reach]
    assert inside[0] == ints[0] / scale
    assert inside[-1] == ints[-1] / scale
    if channel.on_lattice:
        assert np.isin(channel.labels, inside).all()


def test_ranges_and_listed_values_have_the_same_positions() -> None:
    listed = Domain.from_values([str(v) for v in range(38)])
    for cells in (1, 7, 37, 64, 1000):
        of_range, of_list = (
            MECHANISMS["laplace"].design(d, None, Epsilon.parse("1"), "squared", {})
            for d in (Domain.parse("0:37"), listed)
        )
        assert isinstance(of_range, LatticeChannel)
        assert isinstance(of_list, LatticeChannel)
        for channel in (of_range, of_list):
            object.__setattr__(channel, "cells", cells)
            channel.__dict__.pop("positions", None)
        for one, other in zip(of_range.positions, of_list.positions, strict=True):
            assert np.array_equal(one, other)


@pytest.mark.parametrize(
    ("name", "domain"),
    [
        ("laplace", "0:1000000"),
        ("discrete-laplace", "0:100000"),
        ("discrete-staircase", "0:100000"),
        ("exponential", "0:100000"),
    ],
)
def test_huge_domains_take_little(name: str, domain: str) -> None:
    start = time.process_time()
    options = [{}] if name == "exponential" else [{}, {"unclipped": True}]
    for chosen in options:
        channel = design(name, domain, "1", **chosen)
        assert channel.satisfies(Epsilon.parse("1"))
        assert channel.m <= 1 << 17
        drawn = MECHANISMS[name].sample(channel, np.array([0, channel.k // 3, channel.k - 1]))
        assert int(drawn.max()) < channel.m
        assert channel.expected_loss(None, "squared") > 0
        assert len(str(channel.as_json())) < 300
    assert time.process_time() - start < 20.0  # one or two as a rule


def test_one_value_is_a_constant_channel_without_noise() -> None:
    for name in ("laplace", "discrete-staircase", "exponential"):
        channel = MECHANISMS[name].design(Domain.parse("7:7"), None, Epsilon.parse("1"), "squared", {})
        assert channel.outputs.tolist() == [7.0]
        assert channel.epsilon == Epsilon(0)
        assert channel.unbiased


def test_a_lattice_finer_than_floats_are_is_refused_in_a_sentence() -> None:
    with pytest.raises(InvalidMechanism, match="not distinguishable as 64-bit floats; subtract"):
        design("laplace", "10000000000000000:10000000000000100:4")
    assert design("laplace", "100000000:100000100").outputs[0] == 1e8


def test_a_matrix_loss_is_refused_where_it_is_not_defined_or_too_much_work() -> None:
    labels = np.arange(8.0)
    matrix = MatrixLoss(labels, labels, np.abs(labels[:, None] - labels[None, :]))
    clipped = design("discrete-laplace", "0:7")
    assert clipped.expected_loss(None, matrix) == pytest.approx(clipped.expected_loss(None, "absolute"))
    with pytest.raises(InvalidLoss, match="no output of that value"):
        design("laplace", "0:7").expected_loss(None, matrix)
    with pytest.raises(InvalidMechanism, match="too many values for this loss"):
        design("laplace", "0:100000").expected_loss(None, matrix)


@pytest.mark.parametrize("value", ["yes", 1, None, [True]])
def test_options_are_true_or_false(value: Any) -> None:
    for name, option in (("laplace", "unclipped"), ("exponential", "tight")):
        with pytest.raises(InvalidMechanism, match=f"'{option}' is true or false"):
            MECHANISMS[name].design(Domain.parse("0:5"), None, Epsilon.parse("1"), "squared", {option: value})
    with pytest.raises(InvalidMechanism, match="no such option"):
        MECHANISMS["laplace"].design(Domain.parse("0:5"), None, Epsilon.parse("1"), "squared", {"tight": True})
