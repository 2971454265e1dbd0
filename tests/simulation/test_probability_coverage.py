"""Metrics of probabilities from randomized response alone: their 95 % intervals cover what true labels come to.

Fresh examples and fresh draws each time. Predictions take twenty values, so what is true of the whole population is a
finite sum; they are not calibrated, with a slope of 0.8. The number of intervals that cover is binomial, and the bound
is the one that a nominal 95 % would fall below with a probability of 10⁻⁶: 42 counts, so one false alarm in 20,000
runs. For draws where AUC and slope are not identified there is nothing to cover. A channel that is taken for another ε,
and intervals of half the width, fall below the bound for each metric that they concern.
"""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import expit, logit
from scipy.stats import binom, norm

from features_party.training.holdout import identify
from features_party.training.intervals import Interval
from features_party.training.probabilities import Probabilities, judge
from tests.support.messages import rr

pytestmark = pytest.mark.extended

FloatArray = npt.NDArray[np.float64]

ERROR_RATE, SLOPE = 1e-6, 0.8
# positive rate, ε, rows enough that the ones are some five of their standard errors in most draws, and draws
SETTINGS = [
    (0.06, 0.5, 32_000, 100),
    (0.06, 1.0, 8000, 200),
    (0.06, 2.0, 2500, 200),
    (0.4, 0.5, 2500, 200),
    (0.4, 1.0, 1200, 200),
    (0.4, 2.0, 600, 200),
]
SPREAD = 1.2 * norm.ppf((np.arange(20) + 0.5) / 20)


def population(rate: float) -> tuple[FloatArray, FloatArray]:
    """(probability of a one, prediction) of twenty equally likely kinds of examples, float64[20] each."""
    low, high = -10.0, 10.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if expit(SPREAD + middle).mean() < rate else (low, middle)
    chance = expit(SPREAD + low)
    return chance, expit((logit(chance) - 0.2) / SLOPE)


def truth(chance: FloatArray, f: FloatArray) -> dict[str, float]:
    above = (f[:, None] > f) + 0.5 * (f[:, None] == f)
    rate = float(chance.mean())
    return {
        "positive_rate": rate,
        "brier": float(np.mean(f**2 - 2 * f * chance + chance)),
        "log_loss": float(-np.mean(chance * np.log(f) + (1 - chance) * np.log(1 - f))),
        "constant_log_loss": float(-np.mean(chance * np.log(rate) + (1 - chance) * np.log(1 - rate))),
        "auc": float(chance @ above @ (1 - chance)) / (20 * 20 * rate * (1 - rate)),
        "in_the_large": rate - float(f.mean()),
        "slope": SLOPE,
    }


def intervals(found: Probabilities) -> dict[str, Interval]:
    names = ("positive_rate", "brier", "log_loss", "constant_log_loss", "auc")
    every = {name: getattr(found, name) for name in names} | {
        "in_the_large": found.calibration.in_the_large,
        "slope": found.calibration.slope,
    }
    return {name: one for name, one in every.items() if one is not None}


def counted(
    rate: float, epsilon: float, rows: int, draws: int, believed: float | None = None, width: float = 1.0
) -> tuple[Counter[str], Counter[str]]:
    """(intervals that cover, intervals) by metric, where the channel's ε is `believed` and intervals are `width` as
    wide."""
    chance, f = population(rate)
    true, rng = truth(chance, f), np.random.default_rng(17)
    flip = rr("0:1", epsilon, cuts=(1,)).flip_probability()
    values = identify(rr("0:1", believed or epsilon, cuts=(1,))).first + 0.5
    cover, seen = Counter[str](), Counter[str]()
    for _ in range(draws):
        kind = rng.integers(0, 20, rows)
        output = (rng.random(rows) < chance[kind]) ^ (rng.random(rows) < flip)
        found = judge(f[kind], true["positive_rate"], values[output.astype(np.int64)], np.arange(rows))
        assert isinstance(found, Probabilities)
        for name, one in intervals(found).items():
            low, high = (one.estimate + width * (end - one.estimate) for end in (one.low, one.high))
            cover[name] += low <= true[name] <= high
            seen[name] += 1
    return cover, seen


def bound(count: int) -> float:
    return float(binom.ppf(ERROR_RATE, count, 0.95))


@pytest.mark.parametrize(("rate", "epsilon", "rows", "draws"), SETTINGS)
def test_intervals_cover_what_true_labels_come_to(rate: float, epsilon: float, rows: int, draws: int) -> None:
    cover, seen = counted(rate, epsilon, rows, draws)
    for name, count in seen.items():
        assert cover[name] >= bound(count), (name, cover[name], count)
    assert min(seen.values()) > 0.7 * draws
    assert len(seen) == 7


@pytest.mark.parametrize("believed", [1.0, 4.0])
def test_a_channel_taken_for_another_is_seen(believed: float) -> None:
    cover, seen = counted(0.4, 2.0, 2000, 60, believed)
    for name in ("brier", "log_loss", "auc", "slope", "positive_rate", "in_the_large"):
        # where labels are believed to be noisier than they are, a finite slope is often not to be had
        assert cover[name] < bound(60), (name, cover[name], seen[name])


def test_intervals_of_half_the_width_are_seen() -> None:
    cover, seen = counted(0.4, 1.0, 600, 200, width=0.5)
    for name, count in seen.items():
        assert cover[name] < bound(count), (name, cover[name])


def test_few_ones_under_much_noise_are_never_identified() -> None:
    _, seen = counted(0.06, 0.5, 2000, 50)
    # 1.3 standard errors on average: four are as rare as one draw in 300
    assert seen["auc"] <= binom.isf(ERROR_RATE, 50, norm.sf(4 - 0.06 * math.sqrt(2000) / 1.9))
    assert seen["brier"] == 50
