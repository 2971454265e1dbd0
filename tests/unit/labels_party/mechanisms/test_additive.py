"""Laplace noise on a lattice: closed forms, the correction of clipping, how the lattice is chosen, refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest

from label_dp.channels.base import N
from label_dp.channels.noise import NoiseChannel
from label_dp.channels.noise_weights import MAX_LATTICE_OUTPUTS, half_table, laplace_period
from label_dp.domain import Domain
from label_dp.errors import InvalidEpsilon, InvalidMechanism
from label_dp.privacy import Epsilon
from labels_party.mechanisms.additive import STEPS_PER_SCALE, Lattice, choose_lattice, fitted_peak
from labels_party.mechanisms.catalogue import MECHANISMS

EPSILONS = ["0.05", "0.3", "1", "4", "10"]


def design(name: str, domain: str, epsilon: str, **options: bool) -> NoiseChannel:
    channel = MECHANISMS[name].design(Domain.parse(domain), None, Epsilon.parse(epsilon), "squared", options)
    assert isinstance(channel, NoiseChannel)
    return channel


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_unclipped_noise_has_the_variance_and_tails_of_the_continuous_one(epsilon: str) -> None:
    channel, scale = design("laplace", "0:60", epsilon, unclipped=True), 60 / float(epsilon)
    assert channel.lattice_step <= scale / STEPS_PER_SCALE
    assert channel.noise_variance() == pytest.approx(2 * scale**2, rel=2e-6)
    assert channel.expected_loss(None, "absolute") == pytest.approx(scale, rel=2e-6)
    assert int(channel.tails[channel.reach]) < N // 10**11
    assert channel.unbiased
    # the distribution function at a few multiples of the scale
    for x in (0.1, 1.0, 5.0):
        t = round(x * scale / channel.lattice_step)
        assert int(channel.tails[t]) / N == pytest.approx(math.exp(-x) / 2, rel=2e-3)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("k", [2, 13])
def test_discrete_noise_is_the_two_sided_geometric_one(epsilon: str, k: int) -> None:
    channel, r = design("discrete-laplace", f"0:{k - 1}", epsilon, unclipped=True), math.exp(-float(epsilon) / (k - 1))
    if channel.cells == k - 1:
        t = np.arange(channel.weights.size - 1)
        assert channel.weights[:-1].astype(float) / N == pytest.approx((1 - r) / (1 + r) * r**t, rel=1e-9)
    else:
        assert float(epsilon) / (k - 1) < 1 / STEPS_PER_SCALE * 3  # so wide that the domain's steps do not show
    assert channel.noise_variance() == pytest.approx(2 * r / (1 - r) ** 2, rel=1e-4)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("name", ["laplace", "discrete-laplace"])
def test_clipping_is_undone_at_the_ends_and_costs_no_variance(name: str, epsilon: str) -> None:
    clipped, wide = design(name, "0:60", epsilon), design(name, "0:60", epsilon, unclipped=True)
    assert (clipped.outputs[0], clipped.outputs[-1]) == (0.0, 60.0)
    values = clipped.debiased_outputs()
    assert np.array_equal(values[1:-1], clipped.outputs[1:-1])
    outward = clipped.lattice_step / math.expm1(float(epsilon) / clipped.cells)
    assert (values[0], values[-1]) == pytest.approx((-outward, 60 + outward))
    assert clipped.unbiased
    assert clipped.residual_bias < 1e-12 * float(values[-1] - values[0])
    assert clipped.moments(values)[0] == pytest.approx(clipped.labels, abs=1e-11 * float(values[-1]))
    assert np.all(clipped.noise_variance() < wide.noise_variance() * (1 + 1e-9))
    # uncorrected, labels are pulled towards the middle
    means = clipped.moments(clipped.outputs)[0]
    assert means[0] > 0
    assert means[-1] < 60


def test_planted_wrong_corrections_are_biased() -> None:
    clipped = design("laplace", "0:60", "1")
    for factor in (0.99, 1.01):
        values = clipped.outputs.copy()
        values[[0, -1]] += factor * (clipped.debiased_outputs() - clipped.outputs)[[0, -1]]
        assert float(np.max(np.abs(clipped.moments(values)[0] - clipped.labels))) > 1e-3


def test_the_lattice_follows_from_public_facts() -> None:
    domain = Domain.parse("0:400")
    for epsilon in ("0.001", "0.05", "1", "7.3", "10", "50", "900000"):
        eps = Epsilon.parse(epsilon)
        for discrete in (False, True):
            for unclipped in (False, True):
                found = choose_lattice(domain, eps, discrete=discrete, unclipped=unclipped)
                assert found.cells + 2 * found.reach < MAX_LATTICE_OUTPUTS
                assert (found.reach > 0) == unclipped
                assert found.epsilon <= eps
                assert found.epsilon.nano <= 40 * 10**9
                if epsilon in ("1", "7.3", "10"):
                    assert found.cells % 400 == 0
                    assert (found.cells == 400) == discrete
                    assert discrete or found.cells >= STEPS_PER_SCALE * float(eps)


@pytest.mark.parametrize("name", ["laplace", "discrete-laplace", "staircase", "discrete-staircase"])
def test_an_epsilon_too_small_is_a_sentence(name: str) -> None:
    domain = Domain.parse("0:100")
    with pytest.raises(InvalidEpsilon, match="greater than zero"):
        MECHANISMS[name].design(domain, None, Epsilon(0), "squared", {})
    with pytest.raises(InvalidEpsilon, match="leave out 'unclipped'"):
        MECHANISMS[name].design(domain, None, Epsilon.parse("0.0003"), "squared", {"unclipped": True})
    MECHANISMS[name].design(domain, None, Epsilon.parse("0.0004"), "squared", {"unclipped": True})
    for epsilon in ("0.000000001", "0.0000005", "0.0001"):
        eps = Epsilon.parse(epsilon)
        assert MECHANISMS[name].design(domain, None, eps, "squared", {}).satisfies(eps)


def test_discrete_noise_needs_equal_steps_continuous_noise_does_not() -> None:
    uneven = Domain.from_values([0, 1, 3])
    for name in ("discrete-laplace", "discrete-staircase"):
        with pytest.raises(InvalidMechanism, match="equally spaced values; take the continuous"):
            MECHANISMS[name].design(uneven, None, Epsilon.parse("1"), "squared", {})
    channel = MECHANISMS["laplace"].design(uneven, None, Epsilon.parse("1"), "squared", {})
    assert channel.moments(channel.debiased_outputs())[0] == pytest.approx([0, 1, 3], abs=1e-12)


def test_the_table_uses_nearly_all_of_the_words() -> None:
    lattice = Lattice(Epsilon.parse("1"), 300, 7800)

    def period(peak: int) -> list[int]:
        return laplace_period(lattice.epsilon, lattice.cells, peak)

    peak = fitted_peak(lattice, math.tanh(1 / 600), period)
    weights, left = half_table(lattice.epsilon, period(peak), lattice.reach)
    assert 0 <= left < N >> 40
    assert weights[0] + 2 * sum(weights[1:]) == N
    assert half_table(lattice.epsilon, period(peak + (peak >> 30) * 2), lattice.reach)[1] < 0
