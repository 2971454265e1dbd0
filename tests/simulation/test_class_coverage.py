"""Metrics of classes from privatized labels alone: their 95 % intervals cover what true labels come to.

Fresh examples and fresh draws each time. Examples are of twelve equally likely kinds, so what is true of the whole
population is a finite sum; predictions are too sure of themselves and take two classes for more frequent than they are.
The number of intervals that cover is binomial, and the bound is the one that a nominal 95 % would fall below with a
probability of 10⁻⁶: 36 counts, so one false alarm in 27,000 runs. A channel that is taken for another ε, and intervals
of half the width, fall below the bound for each metric that they concern.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import binom

from features_party.training.class_metrics import NAMES, ClassMetrics, indicators_of, judge_classes
from label_dp.channels.base import Channel
from tests.support.classes import by_subsets, k_ary

pytestmark = pytest.mark.extended

FloatArray = npt.NDArray[np.float64]

ERROR_RATE, KINDS, K = 1e-6, 12, 4
SETTINGS = [("0.5", 20_000, 100), ("1", 6000, 200), ("2", 2000, 200), ("4", 800, 200)]  # ε, rows, draws


def population() -> tuple[FloatArray, FloatArray]:
    """(probabilities of the classes, predictions) of each kind, float64[12, 4]."""
    rng = np.random.default_rng(5)
    logits = 1.2 * rng.normal(size=(KINDS, K)) + np.array([0.6, 0.2, 0.0, -0.4])
    chance, found = np.exp(logits), np.exp(1.3 * logits + np.array([0.3, 0.0, 0.3, 0.0]))
    return chance / chance.sum(axis=1, keepdims=True), found / found.sum(axis=1, keepdims=True)


def truth(chance: FloatArray, f: FloatArray) -> dict[str, float]:
    shares = chance.mean(axis=0)
    losses = {"log_loss": -float(np.mean(np.sum(chance * np.log(f), axis=1)))}
    losses["constant_log_loss"] = -float(shares @ np.log(shares))
    aucs = []
    for at in range(K):
        above = (f[:, None, at] > f[None, :, at]) + 0.5 * (f[:, None, at] == f[None, :, at])
        own, rest = chance[:, at], 1.0 - chance[:, at]
        aucs.append(float(own @ above @ rest) / float(own.sum() * rest.sum()))
    return losses | {
        "accuracy": float(chance[np.arange(KINDS), f.argmax(axis=1)].mean()),
        "constant_accuracy": float(shares.max()),
        "log_loss_below_constant": losses["constant_log_loss"] - losses["log_loss"],
        "macro_auc": float(np.mean(aucs)),
    }


def counted(
    epsilon: str,
    rows: int,
    draws: int,
    believed: str = "",
    width: float = 1.0,
    channel: Callable[[int, str], Channel] = k_ary,
) -> tuple[Counter[str], Counter[str]]:
    """(intervals that cover, intervals) by metric, where the channel's ε is `believed` and intervals are `width` as
    wide."""
    chance, f = population()
    true, rng, shares = truth(chance, f), np.random.default_rng(17), chance.mean(axis=0)
    through = np.cumsum(chance @ channel(K, epsilon).rows(0, K), axis=1)  # outputs of each kind
    told = indicators_of(channel(K, believed or epsilon))
    assert not isinstance(told, str)
    cover, seen = Counter[str](), Counter[str]()
    for _ in range(draws):
        kind = rng.integers(0, KINDS, rows)
        output = np.minimum((through[kind] < rng.random(rows)[:, None]).sum(axis=1), through.shape[1] - 1)
        found = judge_classes(f[kind], shares, told[output], np.arange(rows))
        assert isinstance(found, ClassMetrics)
        for name in NAMES:
            one = getattr(found, name)
            if one is None or (name == "macro_auc" and found.macro_auc_classes < K):
                continue
            low, high = (one.estimate + width * (end - one.estimate) for end in (one.low, one.high))
            cover[name] += low <= true[name] <= high
            seen[name] += 1
    return cover, seen


def bound(count: int) -> float:
    return float(binom.ppf(ERROR_RATE, count, 0.95))


@pytest.mark.parametrize(("epsilon", "rows", "draws"), SETTINGS)
def test_intervals_cover_what_true_labels_come_to(epsilon: str, rows: int, draws: int) -> None:
    cover, seen = counted(epsilon, rows, draws)
    for name, count in seen.items():
        assert cover[name] >= bound(count), (name, cover[name], count)
    assert set(seen) == set(NAMES)
    assert min(seen.values()) > 0.7 * draws


@pytest.mark.parametrize(("epsilon", "rows", "draws"), [("0.3", 40_000, 100), ("0.5", 15_000, 200)])
def test_intervals_from_subsets_cover_it_too(epsilon: str, rows: int, draws: int) -> None:
    assert by_subsets(K, epsilon).m > K
    cover, seen = counted(epsilon, rows, draws, channel=by_subsets)
    for name, count in seen.items():
        assert cover[name] >= bound(count), (name, cover[name], count)
    assert set(seen) == set(NAMES)
    # the control: subsets at another ε
    wrong, _ = counted(epsilon, rows, draws, believed="0.1", channel=by_subsets)
    assert wrong["accuracy"] < bound(draws)


@pytest.mark.parametrize("believed", ["1", "4"])
def test_a_channel_taken_for_another_is_seen(believed: str) -> None:
    cover, seen = counted("2", 4000, 60, believed)
    for name in NAMES:
        assert cover[name] < bound(60), (name, cover[name], seen[name])


def test_intervals_of_half_the_width_are_seen() -> None:
    cover, seen = counted("2", 1500, 200, width=0.5)
    for name, count in seen.items():
        assert cover[name] < bound(count), (name, cover[name])
