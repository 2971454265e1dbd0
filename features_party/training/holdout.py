"""Exact functions of the outputs of channels for the labels and their squares.

With them, errors can be estimated from privatized labels (`training.estimate`). Costs no ε. g with E[g(z) | y] = y
exists for unbiased channels. h with E[h(z) | y] = y² exists if M h = y² has a solution for the channel's matrix M: for
k-ary randomized response, noise without clipping (z² less its variance), clipped noise with a memoryless tail (the same
but for the two ends), and invertible channels. It does not exist for one bit: two outputs make every h affine in y. It
does for two bits of one example: their product has the expectation y².
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from features_party.training.estimate import ErrorEstimate, Identified, estimate
from features_party.training.example_groups import ExampleGroups
from features_party.training.intervals import NO_FOLDS, NORMAL_95, Folds
from features_party.training.probabilities import judge
from label_dp.channels.base import Channel, N
from label_dp.channels.correcting import Solver, bias_and_noise
from label_dp.channels.rr import RRChannel
from label_dp.errors import InvalidMechanism

FloatArray = npt.NDArray[np.float64]

SOLVABLE_CELLS = 1 << 20
SOLVED_LABELS = 1 << 10
FEWEST_LABELS = 64
EXACT = 1e-9  # of the squared half-range: largest |M h − y²| that counts as equal
BOUNDED = 2e-3  # of the squared half-range: up to here the interval is widened by it
WEIGHTS = (10.0, 100.0, 1_000.0, 10_000.0)  # of bias against noise
HIDES = 0.33  # of the labels' standard deviation: a larger bias can hide the whole gain of a good model
SEVERAL = 1e-6  # of an example's largest weight: smaller ones are ignored
AMPLIFIED = 1e6  # of the squared half-range: an h of larger values carries no information on y²


def identify(channel: Channel, prior: FloatArray | None = None, rows: int = 1) -> Identified:
    """Compute the label functions of each output, float64[m]: exact, or with a bias below the sampling error of `rows`
    labels under the `prior` float64[k].

    Raises InvalidMechanism for a channel that allows neither.
    """
    centre = float(channel.labels[0] + channel.labels[-1]) / 2
    if not channel.unbiased and prior is not None:
        return _nearly(channel, prior, rows, centre)
    if not channel.unbiased:
        raise _hides(channel)
    values = np.asarray(channel.debiased_outputs(), np.float64)
    second, slack, why = _second(channel, (channel.labels - centre) ** 2)
    return Identified(centre, values - centre, second, slack, why, _noise(channel, values - centre))


def _nearly(channel: Channel, prior: FloatArray, rows: int, centre: float) -> Identified:
    """Return the values of the shortest interval: the more bias weighs, the smaller it is and the larger the noise."""
    solver, candidates = Solver.of(channel, prior, WEIGHTS[-1]), []
    spread = math.sqrt(float(prior @ (channel.labels - solver.mean) ** 2))
    for weight in WEIGHTS:
        values = solver.regularised(weight)
        bias, noise = bias_and_noise(channel, values)
        size, variance = math.sqrt(float(prior @ (bias * bias))), float(prior @ noise)
        if size <= HIDES * spread:
            candidates.append((size + NORMAL_95 * math.sqrt(variance / max(rows, 1)), size, variance, values))
    if not candidates:
        raise _hides(channel)
    _, size, variance, values = min(candidates, key=lambda one: one[0])
    why = (
        "not identified: under the message's prior the corrected labels keep a bias of "
        f"{size:.3g} (root mean square), so only the difference from the constant prediction is estimated, in an "
        "interval that is wider by as much as such a bias can hide"
    )
    return Identified(centre, values - centre, None, 0.0, why, variance, size)


def _hides(channel: Channel) -> InvalidMechanism:
    return InvalidMechanism(
        "An error estimate needs E[corrected label | label] = label, or nearly so, which this message's channel "
        f"({channel.kind}, {channel.m} outputs for {channel.k} labels) does not have: bins and clipping hide how "
        "labels differ, and a worse model could look better. Ask for a hold-out message with the mechanism "
        "'unbiased', 'rr', or 'one-bit' on the whole domain."
    )


def _second(channel: Channel, target: FloatArray) -> tuple[FloatArray | None, float, str]:
    """Return (h float64[m], the largest |M h − target|) for target float64[k] = squares of centred labels; or None and
    a reason."""
    scale = max(float(target.max()), 1e-300)
    if isinstance(channel, RRChannel) and channel.m == channel.k > 1:
        gap, rest = (channel.A - channel.B) / N, channel.B / N
        return (target - rest * float(target.sum())) / gap, 0.0, "identified"
    best: tuple[float, FloatArray] | None = None
    for attempt in (_solved, _quadratic):
        solution = attempt(channel, target / scale)
        if solution is None:
            continue
        error = float(np.max(np.abs(channel.moments(solution)[0] - target / scale)))
        if float(np.max(np.abs(solution))) <= AMPLIFIED and (best is None or error < best[0]):
            best = (error, solution)
        if best is not None and best[0] <= EXACT:
            return best[1] * scale, 0.0, "identified"
    if best is not None and best[0] <= BOUNDED:
        why = "identified but for a bias that is bounded by the channel, by which the interval is wider"
        return best[1] * scale, best[0] * scale, why
    if channel.m > SOLVABLE_CELLS // FEWEST_LABELS:
        return None, 0.0, "not estimated: the channel is too large to be solved for the squares of the labels"
    why = (
        "not identified: this channel's outputs determine the mean of the labels, not that of their squares, so "
        "only the difference from the constant prediction is estimated"
    )
    return None, 0.0, why


def _quadratic(channel: Channel, target: FloatArray) -> FloatArray | None:
    """Fit the best a + b·z + c·z² with separate values at the two ends.

    This suits additive noise and does not need its k × m cells.
    """
    if channel.m < 3:
        return None
    z = channel.outputs - (channel.outputs[0] + channel.outputs[-1]) / 2
    z = z / max(float(np.max(np.abs(z))), 1e-300)
    functions = np.zeros((5, channel.m))
    functions[0], functions[1], functions[2], functions[3, 0], functions[4, -1] = 1.0, z, z * z, 1.0, 1.0
    images = np.stack([channel.moments(function)[0] for function in functions], axis=1)
    size = np.maximum(np.abs(images).max(axis=0), 1e-300)  # an end that only tails reach counts as much as the rest
    coefficients = np.linalg.lstsq(images / size, target, rcond=1e-13)[0] / size
    return np.asarray(coefficients @ functions, np.float64)


def _solved(channel: Channel, target: FloatArray) -> FloatArray | None:
    """Solve for the least-squares h; of several, the one of least second moment under uniform labels."""
    count = min(channel.k, SOLVABLE_CELLS // channel.m)
    if count < min(FEWEST_LABELS, channel.k):
        return None
    # a subset of very many labels; the fit on all of them is checked afterwards
    sample = np.unique(np.linspace(0, channel.k - 1, min(count, SOLVED_LABELS)).astype(np.int64))
    if len(sample) == channel.k:
        rows = channel.rows(0, channel.k)
    else:
        rows = np.concatenate([channel.rows(int(at), int(at) + 1) for at in sample])
    target = target[sample]
    root = np.sqrt(np.maximum(rows.mean(axis=0), 1e-300))
    return np.asarray(np.linalg.lstsq(rows / root, target, rcond=1e-12)[0] / root, np.float64)


def told(
    channels: Sequence[Channel],
    message: npt.NDArray[np.integer],
    bins: npt.NDArray[np.integer],
    rows: ExampleGroups | None = None,
    priors: Sequence[FloatArray | None] = (),
) -> Identified:
    """Evaluate the label functions for N rows, each of a message (number into `channels`) and an output.

    With `rows` the outputs of each of n examples are combined. `priors` are those of the messages, if any. Raises as
    `identify`.
    """
    functions, counts = priors or [None] * len(channels), np.bincount(message, minlength=len(channels))
    each = [identify(*one) for one in zip(channels, functions, counts.tolist(), strict=True)]
    by_message = [k.about(each[0].centre) for k in each]  # messages may have ranges of their own in one domain
    first, second = np.empty(len(bins)), np.zeros(len(bins))
    for number, k in enumerate(by_message):
        here = message == number
        first[here] = k.first[bins[here]]
        if k.second is not None:
            second[here] = k.second[bins[here]]
    whole = all(k.second is not None for k in by_message)
    slack = max(k.slack for k in by_message)
    why = next((k.why for k in by_message if k.second is None), max((k.why for k in by_message), key=len))
    noise = np.array([k.noise for k in by_message])[message]
    bias = max(k.bias for k in by_message)
    if rows is None:
        return Identified(by_message[0].centre, first, second if whole else None, slack, why, float(noise.mean()), bias)
    squares = [_noise(channel, k.second) for channel, k in zip(channels, by_message, strict=True)]
    joint, noise_left = rows.labels(first, noise)
    product = _products(rows, first, rows.shares(noise))
    spread = np.array(squares)[message]
    own = rows.sums(np.isfinite(spread).astype(np.float64)) > 0.0
    second = np.where(own, rows.sums(rows.shares(spread) * second), product)
    whole = bool(np.all(np.isfinite(second)))
    if whole and not np.all(own):
        why = "identified, where no channel does it by the product of two outputs of one example"
    elif whole:
        why = max((k.why for k in by_message if k.second is not None), key=len)
    return Identified(
        by_message[0].centre, joint, second if whole else None, slack, why, float(noise_left.mean()), bias
    )


def _noise(channel: Channel, values: FloatArray | None) -> float:
    """Return the variance that the channel gives to values float64[m] of its outputs, averaged over labels; inf for
    None."""
    return np.inf if values is None else float(channel.moments(values)[1].mean())


def _products(rows: ExampleGroups, first: FloatArray, shares: FloatArray) -> FloatArray:
    """Compute Σ_{i≠j} a_i·a_j·g_i·g_j / Σ_{i≠j} a_i·a_j, float64[n], of g = `first` and a = `shares`, both float64[N].

    Outputs of one example are independent given its label, so this has the expectation E[g | y]² for any channels; NaN
    for an example with one output.
    """
    pairs = 1.0 - rows.sums(shares * shares)
    several = pairs > SEVERAL
    crossed = rows.sums(shares * first) ** 2 - rows.sums((shares * first) ** 2)
    return np.where(several, crossed / np.where(several, pairs, 1.0), np.nan)


def estimate_on_rows(
    predictions: FloatArray,
    constants: float | FloatArray,
    channels: Sequence[Channel],
    message: npt.NDArray[np.integer],
    bins: npt.NDArray[np.integer],
    examples: npt.NDArray[np.integer],
    folds: Folds = NO_FOLDS,
    priors: Sequence[FloatArray | None] = (),
) -> ErrorEstimate:
    """Estimate the error on N rows: predictions float64[N], the constant (or float64[N]) they are compared with, and
    the message (number into `channels`) and output of each.

    Rows of one example have one number in `examples` integer[N] and one prediction, and count as one. `folds` describes
    how the predictions are out of fold; `priors` as in `told`. Labels of two values have their metrics of probabilities
    too. Raises InvalidMechanism as `identify`.
    """
    rows = ExampleGroups.of(examples)
    identified = told(channels, message, bins, rows, priors)
    if rows is not None:
        constants = np.broadcast_to(np.asarray(constants, np.float64), predictions.shape)[rows.first]
        predictions, examples = predictions[rows.first], examples[rows.first]
    error_estimate = estimate(predictions, constants, identified, examples, folds)
    if any(channel.k != 2 or channel.domain.ends != channels[0].domain.ends for channel in channels):
        return error_estimate
    labels, ends = identified.first + identified.centre, channels[0].domain.ends
    return replace(error_estimate, probabilities=judge(predictions, constants, labels, examples, ends, folds))
