"""Gradients from privatized labels: unbiased for the absolute loss by the channel, stable for the Poisson loss."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from features_party.training.objectives import LossCorrection, RowGradients, inverse, smooth_absolute
from label_dp.channels.base import Channel
from label_dp.domain import Domain
from label_dp.errors import InvalidMechanism
from tests.support.messages import draw, laplace, one_bit, rr
from tests.support.training import fit

pytestmark = pytest.mark.extended

PRIOR = np.r_[0.3, np.full(10, 0.07)]


def k_ary(epsilon: float = 2.0) -> Channel:
    return rr("0:10", epsilon, cuts=tuple(range(1, 11)))


def test_the_inverse_gives_back_labels_or_the_labels_of_a_bin() -> None:
    assert np.allclose(k_ary().matrix() @ inverse(k_ary(), None), np.eye(11), atol=1e-9)
    dense = laplace(epsilon=8.0)
    assert np.allclose(dense.matrix() @ inverse(dense, PRIOR), np.eye(11), atol=1e-6)
    bins = rr(epsilon=1.0)
    found = bins.matrix() @ inverse(bins, PRIOR)
    for position in range(11):
        inside = bins.bins == bins.bins[position]
        assert np.allclose(found[position], np.where(inside, PRIOR, 0.0) / PRIOR[inside].sum(), atol=1e-9)


@pytest.mark.parametrize("channel", [one_bit(), laplace("0:5000"), rr("7:7", cuts=())], ids=["bit", "large", "single"])
def test_outputs_that_do_not_tell_the_distribution_are_refused(channel: Channel) -> None:
    with pytest.raises(InvalidMechanism):
        LossCorrection.absolute(channel, None, np.full(channel.m, 1 / channel.m), 0.5)


@pytest.mark.parametrize("channel", [k_ary(), laplace(epsilon=6.0)], ids=["k-ary", "laplace"])
def test_gradients_are_those_of_the_labels_on_average(channel: Channel) -> None:
    shares, width = channel.output_distribution(PRIOR), 0.7
    found = LossCorrection.absolute(channel, PRIOR, shares, width)
    assert found.median == 3.0
    outputs, rows = np.arange(channel.m), channel.matrix()
    for score in (0.0, 2.5, 7.1, 10.0):
        slope, hessian = found.gradients(np.full(channel.m, score), outputs)
        expected, _ = smooth_absolute(width)(np.full(11, score), channel.labels)
        assert np.allclose(rows @ slope, expected, atol=2e-3)
        assert hessian.min() > 0
    assert not np.allclose(rows @ (slope * 1.1), expected, atol=2e-3)  # the control
    exact, _ = found.gradients(np.full(channel.m, 3.0), outputs)
    noise = PRIOR @ (rows @ exact**2 - (rows @ exact) ** 2) / width**2
    assert found.noise == pytest.approx(noise, rel=0.05)


def test_absolute_training_on_noisy_labels_finds_medians() -> None:
    """Skewed labels: what minimises the absolute error is not their mean, which the squared loss finds."""
    rng, n = np.random.default_rng(6), 6000
    x = rng.normal(size=n)
    y = np.clip(np.round(np.exp(0.4 + 0.7 * x) * rng.lognormal(0.0, 0.9, n)), 0, 10)
    channel = k_ary(2.5)
    outputs = draw(channel, y, seed=6)
    shares = np.bincount(outputs, minlength=11) / n
    values = np.asarray(channel.debiased_outputs())
    told = RowGradients((LossCorrection.absolute(channel, None, shares),), np.zeros(n, int), outputs)
    noise = float(channel.moments(values)[1].mean())

    def error(loss: str, gradients: RowGradients | None) -> tuple[float, str]:
        table, domain = pa.table({"x": x}), Domain.parse("0:10")
        model = fit(table, values[outputs], noise_variance=noise, domain=domain, loss=loss, told=gradients)
        return float(np.mean(np.abs(model.predict(table) - y))), model.objective

    (squared_error, _), (fallen_back, objective) = error("squared", None), error("absolute", None)
    assert objective == "squared"
    assert fallen_back == pytest.approx(squared_error)
    absolute_error, objective = error("absolute", told)
    assert objective == "absolute"
    assert absolute_error < 0.97 * squared_error
    # noisier than the mean: given up, with a note
    hopeless = RowGradients((replace(told.corrections[0], noise=1e4),), told.message, told.outputs)
    assert error("absolute", hopeless)[1] == "squared"


def test_poisson_training_on_one_bit_at_small_epsilon_learns_finitely() -> None:
    """Corrected labels are negative half the time and forty times as large as the mean."""
    rng, n = np.random.default_rng(5), 12_000
    x = rng.normal(size=n)
    y = np.minimum(rng.poisson(np.exp(0.3 + 0.9 * x)), 10).astype(np.float64)
    channel = one_bit(epsilon=0.5)
    z = np.asarray(channel.outputs)[draw(channel, y, seed=5)]
    assert z.min() < -10
    table, noise = pa.table({"x": x}), float(channel.moments(np.asarray(channel.outputs))[1].mean())
    constant = y.mean() - y.mean() * np.log(y.mean())
    for model in ("ensemble", "linear"):
        fitted = fit(table, z, noise_variance=noise, domain=Domain.parse("0:10"), model=model, loss="poisson")
        found = np.maximum(fitted.predict(table), 1e-6)
        assert np.all(np.isfinite(found))
        assert found.max() <= 10.0
        assert float(np.mean(found - y * np.log(found))) < constant - 0.2
