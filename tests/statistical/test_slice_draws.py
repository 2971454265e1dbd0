"""Slices, their sizes and the points they give, as frequencies: χ² at α = 10⁻⁶, and success rates that a right
mechanism misses with probability below 10⁻⁶. Planted wrong ones must fail. A run fails by chance below 5·10⁻⁶ in all.
"""

from __future__ import annotations

import itertools
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from label_dp.companions.costs.slices import SliceNoise, Step
from labels_party.companions.mechanisms.private_median.interval_point import IntervalPlan, IntervalPoint
from labels_party.companions.mechanisms.private_median.median import MedianPlan, private_median
from labels_party.companions.mechanisms.private_median.rsc import Session, SessionPlan, geometric, permutation
from labels_party.mechanisms.entropy import Keystream, LaplaceNoise, discrete_laplace
from tests.statistical.test_sampler_frequencies import ALPHA, p_value

pytestmark = pytest.mark.extended

F = Fraction
TRIALS = 60
# of 60 trials of a mechanism that succeeds 99 times in 100, more than 7 fail with probability below 3·10⁻⁷
FAILURES = 7
BITS, SIZE, DELTA = 48, 1 << 48, F(1, 10**9)


def test_sizes_are_geometric() -> None:
    noise, most, source = SliceNoise(4), 12, Keystream()
    counts = np.bincount([geometric(noise, most, source) for _ in range(20_000)], minlength=most + 1)

    def law(alpha: float) -> npt.NDArray[np.float64]:
        return np.append((1 - alpha) * alpha ** np.arange(most), alpha**most)

    alpha = float(noise.alpha)
    assert p_value(counts, law(alpha)) > ALPHA
    assert p_value(counts, law(alpha * 0.96)) < ALPHA  # control: noise of another mean


def test_every_order_is_as_frequent() -> None:
    source = Keystream()
    drawn = Counter(tuple(permutation(4, source).tolist()) for _ in range(12_000))
    counts = np.array([drawn[order] for order in itertools.permutations(range(4))])
    assert p_value(counts, np.full(24, 1 / 24)) > ALPHA


def test_every_subset_of_a_noisy_slice_is_as_frequent() -> None:
    class Show:
        step = Step(F(1))

        def __call__(self, rows: Any) -> tuple[int, ...]:
            return tuple(sorted(rows.tolist()))

    plan = SessionPlan((Step(F(1)),), 4, SliceNoise(200), F(1, 10))
    drawn: Counter[tuple[int, ...]] = Counter()
    for _ in range(3000):
        drawn[Session(np.arange(4), plan).step(Show(), 2, lambda rows: rows)] += 1
    # nearly always all four are in the slice, and any two of them are handed on
    counts = np.array([drawn[pair] for pair in itertools.combinations(range(4), 2)])
    assert p_value(counts, np.array([1 + 0.03, *[0.994] * 5]) / 6) > ALPHA / 10


def log_uniform(rng: np.random.Generator, n: int) -> npt.NDArray[np.uint64]:
    return np.asarray(np.floor(2.0 ** (rng.random(n) * BITS * 0.999)), np.uint64)


def low(noise: LaplaceNoise, n: int) -> npt.NDArray[np.int64]:
    """Noise around 120 times its scale below zero."""
    return discrete_laplace(noise, n) - int(120 * noise.scale)


def medians_that_miss(n: int, **planted: Any) -> int:
    rng, missed = np.random.default_rng(11), 0
    plan = MedianPlan(n, SIZE, F(1), DELTA)
    for _ in range(TRIALS):
        points = np.sort(log_uniform(rng, n))
        found = private_median(points, plan, **planted)
        missed += found is None or not points[n // 3] <= found <= points[-n // 3]
    return missed


def test_medians_lie_between_the_thirds() -> None:
    assert medians_that_miss(2000) <= FAILURES


@pytest.mark.parametrize("n", [300, 2000])
def test_control_too_few_labels_or_noise_that_is_not_centred_is_noticed(n: int) -> None:
    assert medians_that_miss(n, **({"noise": low} if n == 2000 else {})) > FAILURES


def test_interval_points_lie_within_and_are_found() -> None:
    rng, plan, missed = np.random.default_rng(12), IntervalPlan(BITS, F(1), DELTA), 0
    for _ in range(TRIALS):
        points = log_uniform(rng, 700)
        found = IntervalPoint(plan, points.size, Keystream())(points)
        missed += found is None or not points.min() <= found <= points.max()
    assert missed <= FAILURES
