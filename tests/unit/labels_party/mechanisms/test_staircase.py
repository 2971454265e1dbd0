"""Staircase noise: the width that is best for the loss, closed forms, and what clipping leaves of its correction."""

from __future__ import annotations

import math

import numpy as np
import pytest

from label_dp.channels.base import N
from label_dp.channels.staircase import StaircaseChannel
from label_dp.domain import Domain
from label_dp.privacy import Epsilon
from labels_party.mechanisms.catalogue import MECHANISMS
from labels_party.mechanisms.staircase import best_width

EPSILONS = ["0.05", "0.5", "1", "3", "8"]


def design(name: str, domain: str, epsilon: str, loss: str = "squared", **options: bool) -> StaircaseChannel:
    channel = MECHANISMS[name].design(Domain.parse(domain), None, Epsilon.parse(epsilon), loss, options)
    assert isinstance(channel, StaircaseChannel)
    return channel


def gamma_absolute(b: float) -> float:
    """Geng & Viswanath 2014, Theorem 7: γ* = 1/(1 + e^(ε/2))."""
    return 1 / (1 + b**-0.5)


def gamma_squared(b: float) -> float:
    """Their Theorem 8: the γ that minimises the variance."""
    return -b / (1 - b) + (b - 2 * b**2 + 2 * b**4 - b**5) ** (1 / 3) / (2 ** (1 / 3) * (1 - b) ** 2)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize(("loss", "gamma"), [("absolute", gamma_absolute), ("squared", gamma_squared)])
def test_many_cells_find_the_known_optimum(epsilon: str, loss: str, gamma: object) -> None:
    cells, b = 20_000, math.exp(-float(epsilon))
    known = gamma_absolute(b) if gamma is gamma_absolute else gamma_squared(b)
    assert best_width(Epsilon.parse(epsilon), cells, loss) / cells == pytest.approx(known, abs=2e-4)


@pytest.mark.parametrize("epsilon", ["0.2", "1.3", "6"])
@pytest.mark.parametrize("cells", [1, 2, 5, 23])
@pytest.mark.parametrize(("loss", "power"), [("absolute", 1), ("squared", 2), ("poisson", 2)])
def test_few_cells_find_what_trying_all_widths_finds(epsilon: str, cells: int, loss: str, power: int) -> None:
    t, b = np.arange(cells * (2 + int(60 / float(epsilon)))), math.exp(-float(epsilon))
    costs = []
    for width in range(1, cells + 1):
        p = b ** (t // cells) * np.where(t % cells < width, 1.0, b)
        costs.append(float(np.sum(p * t**power)) / (2 * float(np.sum(p)) - p[0]))
    assert costs[best_width(Epsilon.parse(epsilon), cells, loss) - 1] <= min(costs) * (1 + 1e-9)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_unclipped_noise_has_the_expected_size_of_the_continuous_one(epsilon: str) -> None:
    eps = float(epsilon)
    channel = design("staircase", "0:40", epsilon, "absolute", unclipped=True)
    # Theorem 7: E|noise| = Δ·e^(ε/2)/(e^ε − 1)
    assert channel.expected_loss(None, "absolute") == pytest.approx(40 * math.exp(eps / 2) / math.expm1(eps), rel=2e-3)
    b = math.exp(-eps)
    channel = design("staircase", "0:40", epsilon, unclipped=True)
    # Theorem 8: the least variance
    cube = (b**-2 * b**2 * (1 + b) ** 2) ** (1 / 3)
    variance = 40**2 * (2 ** (-2 / 3) * b ** (2 / 3) * cube + b) / (1 - b) ** 2
    assert channel.noise_variance() == pytest.approx(variance, rel=2e-3)
    laplace = MECHANISMS["laplace"].design(
        Domain.parse("0:40"), None, Epsilon.parse(epsilon), "squared", {"unclipped": True}
    )
    assert np.all(channel.noise_variance() < laplace.noise_variance())
    assert channel.unbiased
    assert np.array_equal(channel.debiased_outputs(), channel.outputs)


def test_weights_are_steps_that_fall_by_the_odds() -> None:
    channel = design("discrete-staircase", "0:20", "2", unclipped=True)
    w, width, cells = channel.weights[:-1].astype(float) / N, channel.width, channel.cells
    assert cells == 20
    assert np.all(w[:width] == w[0])
    assert w[width:cells] == pytest.approx(np.full(cells - width, w[0] * math.exp(-2)), rel=1e-12)
    assert w[cells:] == pytest.approx(w[:-cells] * math.exp(-2), rel=1e-9)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_clipped_noise_is_corrected_at_the_ends_as_far_as_that_goes(epsilon: str) -> None:
    channel = design("discrete-staircase", "0:400", epsilon)  # every point of its lattice is a label
    M, raw, values = channel.matrix(), channel.outputs, channel.debiased_outputs()
    assert np.array_equal(values[1:-1], raw[1:-1])

    def bias(outward: float) -> np.ndarray:
        return np.asarray(M @ (raw + outward * (values - raw)) - channel.labels)

    assert channel.residual_bias == pytest.approx(float(np.max(np.abs(bias(1.0)))))
    assert channel.residual_bias < 0.03 * 400
    assert not channel.unbiased
    least = float(bias(1.0) @ bias(1.0))
    assert least < 0.2 * float(bias(0.0) @ bias(0.0))
    for outward in (0.98, 1.02):  # no other values at the two ends have less bias
        assert float(bias(outward) @ bias(outward)) > least
