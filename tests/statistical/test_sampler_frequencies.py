"""Frequencies of the samplers against their exact probabilities: χ² at α = 10⁻⁶ per setting.

Draws come from the operating system, so a run fails by chance with probability below 10⁻⁴ in all. Planted wrong
channels must fail the same test.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

from label_dp.channels.base import N
from label_dp.channels.knots import KnotsChannel
from label_dp.domain import Domain
from label_dp.privacy import Epsilon
from labels_party.mechanisms.catalogue import MECHANISMS
from labels_party.mechanisms.entropy import Keystream, LaplaceNoise, discrete_laplace
from labels_party.mechanisms.randomized_response import rr_weights, sample_rr
from labels_party.mechanisms.sampling import sample
from tests.support.exact_matrix import CASES, design

ALPHA = 1e-6
DRAWS = 1_000_000


def p_value(counts: np.ndarray, probabilities: np.ndarray) -> float:
    """χ² of counts against probabilities; cells expecting fewer than 10 are pooled."""
    expected = probabilities * counts.sum()
    thin = expected < 10
    if thin.sum() > 1:
        counts = np.append(counts[~thin], counts[thin].sum())
        expected = np.append(expected[~thin], expected[thin].sum())
    statistic = float(np.sum((counts - expected) ** 2 / np.maximum(expected, 1e-300)))
    return float(chi2.sf(statistic, counts.size - 1))


def rr_counts(epsilon: str, d: int, own: int) -> tuple[np.ndarray, int, int]:
    A, B = rr_weights(Epsilon.parse(epsilon), d)
    bins = np.full(DRAWS, own, dtype=np.uint8 if d <= 256 else np.uint16)
    return np.bincount(sample_rr(bins, d, A, B, Keystream()), minlength=d), A, B


def rr_probabilities(d: int, own: int, A: int, B: int) -> np.ndarray:
    probabilities = np.full(d, B / N)
    probabilities[own] = A / N
    return probabilities


@pytest.mark.parametrize(
    ("epsilon", "d", "own"), [("0.1", 2, 0), ("1", 2, 1), ("0.5", 7, 3), ("4", 7, 6), ("2", 64, 0), ("6", 300, 299)]
)
def test_randomized_response(epsilon: str, d: int, own: int) -> None:
    counts, A, B = rr_counts(epsilon, d, own)
    assert p_value(counts, rr_probabilities(d, own, A, B)) > ALPHA


def test_control_wrong_d_and_swapped_weights_are_noticed() -> None:
    counts, A, B = rr_counts("1", 7, 3)
    wrong_a, wrong_b = rr_weights(Epsilon.parse("1"), 8)
    assert p_value(counts, rr_probabilities(7, 3, wrong_a + wrong_b, wrong_b)) < ALPHA
    swapped = np.full(7, (N - B) / 6 / N)
    swapped[3] = B / N
    assert p_value(counts, swapped) < ALPHA
    assert p_value(counts, rr_probabilities(7, 2, A, B)) < ALPHA


def test_control_a_probability_off_by_a_hundredth_is_noticed() -> None:
    counts, A, _ = rr_counts("1", 2, 0)
    assert p_value(counts, np.array([A / N * 1.01, 1 - A / N * 1.01])) < ALPHA


@pytest.mark.parametrize("epsilon", ["0.3", "2"])
def test_one_bit(epsilon: str) -> None:
    channel = MECHANISMS["one-bit"].design(Domain.parse("0:7"), None, Epsilon.parse(epsilon), "squared", {})
    index = np.arange(8).repeat(DRAWS // 8)
    drawn = sample(channel, index).reshape(8, -1)
    M = channel.matrix()
    for y in range(8):
        assert p_value(np.bincount(drawn[y], minlength=2), M[y]) > ALPHA / 8
    mean = channel.outputs[drawn].mean(axis=1)
    deviation = np.sqrt(channel.noise_variance() / drawn.shape[1])
    assert np.all(np.abs(mean - channel.labels) < 6 * deviation)


@pytest.mark.parametrize(("name", "options"), CASES)
def test_every_mechanism_samples_its_own_matrix(name: str, options: dict[str, Any]) -> None:
    channel = design(name, Domain.parse("0:30"), Epsilon.parse("3"), options)
    for y, draws in ((0, DRAWS), (11, 60_000), (30, 60_000)):
        counts = np.bincount(sample(channel, np.full(draws, y)), minlength=channel.m)
        assert p_value(counts, channel.rows(y, y + 1)[0]) > ALPHA


def test_labels_between_knots_follow_the_mixture_of_their_rows() -> None:
    domain = Domain.parse("0:300")
    channel = MECHANISMS["unbiased"].design(domain, np.full(301, 1 / 301), Epsilon.parse("2"), "squared", {})
    assert isinstance(channel, KnotsChannel)
    between = int(channel.knots[5] + channel.knots[6]) // 2
    assert 0 < int(channel.upper_chance[between]) < N
    counts = np.bincount(sample(channel, np.full(300_000, between)), minlength=channel.m)
    assert p_value(counts, channel.rows(between, between + 1)[0]) > ALPHA
    # controls: the row of a label farther on, and two outputs whose probabilities are swapped
    assert p_value(counts, channel.rows(between + 60, between + 61)[0]) < ALPHA
    swapped = channel.rows(between, between + 1)[0].copy()
    high, low = int(np.argmax(swapped)), int(np.argmin(swapped))
    swapped[[high, low]] = swapped[[low, high]]
    assert p_value(counts, swapped) < ALPHA


def test_labels_that_are_not_kept_are_uniform_over_those_that_are() -> None:
    domain, prior = Domain.parse("0:5"), np.array([0.3, 0.0, 0.3, 0.05, 0.05, 0.3])
    channel = MECHANISMS["rr-with-prior"].design(domain, prior, Epsilon.parse("1"), "squared", {})
    assert channel.m == 3
    counts = np.bincount(sample(channel, np.full(300_000, 1)), minlength=3)
    assert p_value(counts, channel.rows(1, 2)[0]) > ALPHA
    assert p_value(counts, channel.rows(0, 1)[0]) < ALPHA


def test_subsets_are_drawn_by_the_label_that_they_hold() -> None:
    channel = MECHANISMS["subset-selection"].design(Domain.parse("0:9"), None, Epsilon.parse("1"), "squared", {})
    assert channel.m > channel.k
    counts = np.bincount(sample(channel, np.full(300_000, 3)), minlength=channel.m)
    assert p_value(counts, channel.rows(3, 4)[0]) > ALPHA
    assert p_value(counts, channel.rows(4, 5)[0]) < ALPHA


def laplace_probabilities(scale: Fraction, reach: int) -> np.ndarray:
    """P[−reach], …, P[reach] with everything beyond on the two ends."""
    r = math.exp(-float(1 / scale))
    t = np.abs(np.arange(-reach, reach + 1))
    probabilities = (1 - r) / (1 + r) * r**t
    probabilities[[0, -1]] = r**reach / (1 + r)
    return np.asarray(probabilities)


def laplace_counts(scale: Fraction, reach: int) -> np.ndarray:
    noise = discrete_laplace(LaplaceNoise(1, 1 / scale), 150_000)
    return np.bincount(np.clip(noise, -reach, reach) + reach, minlength=2 * reach + 1)


@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(4), Fraction(80, 3)])
def test_prior_noise_is_discrete_laplace(scale: Fraction) -> None:
    reach = max(3, int(5 * scale))
    probabilities = laplace_probabilities(scale, reach)
    assert probabilities.sum() == pytest.approx(1.0, abs=1e-12)
    assert p_value(laplace_counts(scale, reach), probabilities) > ALPHA


def test_control_noise_of_another_scale_or_shape_is_noticed() -> None:
    counts = laplace_counts(Fraction(4), 20)
    assert p_value(counts, laplace_probabilities(Fraction(21, 5), 20)) < ALPHA
    t = np.arange(-20, 21)
    gaussian = np.exp(-(t**2) / (2 * 32.0))
    assert p_value(counts, gaussian / gaussian.sum()) < ALPHA


def test_control_additive_noise_without_clipping_at_the_ends_is_noticed() -> None:
    channel = MECHANISMS["discrete-laplace"].design(Domain.parse("0:9"), None, Epsilon.parse("3"), "squared", {})
    counts = np.bincount(sample(channel, np.full(50_000, 4)), minlength=10)
    unclipped = laplace_probabilities(Fraction(3), 40)[36:46]
    assert p_value(counts, unclipped / unclipped.sum()) < ALPHA
