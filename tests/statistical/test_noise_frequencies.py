"""Frequencies of noise on a lattice against its exact weights and against an independent sampler: χ² at α = 10⁻⁶.

Draws come from the operating system, so a run fails by chance with probability below 5·10⁻⁵ in all. Planted wrong
noise must fail the same test.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from label_dp.channels.base import Channel, N
from label_dp.channels.laplace import LaplaceChannel
from label_dp.channels.staircase import StaircaseChannel
from label_dp.domain import Domain
from label_dp.privacy import Epsilon
from labels_party.mechanisms.catalogue import MECHANISMS, sample
from labels_party.mechanisms.entropy import LaplaceNoise, discrete_laplace
from tests.statistical.test_sampler_frequencies import ALPHA, p_value

DRAWS = 300_000
UNEVEN = Domain.from_values([0, 1, 2, 7])


def design(name: str, domain: Domain | str, epsilon: str, **options: bool) -> Channel:
    parsed = Domain.parse(domain) if isinstance(domain, str) else domain
    return MECHANISMS[name].design(parsed, None, Epsilon.parse(epsilon), "squared", options)


def pooled(counts: np.ndarray, probabilities: np.ndarray) -> float:
    """p-value after groups of neighbouring outputs, some 60 of them, were counted together."""
    starts = np.arange(0, counts.size, -(-counts.size // 60))
    return p_value(np.add.reduceat(counts, starts), np.add.reduceat(probabilities, starts))


CASES: list[tuple[str, Domain | str, str, bool]] = [
    ("laplace", "0:10", "2", False),
    ("laplace", "0:10", "0.5", True),
    ("discrete-laplace", "0:10", "4", True),
    ("staircase", "0:10", "3", False),
    ("discrete-staircase", "0:10", "1", True),
    ("laplace", UNEVEN, "6", False),
    ("staircase", UNEVEN, "6", True),
    ("exponential", "0:30", "8", False),
    ("exponential", UNEVEN, "20", False),
]


@pytest.mark.parametrize(("name", "domain", "epsilon", "unclipped"), CASES)
def test_outputs_are_as_frequent_as_their_rows_say(
    name: str, domain: Domain | str, epsilon: str, unclipped: bool
) -> None:
    channel = design(name, domain, epsilon, **({"unclipped": True} if unclipped else {}))
    for place in (1, channel.k - 1):
        counts = np.bincount(sample(channel, np.full(DRAWS, place)), minlength=channel.m)
        row = channel.rows(place, place + 1)[0]
        assert (p_value if channel.m < 100 else pooled)(counts, row) > ALPHA
        # the neighbour's row is another one
        other = channel.rows(place - 1, place)[0]
        assert (p_value if channel.m < 100 else pooled)(counts, other) < ALPHA


def test_discrete_laplace_noise_is_that_of_an_independent_sampler() -> None:
    channel = design("discrete-laplace", "0:8", "2", unclipped=True)
    assert isinstance(channel, LaplaceChannel)
    drawn = sample(channel, np.full(DRAWS, 4)).astype(np.int64) - channel.reach - 4
    theirs = discrete_laplace(LaplaceNoise(4, Fraction(1)), 60_000)
    counts = [np.bincount(np.clip(noise, -25, 25) + 25, minlength=51) for noise in (drawn, theirs)]
    weights = channel.weights.astype(np.float64) / N
    t = np.abs(np.arange(-25, 26))
    expected = weights[t]
    expected[[0, -1]] = float(channel.tails[25]) / N
    assert p_value(counts[0], expected) > ALPHA
    assert p_value(counts[1], expected) > ALPHA


def test_control_noise_of_a_slightly_wrong_scale_width_or_place_is_noticed() -> None:
    channel = design("staircase", "0:10", "3", unclipped=True)
    assert isinstance(channel, StaircaseChannel)
    counts = np.bincount(sample(channel, np.full(DRAWS, 5)), minlength=channel.m)
    row = channel.rows(5, 6)[0]
    assert pooled(counts, row) > ALPHA
    wider = StaircaseChannel(
        domain=channel.domain,
        noise_epsilon=channel.noise_epsilon,
        cells=channel.cells,
        reach=channel.reach,
        peak=channel.peak * 95 // 100 & ~1,
        width=channel.width * 21 // 20,
    )
    assert pooled(counts, wider.rows(5, 6)[0]) < ALPHA
    shifted = np.roll(row, channel.cells // 50)
    assert pooled(counts, shifted) < ALPHA
    laplace = design("laplace", "0:10", "3", unclipped=True)
    assert laplace.m == channel.m
    assert pooled(counts, laplace.rows(5, 6)[0]) < ALPHA


def test_control_one_percent_of_epsilon_is_noticed_at_the_far_end() -> None:
    channel, sharper = design("laplace", "0:10", "3"), design("laplace", "0:10", "3.03")
    far = int(np.count_nonzero(sample(channel, np.zeros(4_000_000, np.int64)) == channel.m - 1))
    counts = np.array([far, 4_000_000 - far])
    for of, right in ((channel, True), (sharper, False)):
        share = float(of.rows(0, 1)[0, -1])
        assert (p_value(counts, np.array([share, 1 - share])) > ALPHA) == right
