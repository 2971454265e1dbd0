"""Error estimates from privatized hold-outs: exactly unbiased by the channel's matrix, and their intervals cover.

Coverage is counted over fresh draws of the channel on fixed labels. The number of covered draws is binomial; the
bound is the one that a nominal 95 % would fall below with a probability of 10⁻⁶.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

from features_party.training import holdout
from features_party.training.holdout import estimate_on_rows, identify
from label_dp.channels.base import Channel, N
from label_dp.channels.dense import DenseChannel
from label_dp.channels.knots import KnotsChannel
from label_dp.channels.rr import RRChannel
from label_dp.domain import Domain
from label_dp.errors import InvalidMechanism
from label_dp.privacy import Epsilon
from labels_party.mechanisms.catalogue import MECHANISMS
from tests.support.messages import odds, one_bit, rr, staircase

pytestmark = pytest.mark.extended

DRAWS, ROWS = 1000, 3000
ERROR_RATE = 1e-6


def k_ary(domain: str = "0:10", epsilon: float = 3.0) -> RRChannel:
    """Randomized response with one bin per label."""
    parsed = Domain.parse(domain)
    a, b = odds(epsilon, parsed.k)
    return RRChannel(
        domain=parsed, boundaries=np.arange(parsed.k + 1), outputs=parsed.values, A=a, B=b, bin_means=parsed.values
    )


def three_outputs() -> DenseChannel:
    """Four labels, unbiased, three outputs: y is identified, and y² since every row is a mixture of two outputs and a
    quadratic in y: weights chosen so that E[z] = y and E[z²] is quadratic in y."""
    domain, outputs = Domain.parse("0:3"), np.array([-3.0, 1.5, 6.0])
    y = domain.values
    # P = a + b·(y − 1.5) for the ends, equal curvature: symmetric around the middle
    upper = 0.25 + (y - 1.5) / 9.0 + 0.01 * (y - 1.5) ** 2
    lower = 0.25 - (y - 1.5) / 9.0 + 0.01 * (y - 1.5) ** 2
    exact = np.stack([lower, 1.0 - upper - lower, upper], axis=1)
    weights = [[int(p * N) for p in row] for row in exact]
    for row in weights:
        row[1] += N - sum(row)
    return DenseChannel(domain=domain, outputs=outputs, weights=np.array(weights, dtype=np.uint64))


def knots(domain: str = "0:10", epsilon: str = "4") -> KnotsChannel:
    """The mechanism `unbiased` for evenly spread labels."""
    parsed = Domain.parse(domain)
    prior = np.full(parsed.k, 1 / parsed.k)
    made = MECHANISMS["unbiased"].design(parsed, prior, Epsilon.parse(epsilon), "squared", {})
    assert isinstance(made, KnotsChannel)
    return made


def biased_knots() -> KnotsChannel:
    """Labels between knots too, but E[z | y] is not y."""
    quarter = N // 4
    weights = np.array([[2, 1, 1], [1, 2, 1], [1, 1, 2]], dtype=np.uint64) * np.uint64(quarter)
    return KnotsChannel(
        domain=Domain.parse("0:5"), knots=np.array([0, 2, 5]), outputs=np.array([-7.0, 2.5, 8.0]), weights=weights
    )


@pytest.mark.parametrize(
    "channel",
    [k_ary(), k_ary("-5:5", 1.0), three_outputs(), knots()],
    ids=["k-ary", "offset", "dense", "knots"],
)
def test_functions_of_the_output_have_the_stated_expectations(channel: Channel) -> None:
    known = identify(channel)
    assert known.second is not None
    matrix, y = channel.matrix(), channel.labels - known.centre
    assert np.allclose(matrix @ known.first, y, atol=1e-9 * np.abs(known.first).max())
    assert np.allclose(matrix @ known.second, y * y, atol=1e-9 * np.abs(known.second).max())


def test_one_bit_identifies_the_gain_alone() -> None:
    known = identify(one_bit())
    assert known.second is None
    assert "only the difference" in known.why


def test_knots_with_labels_between_them_identify_the_gain_alone() -> None:
    channel = knots("0:200", "1")
    assert len(channel.knots) < channel.k
    known = identify(channel)
    assert np.allclose(channel.matrix() @ known.first, channel.labels - known.centre, rtol=0.0, atol=1e-7)
    assert known.second is None
    assert "only the difference" in known.why


@pytest.mark.parametrize(
    "channel",
    [rr(), staircase(), one_bit(clip=(2, 8)), biased_knots()],
    ids=["bins", "staircase", "clipped", "knots"],
)
def test_biased_channels_are_refused_with_the_reason(channel: Channel) -> None:
    with pytest.raises(InvalidMechanism, match=r"E\[corrected label \| label\] = label"):
        identify(channel)


@pytest.mark.parametrize(
    "channel",
    [k_ary(), three_outputs(), one_bit(epsilon=1.0), knots(), knots("0:200", "1")],
    ids=["k-ary", "dense", "one-bit", "knots", "between-knots"],
)
def test_intervals_cover_the_true_error(channel: Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    known = identify(channel)
    monkeypatch.setattr(holdout, "identify", lambda *_: known)  # the same for every draw
    rng = np.random.default_rng(7)
    y = np.minimum(rng.geometric(0.35, ROWS) - 1, channel.k - 1).astype(np.int64)
    labels = channel.labels[y]
    predictions = 0.6 * labels + 0.4 * labels.mean() + rng.normal(0, 0.7, ROWS)
    constant = float(labels.mean()) + 0.2
    true = {
        "mse": float(np.mean((predictions - labels) ** 2)),
        "constant_mse": float(np.mean((constant - labels) ** 2)),
    }
    true["mse_below_constant"] = true["constant_mse"] - true["mse"]
    edges, cells = np.cumsum(channel.matrix(), axis=1) + np.arange(channel.k)[:, None], y * channel.m
    message, examples = np.zeros(ROWS, np.int32), np.arange(ROWS)
    covered, sums = dict.fromkeys(true, 0), {name: [] for name in true}  # type: ignore[var-annotated]  # floats
    for _ in range(DRAWS):
        bins = np.clip(np.searchsorted(edges.ravel(), y + rng.random(ROWS)) - cells, 0, channel.m - 1)
        found = estimate_on_rows(predictions, constant, [channel], message, bins, examples)
        for name, value in true.items():
            interval = getattr(found, name)
            if interval is not None:
                covered[name] += interval.low <= value <= interval.high
                sums[name].append(interval.estimate)
    low = binom.ppf(ERROR_RATE, DRAWS, 0.95)
    for name, value in true.items():
        if sums[name]:
            # rows differ from each other too, so intervals for fixed rows are wider than needed: no upper bound
            assert covered[name] >= low, (name, covered[name])
            off = (np.mean(sums[name]) - value) / (np.std(sums[name]) / np.sqrt(DRAWS))
            assert abs(off) < 4.9, (name, off)  # one in a million
    assert bool(sums["mse"]) == (known.second is not None)


def test_rows_of_one_example_are_not_independent() -> None:
    """The same rows twice say nothing new: the standard error stays."""
    channel, rng = k_ary(), np.random.default_rng(3)
    y = rng.integers(0, 11, 500)
    bins, predictions = y.copy(), rng.normal(5, 2, 500)
    once = estimate_on_rows(predictions, 5.0, [channel], np.zeros(500, int), bins, np.arange(500))
    twice = estimate_on_rows(
        np.tile(predictions, 2), 5.0, [channel], np.zeros(1000, int), np.tile(bins, 2), np.tile(np.arange(500), 2)
    )
    assert once.mse is not None
    assert twice.mse is not None
    assert twice.mse.standard_error == pytest.approx(once.mse.standard_error)
