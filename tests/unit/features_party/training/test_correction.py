"""Corrections: what each output stands for, and how large the noise is."""

from __future__ import annotations

import time

import numpy as np
import pytest

from features_party.training.correction import correct, noise_variance
from label_dp.channels.base import Channel
from label_dp.errors import InvalidInput, InvalidMechanism
from tests.support.messages import blind, laplace, one_bit, rr


def test_debias_gives_the_bin_mean_as_expectation() -> None:
    channel = rr(epsilon=1.0)
    found = correct(channel, "debias")
    assert np.allclose(channel.matrix() @ found.corrected, channel.bin_means[channel.bins])
    assert found.applied == "debias"
    assert not found.unbiased


def test_auto_debiases_where_the_channel_allows_it() -> None:
    assert correct(rr()).applied == "debias"
    found = correct(one_bit())
    assert found.applied == "debias"
    assert found.unbiased
    assert np.array_equal(found.corrected, found.raw)


def test_auto_falls_back_and_says_why() -> None:
    found = correct(blind())
    assert found.applied == "none"
    assert "ill-conditioned" in found.why
    assert np.array_equal(found.corrected, blind().outputs)


def test_debias_is_refused_where_there_is_none() -> None:
    with pytest.raises(InvalidMechanism):
        correct(blind(), "debias")


def test_none_leaves_the_outputs_and_knows_its_bias() -> None:
    found = correct(rr(), "none")
    assert np.array_equal(found.corrected, rr().outputs)
    assert found.applied == "none"
    assert not found.unbiased
    assert correct(one_bit(), "none").unbiased


def test_posterior_is_the_expected_label_of_an_output() -> None:
    channel, prior = rr(epsilon=1.0), np.r_[0.5, np.zeros(5), np.full(5, 0.1)]
    joint = channel.matrix() * prior[:, None]
    found = correct(channel, "posterior", prior)
    assert np.allclose(found.corrected, channel.labels @ joint / joint.sum(axis=0))
    assert not found.unbiased
    assert found.residual_bias > 1.0
    # without a prior the message's own outputs stand in for it, with neither the uniform one
    even = channel.labels @ channel.matrix() / channel.matrix().sum(axis=0)
    assert np.allclose(correct(channel, "posterior").corrected, even)
    shared = correct(channel, "posterior", None, channel.output_distribution(prior)).corrected
    assert np.all(np.abs(shared - found.corrected) < 0.7 * np.abs(even - found.corrected))


def test_auto_weighs_bias_against_noise_by_the_rows() -> None:
    channel, prior = rr(epsilon=1.0), np.r_[0.5, np.zeros(5), np.full(5, 0.1)]
    few, many = (correct(channel, "auto", prior, None, rows) for rows in (1000, 10**8))
    assert few.applied == many.applied == "regularised"
    assert few.rho is not None
    assert many.rho is not None
    assert few.rho < many.rho
    assert few.noise_variance <= many.noise_variance * 1.000001
    for found in (few, many):
        expected = channel.matrix() @ found.corrected - channel.labels
        assert found.residual_bias == pytest.approx(float(np.sqrt(prior @ expected**2)))
        assert abs(float(prior @ expected)) < 1e-9
        assert found.as_json()["rho"] == found.rho
    assert correct(channel, "auto", prior).applied == "debias"  # no rows, no weighing


def test_a_channel_that_is_nearly_unbiased_says_so() -> None:
    prior = np.full(11, 1 / 11)
    found = correct(laplace(epsilon=4.0), "auto", prior, None, 1000)
    assert found.applied == "regularised"
    assert not found.unbiased
    assert found.nearly_unbiased
    assert 0 < found.residual_bias < 0.32
    assert not correct(rr(epsilon=4.0, cuts=(5,)), "auto", prior, None, 1000).nearly_unbiased


