"""Values for outputs: against the equations solved densely, against each other by the model error, and at the edges."""

from __future__ import annotations

import time

import numpy as np
import numpy.typing as npt
import pytest

from label_dp.channels.base import Channel, N
from label_dp.channels.correcting import Solver, best_outputs, bias_and_noise, debiased, estimated_prior
from label_dp.channels.dense import DenseChannel
from label_dp.channels.model_error import model_error
from label_dp.domain import Domain
from label_dp.errors import InvalidMechanism
from label_dp.privacy import Epsilon
from labels_party.mechanisms.laplace import laplace_channel
from labels_party.mechanisms.staircase import staircase_channel
from tests.support.messages import blind, laplace, one_bit, rr

FloatArray = npt.NDArray[np.float64]

ELEVEN = Domain.parse("0:10")


def k_ary(epsilon: float, domain: str = "0:10") -> Channel:
    return rr(domain, epsilon, cuts=tuple(range(1, Domain.parse(domain).k)))


def exponential(epsilon: float, domain: str = "0:10") -> DenseChannel:
    """P ∝ e^(−ε|z − y|/2Δ) on the labels: rows of different norm, ill-conditioned."""
    parsed = Domain.parse(domain)
    y = parsed.values
    rows = np.exp(-epsilon * np.abs(y[None, :] - y[:, None]) / (2 * (y[-1] - y[0])))
    weights = [[int(p * (N - (1 << 60))) for p in row / row.sum()] for row in rows]
    for at, row in enumerate(weights):
        row[at] += N - sum(row)
    return DenseChannel(domain=parsed, outputs=y, weights=np.array(weights, dtype=np.uint64))


def skewed(k: int) -> FloatArray:
    prior = 0.8 ** np.arange(k)
    prior[1::3] = 0.0
    return np.asarray(prior / prior.sum(), np.float64)


KINDS = {
    "laplace": lambda epsilon: laplace(epsilon=epsilon),
    "staircase": lambda epsilon: staircase_channel(ELEVEN, Epsilon.parse(epsilon), "squared", discrete=True),
    "exponential": exponential,
    "bins": lambda epsilon: rr(epsilon=epsilon),
    "k-ary": k_ary,
    "one-bit": lambda epsilon: one_bit(epsilon=epsilon),
    "one-bit clipped": lambda epsilon: one_bit(epsilon=epsilon, clip=(2, 7)),
}


def dense_solution(channel: Channel, prior: FloatArray, rho: float) -> FloatArray:
    rows, y = channel.matrix(), channel.labels
    system = np.diag(prior @ rows) + rho * rows.T @ (prior[:, None] * rows)
    return np.asarray(np.linalg.solve(system, (1 + rho) * rows.T @ (prior * y)), np.float64)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rho", [0.0, 3.0, 400.0])
def test_the_equations_are_solved(kind: str, rho: float) -> None:
    channel = KINDS[kind](1.0)
    for prior in (skewed(channel.k), np.full(channel.k, 1 / channel.k)):
        mean = float(prior @ channel.labels)
        found, expected = Solver.of(channel, prior).regularised(rho), dense_solution(channel, prior, rho)
        # the dense solution is of the same equations with the labels' mean taken off
        shifted = mean + dense_solution(channel, prior, rho) - dense_constant(channel, prior, rho) * mean
        assert np.allclose(found, shifted, atol=1e-6 * (1 + np.abs(expected).max()))


def dense_constant(channel: Channel, prior: FloatArray, rho: float) -> FloatArray:
    """The solution for labels that are all 1: 1 itself."""
    rows = channel.matrix()
    system = np.diag(prior @ rows) + rho * rows.T @ (prior[:, None] * rows)
    solved = np.linalg.solve(system, (1 + rho) * rows.T @ prior)
    assert np.allclose(solved, 1.0)
    return np.asarray(solved, np.float64)


def test_without_weight_on_bias_it_is_the_posterior_mean() -> None:
    channel, prior = k_ary(1.0), skewed(11)
    joint = channel.matrix() * prior[:, None]
    assert np.allclose(Solver.of(channel, prior).regularised(0.0), channel.labels @ joint / joint.sum(axis=0))


def test_without_weight_on_noise_bias_is_least() -> None:
    channel, prior = KINDS["staircase"](1.0), np.full(11, 1 / 11)
    rows, values = channel.matrix(), Solver.of(channel, prior, np.inf).regularised(np.inf)
    best = np.linalg.lstsq(rows, channel.labels, rcond=1e-12)[0]
    assert np.allclose(rows @ values, rows @ best, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 2.0, 4.0])
@pytest.mark.parametrize("rows", [300, 100_000])
def test_the_best_outputs_are_never_worse(kind: str, epsilon: float, rows: int) -> None:
    """Than debiased ones, the posterior, or any in between, all at slope 1 of E[v | y] and without shift."""
    channel = KINDS[kind](epsilon)
    for prior in (skewed(channel.k), np.full(channel.k, 1 / channel.k)):
        found, rho = best_outputs(channel, prior, rows)
        error = model_error(channel, prior, rows, found)["expected_model_error"]
        solver, others = Solver.of(channel, prior), [debiased(channel, prior)]
        others += [solver.regularised(weight) for weight in (0.0, 1.0, 10.0, 100.0, 1000.0)]
        for values in others:
            rescaled = unit_slope(channel, prior, values)
            other = model_error(channel, prior, rows, rescaled)["expected_model_error"]
            # the rule holds P fixed, which costs next to nothing
            assert error <= other * 1.005, (kind, epsilon)
        assert rho is None or abs(float(prior @ bias_and_noise(channel, found)[0])) < 1e-7 * np.ptp(found)


