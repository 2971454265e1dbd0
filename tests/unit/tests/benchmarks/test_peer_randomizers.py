"""The randomizers of RPWithPrior and BlockRR: their ε, their draws, and the best interval."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from tests.benchmarks.utility.peers import block_rr, rp_with_prior

pytestmark = pytest.mark.extended

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
PRIOR = np.array([0.5, 0.3, 0.15, 0.05])


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 2.0, 4.0])
def test_rp_with_prior_keeps_its_epsilon(epsilon: float) -> None:
    values, rng = np.arange(61.0), np.random.default_rng(7)
    for reach in (1.5, 6.0, 24.0):
        channel = rp_with_prior.most_often_near(values, rng.dirichlet(np.full(61, 0.2)), reach, epsilon)
        assert channel.high - channel.low >= 2.0 * channel.reach > 0.0
        step = (channel.high - channel.low + 2.0 * channel.reach) / 200_000
        outputs = channel.low - channel.reach + step * (np.arange(200_000) + 0.5)
        rows = channel.density(values, outputs)
        assert rows.sum(axis=1) * step == pytest.approx(np.ones(61), abs=1e-3)
        assert _spent(rows) <= epsilon + 1e-9
        # planted: a density that is a hundredth higher near the label
        assert _spent(np.where(rows > rows.min(), 1.01, 1.0) * rows) > epsilon + 1e-3
        # planted: labels that are not moved into the interval
        moved = replace(channel, low=channel.low + 0.1 * (channel.high - channel.low))
        both = np.stack([channel.density(values, outputs)[0], moved.density(values, outputs)[-1]])
        assert _spent(both) > epsilon + 1e-3


def test_rp_with_prior_draws_from_its_density() -> None:
    n, rng = 200_000, np.random.default_rng(8)
    channel = rp_with_prior.Interval(10.0, 40.0, 5.0, 1.0)
    edges = np.linspace(5.0, 45.0, 41)
    middles, labels = edges[:-1] + 0.5, np.array([0.0, 10.0, 17.0, 60.0])
    expected = channel.density(labels, middles)  # labels are whole and the edges of the density too

    def farthest(drawn: rp_with_prior.Interval) -> float:
        outputs = [drawn.draw(np.full(n, label), rng) for label in labels]
        assert all(side.min() >= 5.0 and side.max() <= 45.0 for side in outputs)
        return float(np.max(np.abs([np.histogram(side, edges)[0] / n for side in outputs] - expected)))

    # shares of at most 0.05 of 200,000 draws: 5 standard errors are 0.0025
    assert farthest(channel) < 0.0025
    assert farthest(replace(channel, epsilon=1.3)) > 0.0025


def test_the_interval_of_rp_with_prior_is_the_best_of_all() -> None:
    rng, values = np.random.default_rng(9), np.arange(9.0)
    prior, reach, epsilon = rng.dirichlet(np.full(9, 0.5)), 0.25, 1.0
    found = rp_with_prior.most_often_near(values, prior, reach, epsilon)
    nodes = np.concatenate([[0.0], np.arange(8) + 0.5, [8.0]])

    def ratio(low: float, high: float) -> float:
        mass = np.interp([low, high], nodes, np.concatenate([[0.0], np.cumsum(prior)]))
        return float(mass[1] - mass[0]) / (2.0 * reach + math.exp(-epsilon) * (high - low))

    assert found.reach == reach
    ends = np.linspace(0.0, 8.0, 161)
    every = [ratio(low, high) for low in ends for high in ends if high > low]
    assert ratio(found.low, found.high) == pytest.approx(max(every), rel=1e-9)
    # 2·δ·e^ε times the level is how often an output is near
    level = 2.0 * reach * math.exp(epsilon) * found.level
    assert level == pytest.approx(2.0 * reach / (2.0 * reach + math.exp(-epsilon) * (found.high - found.low)))
    one = rp_with_prior.most_often_near(values, np.eye(9)[4], 3.0, epsilon)  # all mass on one label: δ shrinks with it
    assert (one.low, one.high, one.reach) == (3.5, 4.5, 0.5)


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 2.0, 4.0])
def test_block_rr_keeps_its_epsilon(epsilon: float) -> None:
    rng = np.random.default_rng(10)
    for k in (2, 3, 6, 17):
        for prior in rng.dirichlet(np.full(k, 0.5), size=20):
            for sigma in (*block_rr.SIGMAS, 20.0):
                first = block_rr.frequent(prior, sigma)
                for most in (1, 2, k):
                    rows = block_rr.channel(first, block_rr.favoured(prior, first, most), epsilon)
                    assert rows.sum(axis=1) == pytest.approx(np.ones(k), abs=1e-12)
                    assert rows.min() > 0.0
                    assert _spent(rows) <= epsilon + 1e-9
    planted = block_rr.channel(np.array([True, True, False]), np.array([True, False, False]), epsilon + 0.01)
    assert _spent(planted) > epsilon + 1e-3


def test_block_rr_is_randomized_response_on_labels_that_are_all_frequent() -> None:
    every = np.ones(5, np.bool_)
    other = 1.0 / (math.exp(1.3) + 4.0)
    wanted = np.where(np.eye(5, dtype=bool), math.exp(1.3) * other, other)
    assert block_rr.channel(every, np.zeros(5, np.bool_), 1.3) == pytest.approx(wanted, abs=1e-15)
    # e^(−1/σ) is 0.37 at σ = 1: only the likelier two of the four labels are frequent, and the first is favoured
    first = block_rr.frequent(PRIOR, 1.0)
    assert first.tolist() == [True, True, False, False]
    assert block_rr.favoured(PRIOR, first, 1).tolist() == [True, False, False, False]
    assert block_rr.favoured(PRIOR, first, 4).tolist() == first.tolist()
    rows = block_rr.channel(first, block_rr.favoured(PRIOR, first, 1), 1.0)
    assert rows[2:, 0] == pytest.approx([0.25, 0.25])
    assert rows[0, 0] == pytest.approx(math.e * rows[1, 0])
    assert rows[2, 1] == pytest.approx(rows[0, 1])
    assert rows[2, 2] == pytest.approx(math.e * rows[0, 2])


def test_block_rr_draws_from_its_channel_and_counts_with_noise() -> None:
    n, rng = 200_000, np.random.default_rng(11)
    first = np.array([True, True, False, False])
    rows = block_rr.channel(first, first, 1.0)
    labels = rng.integers(0, 4, n)

    def farthest(drawn: IntArray) -> float:
        shares = [np.bincount(drawn[labels == label], minlength=4) / np.sum(labels == label) for label in range(4)]
        return float(np.max(np.abs(np.stack(shares) - rows)))

    # shares of 50,000 draws: 5 standard errors are 0.0112
    assert farthest(block_rr.drawn(rows, labels, rng)) < 0.0112
    assert farthest(block_rr.drawn(block_rr.channel(first, first, 1.3), labels, rng)) > 0.0112
    priors = np.stack([block_rr.counted(np.repeat([0, 1], 5000), 2, 0.1, rng) for _ in range(2000)])
    assert priors.sum(axis=1) == pytest.approx(np.ones(2000))
    # Laplace noise of scale 20 on both counts: the first share has the standard deviation 20·√2·√2/(2·10,000)
    assert priors[:, 0].std() == pytest.approx(0.002, rel=0.1)


def _spent(rows: FloatArray) -> float:
    """The ε of a channel float64[k, m]: the largest log ratio in a column, infinite where only some rows have 0."""
    used = rows[:, rows.max(axis=0) > 0.0]
    with np.errstate(divide="ignore"):
        return float(np.max(np.log(used.max(axis=0)) - np.log(used.min(axis=0))))
