"""The error of a model, estimated from privatized labels that it was not trained on. Costs no ε.

For one example with true label y and prediction f, (f − y)² = f² − 2f·y + y². Functions g, h of the output z with
E[g(z) | y] = y and E[h(z) | y] = y² for every y of the domain turn it into f² − 2f·g(z) + h(z), whose expectation is
exactly the error, whatever the labels' distribution. g exists for unbiased channels; h where the channel's matrix M
solves M h = y², as k-ary randomized response and invertible channels do. One bit does not: its outputs tell two
numbers apart, and every h is affine in y. There only the gain over a constant prediction c is identified,
(c − y)² − (f − y)² = c² − f² − 2(c − f)·y, which needs no h.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from shared.channel import Channel, N, RRChannel
from shared.errors import InvalidMechanism

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

NORMAL_95 = 1.959964
SOLVABLE_CELLS = 1 << 22
EXACT = 1e-9  # of the squared half-range: how far M h may be from y²


@dataclass(frozen=True)
class Identified:
    """Of one channel: `first` float64[m] with E = y − centre; `second` float64[m] with E = (y − centre)², or None and
    why not."""

    centre: float
    first: FloatArray
    second: FloatArray | None
    why: str


@dataclass(frozen=True)
class Interval:
    """An estimate with its standard error and 95 % interval (normal, from the rows' own spread)."""

    estimate: float
    standard_error: float
    low: float
    high: float

    def as_json(self) -> dict[str, float]:
        return asdict(self)


@dataclass(frozen=True)
class HoldOut:
    """Squared errors over the true labels; `mse`, `constant_mse` are None where only their difference is identified."""

    rows: int
    mse: Interval | None
    constant_mse: Interval | None
    mse_below_constant: Interval
    why: str

    def as_json(self) -> dict[str, object]:
        return {
            "rows": self.rows,
            "mse": self.mse.as_json() if self.mse is not None else None,
            "constant_mse": self.constant_mse.as_json() if self.constant_mse is not None else None,
            "mse_below_constant": self.mse_below_constant.as_json(),
            "mse_why": self.why,
        }


def identify(channel: Channel) -> Identified:
    """What the channel's outputs say of y and y². Raises InvalidMechanism for a channel that identifies neither."""
    if not channel.unbiased:
        raise InvalidMechanism(
            "An error estimate needs E[corrected label | label] = label on the whole domain, which this message's "
            f"channel ({channel.kind}, {channel.m} outputs for {channel.k} labels) does not have: bins and clipping "
            "hide how labels differ, and a worse model could look better. Ask for a hold-out message with the "
            "mechanism 'unbiased', 'rr', or 'one-bit' on the whole domain."
        )
    centre = float(channel.labels[0] + channel.labels[-1]) / 2
    first = np.asarray(channel.debiased_outputs(), np.float64) - centre
    second, why = _second(channel, (channel.labels - centre) ** 2)
    return Identified(centre, first, second, why)


def _second(channel: Channel, target: FloatArray) -> tuple[FloatArray | None, str]:
    """h float64[m] with M h = target float64[k], or None."""
    scale = max(float(target.max()), 1e-300)
    if isinstance(channel, RRChannel) and channel.m == channel.k > 1:
        gap, rest = (channel.A - channel.B) / N, channel.B / N
        return (target - rest * float(target.sum())) / gap, "identified"
    if channel.k * channel.m > SOLVABLE_CELLS:
        return None, "not estimated: the channel is too large to be solved for the squares of the labels"
    rows = channel.rows(0, channel.k)
    found = np.asarray(np.linalg.lstsq(rows, target / scale, rcond=None)[0], np.float64)
    error = float(np.max(np.abs(rows @ found - target / scale)))
    if error > EXACT or float(np.max(np.abs(found))) > 1e6:
        return None, (
            "not identified: this channel's outputs determine the mean of the labels, not that of their squares, so "
            "only the difference from the constant prediction is estimated"
        )
    return found * scale, "identified"


def estimate(
    predictions: FloatArray,
    constant: float,
    channels: Sequence[Channel],
    message: npt.NDArray[np.integer],
    bins: npt.NDArray[np.integer],
    examples: IntArray,
) -> HoldOut:
    """For N rows: predictions float64[N], the number of the message (into `channels`) and the output of each.

    Rows of one example (`examples` int64[N], the same number) share its label, so they are not independent: the
    standard errors take them together. Raises InvalidMechanism as `identify`.
    """
    known = [identify(channel) for channel in channels]
    n = len(predictions)
    g, h = np.empty(n), np.empty(n)
    whole = all(k.second is not None for k in known)
    for number, k in enumerate(known):
        here = message == number
        g[here] = k.first[bins[here]]
        if k.second is not None:
            h[here] = k.second[bins[here]]
    centre = known[0].centre  # the messages share one domain
    f, c = predictions - centre, constant - centre
    gain = _interval(c * c - f * f - 2.0 * (c - f) * g, examples)
    why = next((k.why for k in known if k.second is None), "identified")
    if not whole:
        return HoldOut(n, None, None, gain, why)
    mse = _interval(f * f - 2.0 * f * g + h, examples)
    return HoldOut(n, mse, _interval(c * c - 2.0 * c * g + h, examples), gain, why)


def _interval(values: FloatArray, examples: IntArray) -> Interval:
    mean, n = float(values.mean()), len(values)
    _, group = np.unique(examples, return_inverse=True)
    sums = np.bincount(group, weights=values - mean)
    groups = len(sums)
    variance = float(sums @ sums) / n**2 * (groups / (groups - 1) if groups > 1 else math.inf)
    error = math.sqrt(variance) if math.isfinite(variance) else math.inf
    return Interval(mean, error, mean - NORMAL_95 * error, mean + NORMAL_95 * error)
