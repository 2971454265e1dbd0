"""Errors estimated by cross-fitting on privatized labels alone: the intervals cover the error of the judged models.

Over fresh examples, fresh draws and fresh fits, a nominal 95 % interval covers the mean true error of the models of the
folds (on a large sample of the same kind) in a number of repetitions that is binomial; the bound is the one that it
would fall below with a probability of 10⁻⁶. A planted wrong interval, the naive one of corrected labels that are not
unbiased, or one of half the width, falls below it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import binom

from features_party.training.estimate import ErrorEstimate, Identified, estimate, held_out
from features_party.training.holdout import estimate_on_rows, identify
from features_party.training.intervals import NO_FOLDS, Folds, Interval
from label_dp.channels.base import Channel
from label_dp.domain import Domain
from label_dp.privacy import Epsilon
from labels_party.mechanisms.laplace import laplace_channel
from tests.support.messages import laplace, one_bit, rr
from tests.support.training import draws

pytestmark = pytest.mark.extended

FloatArray = npt.NDArray[np.float64]

REPETITIONS, ROWS, FOLDS = 200, 2000, 5
BOUND = binom.ppf(1e-6, REPETITIONS, 0.95)


def k_ary(epsilon: float) -> Channel:
    return rr("0:10", epsilon, cuts=tuple(range(1, 11)))


def sample(rng: np.random.Generator, rows: int) -> tuple[FloatArray, FloatArray]:
    """Columns float64[rows, 4] and labels float64[rows]: linear, skewed noise, rounded into 0 … 10."""
    x = rng.normal(size=(rows, 4))
    y = 3.0 + x @ np.array([1.0, -0.5, 0.0, 0.0]) + rng.exponential(1.5, rows) - 1.5
    return np.column_stack([np.ones(rows), x]), np.clip(np.round(y), 0, 10)


def test_an_error_by_moments_is_the_mean_over_rows() -> None:
    weights = np.array([2.0, 0.7, -0.3, 0.1, 0.05])
    assert fresh_error(weights) == pytest.approx(float(np.mean((FRESH[0] @ weights - FRESH[1]) ** 2)))


@dataclass(frozen=True)
class Drawn:
    """One repetition: out-of-fold predictions and constants for its rows, their outputs, and the true errors: `mse` and
    `gain` of the models of the folds, `final` the gain of the one that saw all rows."""

    predictions: FloatArray
    constants: FloatArray
    bins: npt.NDArray[np.int64]
    corrected: FloatArray
    mse: float
    gain: float
    final: float


def repeat(channel: Channel, rng: np.random.Generator, cumulative: FloatArray) -> Drawn:
    x, y = sample(rng, ROWS)
    at = np.asarray(y, np.int64)
    bins = np.minimum((cumulative[at] < rng.random(ROWS)[:, None]).sum(axis=1), channel.m - 1)
    z = np.asarray(channel.debiased_outputs(), np.float64)[bins]
    predictions, constants, errors, gains = np.empty(ROWS), np.empty(ROWS), [], []
    fold = rng.permutation(ROWS) % FOLDS
    for number in range(FOLDS):
        train, held = fold != number, fold == number
        penalty = 20.0 * np.diag([0.0, 1, 1, 1, 1])
        weights = np.linalg.solve(x[train].T @ x[train] + penalty, x[train].T @ z[train])
        predictions[held], constants[held] = x[held] @ weights, z[train].mean()
        errors.append(fresh_error(weights))
        gains.append(fresh_error(z[train].mean() * CONSTANT) - errors[-1])
    weights = np.linalg.solve(x.T @ x + penalty, x.T @ z)
    final = fresh_error(z.mean() * CONSTANT) - fresh_error(weights)
    return Drawn(predictions, constants, bins, z, float(np.mean(errors)), float(np.mean(gains)), final)


FRESH = sample(np.random.default_rng(99), 100_000)
SQUARES, PRODUCTS, SQUARE = FRESH[0].T @ FRESH[0] / 1e5, FRESH[0].T @ FRESH[1] / 1e5, float(np.mean(FRESH[1] ** 2))
CONSTANT = np.array([1.0, 0, 0, 0, 0])  # times a number, the weights of the model that predicts it


def fresh_error(weights: FloatArray) -> float:
    """The mean squared error on FRESH, by its moments."""
    return float(weights @ SQUARES @ weights - 2.0 * weights @ PRODUCTS + SQUARE)


def covered(interval: Interval | None, truth: float) -> bool:
    assert interval is not None
    return interval.low <= truth <= interval.high


@pytest.mark.parametrize(
    "channel", [one_bit(epsilon=1.0), laplace(epsilon=2.0), k_ary(3.0)], ids=["one-bit", "laplace", "k-ary"]
)
def test_cross_fitted_intervals_cover(channel: Channel) -> None:
    rng, cumulative = np.random.default_rng(11), np.cumsum(channel.matrix(), axis=1)
    squares = identify(channel).second is not None
    assert squares == (channel.m > 2)
    gain = mse = halved = final = 0
    for _ in range(REPETITIONS):
        drawn = repeat(channel, rng, cumulative)
        found = judge(channel, drawn)
        gain += covered(found.mse_below_constant, drawn.gain)
        mse += not squares or covered(found.mse, drawn.mse)
        final += covered(judge(channel, drawn, Folds(FOLDS)).mse_below_constant, drawn.final)
        middle, half = found.mse_below_constant.estimate, 0.5 * 1.96 * found.mse_below_constant.standard_error
        halved += middle - half <= drawn.gain <= middle + half
    assert gain >= BOUND
    assert mse >= BOUND
    assert final >= BOUND
    # the control: half the width would be seen
    assert halved < BOUND


def judge(channel: Channel, drawn: Drawn, folds: Folds = NO_FOLDS) -> ErrorEstimate:
    rows = np.arange(len(drawn.bins))
    return estimate_on_rows(drawn.predictions, drawn.constants, [channel], np.zeros_like(rows), drawn.bins, rows, folds)


def test_a_planted_wrong_square_is_seen() -> None:
    """z² in place of h(z): the noise counts as error."""
    channel, rng = laplace(epsilon=2.0), np.random.default_rng(12)
    cumulative, count = np.cumsum(channel.matrix(), axis=1), 0
    centre = 5.0
    for _ in range(30):
        drawn = repeat(channel, rng, cumulative)
        z = drawn.corrected - centre
        wrong = Identified(centre, z, z * z, 0.0, "planted")
        count += covered(estimate(drawn.predictions, drawn.constants, wrong, np.arange(ROWS)).mse, drawn.mse)
    assert count < binom.ppf(1e-6, 30, 0.95)


@pytest.mark.parametrize("epsilon", ["0.5", "4"])
@pytest.mark.parametrize("values", [11, 1001])
@pytest.mark.parametrize("reach", ["clipped", "unclipped"])
def test_noise_on_a_lattice_tells_the_squares(epsilon: str, values: int, reach: str) -> None:
    """Solved for few labels; in closed form, z² less the noise's variance but at the ends, for many."""
    domain = Domain.parse(f"0:{values - 1}")
    channel = laplace_channel(domain, Epsilon.parse(epsilon), unclipped=reach == "unclipped")
    known, target = identify(channel), (channel.labels - (values - 1) / 2) ** 2
    assert known.second is not None
    assert known.slack == 0.0
    assert np.allclose(channel.moments(known.second)[0], target, atol=2e-9 * target.max())
    if channel.m > 1 << 14:
        if values == 11:
            squares = (channel.outputs - known.centre) ** 2
            noise = float(channel.moments(channel.debiased_outputs())[1].mean())
            # of all that are exact the one of least spread
            solved, closed = (float(channel.moments(h)[1].mean()) for h in (known.second, squares - noise))
            assert solved < closed
        else:
            inside = slice(1, -1)
            gap = known.second[inside] - (channel.outputs[inside] - known.centre) ** 2
            assert np.ptp(gap) < 1e-6 * np.abs(known.second).max()