@pytest.mark.parametrize("how", ["auto", "none", "debias", "posterior"])
@pytest.mark.parametrize("channel", [rr(), one_bit(), laplace(), rr("7:7", cuts=()), rr("0:10", cuts=())])
def test_edges_give_finite_values(how: str, channel: Channel) -> None:
    """One row, priors on one label, one label in the domain, one output."""
    prior = np.zeros(channel.k)
    prior[0] = 1.0
    shares = np.zeros(channel.m)
    shares[-1] = 1.0
    for found in (correct(channel, how, prior, shares, 1), correct(channel, how, None, shares, 1)):
        assert found.corrected.shape == (channel.m,)
        assert np.all(np.isfinite(found.corrected))
        assert np.isfinite(found.noise_variance)
        assert np.isfinite(found.residual_bias)
    if how == "posterior":
        assert np.allclose(correct(channel, how, prior).corrected, channel.labels[0])


def test_an_unknown_correction_is_a_sentence() -> None:
    with pytest.raises(InvalidInput, match=r"choose one of auto, none, debias, posterior"):
        correct(rr(), "magic")


@pytest.mark.parametrize("channel", [rr(epsilon=0.5), one_bit(epsilon=1.0), laplace(epsilon=3.0)])
def test_noise_variance_is_the_average_conditional_variance(channel) -> None:  # type: ignore[no-untyped-def]  # three kinds
    prior = np.arange(1.0, channel.k + 1.0)
    prior /= prior.sum()
    values = np.asarray(correct(channel).corrected)
    rows = channel.matrix()
    by_label = (rows * (values[None, :] - (rows @ values)[:, None]) ** 2).sum(axis=1)
    assert noise_variance(channel, values, prior) == pytest.approx(float(prior @ by_label))
    assert noise_variance(channel, values) == pytest.approx(float(by_label.mean()))
    assert correct(channel, "auto", prior).noise_variance == pytest.approx(float(prior @ by_label))


def test_a_prior_of_another_domain_is_refused() -> None:
    with pytest.raises(InvalidMechanism):
        correct(rr(), "auto", np.ones(3) / 3)


def test_uncorrected_labels_have_less_noise_than_corrected_ones() -> None:
    channel = rr(epsilon=0.5)
    assert correct(channel, "none").noise_variance < correct(channel, "debias").noise_variance


@pytest.mark.parametrize("skew", [0.1, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 4.0])
def test_without_a_prior_the_message_itself_tells_the_noise(skew: float, epsilon: float) -> None:
    labels = np.random.default_rng(0).beta(2 * skew, 2 * (1 - skew), 4000) * 10
    prior = np.bincount(np.round(labels).astype(int), minlength=11) / 4000
    for channel in (one_bit(epsilon=epsilon), rr(epsilon=epsilon)):
        values = np.asarray(channel.debiased_outputs())
        shares = channel.output_distribution(prior)
        truth = noise_variance(channel, values, prior)
        total = float(shares @ values**2 - (shares @ values) ** 2)
        found = noise_variance(channel, values, None, shares)
        # what decides on capacity is the share of the signal: within a factor of two and a half
        assert 0.4 < (total - found) / (total - truth) < 2.5


def fine(kind: str) -> Channel:
    """A channel over a million labels; `rr` has as many bins as a manifest may hold."""
    if kind == "rr":
        return rr("0:999999", cuts=tuple(range(16, 1_000_000, 16)))
    return laplace("0:999999", epsilon=3.0) if kind == "laplace" else one_bit("0:999999")


@pytest.mark.parametrize("kind", ["rr", "laplace", "one-bit"])
def test_a_million_labels_take_about_a_second(kind: str) -> None:
    channel = fine(kind)
    shares = np.full(channel.m, 1 / channel.m)
    start = time.process_time()
    found = [correct(channel, how, None, shares) for how in ("none", "auto")]
    found.append(correct(channel, "auto", np.full(channel.k, 1 / channel.k)))
    assert time.process_time() - start < 3.0  # by rows it was hours
    assert all(c.noise_variance > 0 for c in found)
