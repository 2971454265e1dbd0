"""Messages of different ranges in one estimate, and channels whose corrected labels keep a bias."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from features_party.training.estimate import estimate
from features_party.training.holdout import HIDES, estimate_on_rows, identify
from features_party.training.intervals import Interval
from label_dp.channels.base import Channel
from label_dp.domain import Domain
from label_dp.errors import InvalidMechanism
from label_dp.privacy import Epsilon
from labels_party.mechanisms.catalogue import MECHANISMS
from tests.support.messages import draw, one_bit, rr

FloatArray = npt.NDArray[np.float64]
HUNDRED = Domain.parse("0:100")


def test_messages_of_different_ranges_are_judged_about_one_centre() -> None:
    """At ε = 30 outputs are labels, so the estimate is the error itself."""
    rng = np.random.default_rng(0)
    channels = [rr("0:10", 30.0, cuts=tuple(range(1, 11))), rr("0:4", 30.0, cuts=tuple(range(1, 5)))]
    message = rng.integers(0, 2, 500)
    bins = np.where(message == 0, rng.integers(0, 11, 500), rng.integers(0, 5, 500))
    f, labels = rng.normal(4.0, 2.0, 500), bins.astype(np.float64)
    found = estimate_on_rows(f, 5.0, channels, message, bins, np.arange(500))
    assert found.mse is not None
    assert found.mse.estimate == pytest.approx(np.mean((f - labels) ** 2))
    assert found.mse_below_constant.estimate == pytest.approx(np.mean((5.0 - labels) ** 2 - (f - labels) ** 2))


# --- a bias that is small under the prior ------------------------------------------------------------------------


def skewed() -> FloatArray:
    weights = np.exp(-np.arange(HUNDRED.k) / 15.0)
    return np.asarray(weights / weights.sum(), np.float64)


def biased(mechanism: str, epsilon: str, options: dict[str, object] | None = None) -> Channel:
    channel = MECHANISMS[mechanism].design(HUNDRED, skewed(), Epsilon.parse(epsilon), "squared", options or {}, 100_000)
    assert not channel.unbiased
    return channel


@pytest.mark.parametrize(
    ("mechanism", "epsilon", "options"), [("balanced", "2", {}), ("one-bit", "3", {"clip": "auto"})]
)
def test_no_predictions_can_hide_more_than_the_bound(mechanism: str, epsilon: str, options: dict[str, object]) -> None:
    """Exactly, over all labels: predictions along the bias hide the bound itself, others less."""
    channel, p = biased(mechanism, epsilon, options), skewed()
    known = identify(channel, p, 10_000)
    bias = channel.moments(known.first)[0] - (channel.labels - known.centre)
    assert known.bias == pytest.approx(np.sqrt(p @ bias**2))
    assert known.bias > 0.0
    assert p @ bias == pytest.approx(0.0, abs=1e-6)
    rng = np.random.default_rng(4)
    for f in (bias, -bias, channel.labels - p @ channel.labels, rng.normal(size=HUNDRED.k)):
        hidden, bound = abs(2.0 * p @ (f * bias)), 2.0 * known.bias * np.sqrt(p @ f**2)
        assert hidden <= bound * (1 + 1e-9)
    assert abs(2.0 * p @ bias**2) == pytest.approx(2.0 * known.bias * np.sqrt(p @ bias**2))


def test_the_interval_holds_a_gain_that_the_bias_hides() -> None:
    """Predictions along the bias, so many rows that chance hardly matters: the control has no bound, and misses."""
    channel, p = biased("one-bit", "3", {"clip": "auto"}), skewed()
    n, rng = 400_000, np.random.default_rng(5)
    index = rng.choice(HUNDRED.k, n, p=p)
    labels, outputs = HUNDRED.values[index], draw(channel, HUNDRED.values[index])
    known = identify(channel, p, n)
    bias = channel.moments(known.first)[0] - (channel.labels - known.centre)
    constant = float(p @ channel.labels)
    f = constant + 8.0 * bias[index]
    truth = float(np.mean((constant - labels) ** 2 - (f - labels) ** 2))
    rows = np.arange(n)
    found = estimate_on_rows(f, constant, [channel], np.zeros(n, np.int8), outputs, rows, priors=[p])
    assert found.mse is None
    assert "keep a bias" in found.mse_why
    assert holds(found.mse_below_constant, truth)
    seen = replace(known, first=known.first[outputs], bias=0.0)
    assert not holds(estimate(f, constant, seen, rows).mse_below_constant, truth)


def holds(interval: Interval, truth: float) -> bool:
    return interval.low <= truth <= interval.high


def test_more_rows_ask_for_less_bias() -> None:
    channel = biased("balanced", "2")
    few, many = (identify(channel, skewed(), rows) for rows in (100, 100_000_000))
    assert many.bias < few.bias
    assert many.noise > few.noise


def test_a_bias_that_hides_everything_is_refused() -> None:
    bins = rr("0:100", 30.0, cuts=(50,))
    with pytest.raises(InvalidMechanism, match="bins and clipping hide"):
        identify(bins)
    with pytest.raises(InvalidMechanism, match="bins and clipping hide"):
        identify(bins, skewed(), 1000)
    spread = float(np.sqrt(skewed() @ (HUNDRED.values - skewed() @ HUNDRED.values) ** 2))
    assert identify(rr("0:100", 30.0, cuts=(10, 25, 50)), skewed(), 1000).bias < HIDES * spread


def test_groups_of_predictions_hold_the_mean_of_their_true_labels() -> None:
    """Of labels of a hundred values through an unbiased channel; the control is a model that predicts twice as much."""
    channel, n, rng = one_bit("0:100", 3.0), 60_000, np.random.default_rng(8)
    labels = rng.choice(HUNDRED.values, n)
    predictions = 0.5 * labels + 0.5 * labels.mean() + rng.normal(size=n)
    known = identify(channel, None, n)
    seen = replace(known, first=known.first[draw(channel, labels)], second=None)
    found = estimate(predictions, labels.mean(), seen, np.arange(n)).reliability
    assert sum(group.rows for group in found) == n
    order = np.array_split(labels[np.argsort(predictions, kind="stable")], len(found))
    held = [holds(group.observed, float(at.mean())) for group, at in zip(found, order, strict=True)]
    assert len(held) == 10
    assert sum(held) >= 8
    off = estimate(2.0 * predictions, labels.mean(), seen, np.arange(n)).reliability
    assert not any(holds(group.observed, group.predicted) for group in off[-3:])
    assert estimate(predictions[:50], 0.0, replace(seen, first=seen.first[:50]), np.arange(50)).reliability == ()


def test_a_bias_widens_the_intervals_of_groups() -> None:
    channel, n = one_bit("0:100", 3.0), 1_000
    known = identify(channel, None, n)
    outputs = np.arange(n) % 2
    plain, biased_too = (
        estimate(np.arange(n, dtype=float), 0.0, replace(known, first=known.first[outputs], bias=b), np.arange(n))
        for b in (0.0, 1.0)
    )
    for a, b in zip(plain.reliability, biased_too.reliability, strict=True):
        assert b.observed.high - a.observed.high == pytest.approx(np.sqrt(10))