def test_of_several_messages_the_one_that_tells_least_decides() -> None:
    channels, rows = [k_ary(3.0), one_bit(epsilon=1.0)], 400
    rng = np.random.default_rng(3)
    message = np.arange(rows) % 2
    bins = np.where(message == 0, rng.integers(0, 11, rows), rng.integers(0, 2, rows))
    found = estimate_on_rows(np.full(rows, 4.0), 5.0, channels, message, bins, np.arange(rows))
    assert found.mse is None
    assert "squares" in found.mse_why
    assert found.as_card()["mse_below_constant"] == found.mse_below_constant.estimate
    alone = estimate_on_rows(np.full(rows, 4.0), 5.0, channels[:1], np.zeros(rows, int), bins * 0, np.arange(rows))
    assert alone.mse is not None
    assert alone.mse_why == "identified"


@pytest.mark.parametrize("epsilons", [(1.0, 1.0), (0.3, 2.0)], ids=["alike", "weak and strong"])
def test_two_outputs_of_an_example_tell_its_square_and_the_noisier_is_safe(
    epsilons: tuple[float, float],
) -> None:
    """One bit alone has no square. A nominal 95 % interval of two covers in a number of repetitions that is binomial,
    below the bound once in 10⁶; a planted wrong one, of outputs that are not independent (one output twice), falls
    below it."""
    rng, channels = np.random.default_rng(21), [one_bit(epsilon=epsilon) for epsilon in epsilons]
    cumulative = [np.cumsum(channel.matrix(), axis=1)[:, 0] for channel in channels]
    every = np.arange(ROWS)
    message, examples = np.repeat([0, 1], ROWS), np.tile(every, 2)
    gain = mse = planted = 0
    alone, both = [], []
    for _ in range(REPETITIONS):
        x, y = sample(rng, ROWS)
        at = np.asarray(y, np.int64)
        bins = np.concatenate([(rng.random(ROWS) > below[at]).astype(np.int64) for below in cumulative])
        f = np.clip(3.0 + 0.8 * x[:, 1], 0.0, 10.0)
        truth = float(np.mean((f - y) ** 2))
        found = estimate_on_rows(np.tile(f, 2), 3.0, channels, message, bins, examples)
        assert found.mse is not None
        assert found.rows == ROWS
        gain += covered(found.mse_below_constant, float(np.mean((3.0 - y) ** 2)) - truth)
        mse += covered(found.mse, truth)
        # the same bits for both: their product is no square of the label
        same = [channels[0], channels[0]]
        twice = estimate_on_rows(np.tile(f, 2), 3.0, same, message, np.tile(bins[:ROWS], 2), examples)
        planted += covered(twice.mse, truth)
        single = (estimate_on_rows(f, 3.0, channels[1:], message[:ROWS], bins[ROWS:], every)).mse_below_constant
        alone.append(single.standard_error)
        both.append(found.mse_below_constant.standard_error)
    assert gain >= BOUND
    assert mse >= BOUND
    assert planted < BOUND
    assert np.mean(both) < np.mean(alone)  # equal parts of a weak and a strong one would be far above it


def test_few_rows_are_not_held_out() -> None:
    rng = np.random.default_rng(0)
    y = rng.normal(size=20_000)
    z = y + rng.choice([-20.0, 20.0], 20_000)
    found = held_out(draws(20_000), lambda _train, held: (0.5 * y[held], 0.0))
    assert found is not None
    held, predictions, constant = found
    known = Identified(0.0, z[held], None, 0.0, "one bit")
    gain = estimate(predictions, constant, known, held).mse_below_constant
    assert gain.low < 0.75 < gain.high  # E[y²] − E[(y/2)²]
    assert held_out(draws(10), lambda _train, held: (y[held], 0.0)) is None
