"""Normal 95 % intervals of means, with rows clustered by example."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
Groups = npt.NDArray[np.integer]

NORMAL_95 = 1.959964
ADDED = np.array([1.0, 1.0, 0.0, 0.0])  # Agresti & Coull 1998: z²/2 ones and as many zeros


@dataclass(frozen=True)
class Folds:
    """Folds: predictions are by models of the other of `count` folds, for the rows of the first `used` ones (None: of
    all); without folds, by one model that is judged itself."""

    count: int = 0
    used: int | None = None

    @property
    def stretch(self) -> float:
        """Factor by which errors vary more than their rows show (Nadeau & Bengio 2003); 1 without folds."""
        used = self.count if self.used is None else self.used
        return math.sqrt(1.0 + used / (self.count - 1)) if self.count > 1 else 1.0

    def whole(self, rows: int) -> int:
        """Return the number of rows in all folds if `rows` of them are judged."""
        return rows if self.used is None else round(rows * self.count / self.used)


NO_FOLDS = Folds()


@dataclass(frozen=True)
class Interval:
    """Estimate with its standard error and 95 % interval (normal, from the rows' own spread)."""

    estimate: float
    standard_error: float
    low: float
    high: float

    def within(self, low: float, high: float) -> Interval:
        """Cut the interval at the range of the quantity; the estimate may stay outside, which keeps it unbiased."""
        return Interval(
            self.estimate, self.standard_error, min(max(self.low, low), high), max(min(self.high, high), low)
        )

    def reaching(self, by: float) -> Interval:
        """Extend the interval upwards by `by`, or downwards if that is negative."""
        return Interval(self.estimate, self.standard_error, self.low + min(by, 0.0), self.high + max(by, 0.0))

    @property
    def of_loss(self) -> Interval:
        """The interval cut at 0, the minimum of a squared error."""
        return self.within(0.0, math.inf)


def around(estimate: float, error: float, slack: float = 0.0) -> Interval:
    """Build the normal interval of a standard error, widened by `slack` on either side."""
    half = NORMAL_95 * error + slack
    return Interval(estimate, error, estimate - half, estimate + half)


def interval(values: FloatArray, group: Groups, stretch: float = 1.0, slack: float = 0.0) -> Interval:
    """Estimate the mean of values float64[N], independent between groups.

    The standard error is multiplied by `stretch`, and the interval widened by `slack` on either side.
    """
    mean = float(values.mean())
    return around(mean, stretch * total_error(values - mean, group) / len(values), slack)


def total_error(values: FloatArray, group: Groups) -> float:
    """Return the standard error of the sum of values float64[N] around zero, independent between groups; inf for one
    group."""
    sums = np.bincount(group, weights=values)
    groups = len(sums)
    return math.sqrt(float(np.square(sums).sum()) * groups / (groups - 1)) if groups > 1 else math.inf


def rate(labels: FloatArray, group: Groups, stretch: float = 1.0) -> Interval:
    """Estimate the mean of labels float64[N] that are 0 or 1, or estimates of such.

    The interval is of the rows and two ones and two zeros more, so that a handful of equal labels does not look
    certain.
    """
    more = np.concatenate([labels, ADDED])
    padded = interval(more, np.concatenate([group, group.max() + 1 + np.arange(len(ADDED))]), stretch)
    return Interval(float(labels.mean()), padded.standard_error, padded.low, padded.high).within(0.0, 1.0)