def unit_slope(channel: Channel, prior: FloatArray, values: FloatArray) -> FloatArray:
    y = channel.labels - prior @ channel.labels
    means = channel.moments(values)[0]
    slope = float(prior @ (y * means)) / float(prior @ (y * y))
    return np.asarray(prior @ channel.labels + (values - prior @ means) / slope, np.float64)


def test_two_unbiased_outputs_are_kept_on_any_processor() -> None:
    """Both corrections are one line there: which of them has the smaller error is rounding."""
    for tenths in range(1, 41):
        for prior in (skewed(11), np.full(11, 1 / 11)):
            channel = one_bit(epsilon=tenths / 10)
            values, rho = best_outputs(channel, prior, 1000)
            assert rho is None, tenths
            assert np.array_equal(values, channel.outputs)


def test_worse_corrections_are_seen() -> None:
    noisy, prior = laplace(epsilon=4.0), skewed(11)
    best, rho = best_outputs(noisy, prior, 1000)
    assert rho is not None
    planted = unit_slope(noisy, prior, best**3)
    assert (
        model_error(noisy, prior, 1000, planted)["expected_model_error"]
        > 1.05 * model_error(noisy, prior, 1000, best)["expected_model_error"]
    )


def test_bins_are_corrected_to_labels_of_the_right_slope() -> None:
    channel, prior = rr(epsilon=1.0), np.full(11, 1 / 11)
    values, rho = best_outputs(channel, prior, 10**9)
    bias = bias_and_noise(channel, values)[0]
    assert rho is not None
    assert abs(float(prior @ bias)) < 1e-9
    assert abs(float((channel.labels - 5.0) @ bias)) < abs(float((channel.labels - 5.0) @ bias_of_bins(channel)))


def bias_of_bins(channel: Channel) -> FloatArray:
    return bias_and_noise(channel, channel.debiased_outputs())[0]


def test_a_channel_that_says_nothing_keeps_its_outputs() -> None:
    with pytest.raises(InvalidMechanism):
        debiased(blind(), None)
    values, rho = best_outputs(blind(), np.full(11, 1 / 11), 100)
    assert rho is None
    assert np.array_equal(values, blind().outputs)


@pytest.mark.parametrize("kind", KINDS)
def test_a_prior_on_one_label_is_no_information(kind: str) -> None:
    channel = KINDS[kind](1.0)
    prior = np.zeros(11)
    prior[3] = 1.0
    assert np.allclose(Solver.of(channel, prior).regularised(0.0), 3.0)
    values, rho = best_outputs(channel, prior, 50)
    assert rho is None
    assert np.all(np.isfinite(values))


def test_one_label_and_one_output() -> None:
    single = laplace("7:7")
    assert best_outputs(single, np.ones(1), 1)[0].tolist() == [7.0]
    constant = rr("0:10", cuts=())
    assert best_outputs(constant, np.full(11, 1 / 11), 1)[0].tolist() == [5.0]


def test_a_prior_of_another_domain_is_a_sentence() -> None:
    with pytest.raises(InvalidMechanism, match="one probability per label"):
        Solver.of(rr(), np.ones(3) / 3)


def test_large_labels_lose_no_digits() -> None:
    near, far = exponential(2.0), exponential(2.0, "1000000000000:1000000000010")
    prior = skewed(11)
    a, b = best_outputs(near, prior, 5000)[0], best_outputs(far, prior, 5000)[0] - 1e12
    assert np.allclose(a, b, atol=1e-2 * np.ptp(a))


def test_many_outputs_or_a_million_labels_take_about_a_second() -> None:
    fine = laplace_channel(Domain.parse("0:99999"), Epsilon.parse("4"))
    assert fine.m > 99_999
    prior, start = 0.9999 ** np.arange(fine.k), time.process_time()
    values, rho = best_outputs(fine, prior / prior.sum(), 10_000)
    assert time.process_time() - start < 5.0
    assert rho is not None
    assert np.all(np.isfinite(values))
    many = rr("0:999999", cuts=tuple(range(16, 1_000_000, 16)))
    start = time.process_time()
    best_outputs(many, np.full(1_000_000, 1e-6), 10**6)
    assert time.process_time() - start < 8.0


def test_a_prior_is_estimated_from_the_message_itself() -> None:
    channel, truth = k_ary(3.0), skewed(11)
    found = estimated_prior(channel, channel.output_distribution(truth), rounds=500)
    assert found.sum() == pytest.approx(1.0)
    assert np.allclose(found, truth, atol=0.02)
    # two outputs tell the mean
    bit = one_bit(epsilon=1.0)
    assert float(estimated_prior(bit, bit.output_distribution(truth)) @ bit.labels) == pytest.approx(
        float(truth @ bit.labels), abs=0.1
    )
