"""Normal 95 % intervals of means, where rows of one example are taken together."""

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
    """Predictions are by models of the other of `count` folds, for the rows of the first `used` ones (None: of all);
    without folds, by one model that is judged itself."""

    count: int = 0
    used: int | None = None

    @property
    def stretch(self) -> float:
        """By how much errors vary more than their rows show (Nadeau & Bengio 2003); 1 without folds."""
        used = self.count if self.used is None else self.used
        return math.sqrt(1.0 + used / (self.count - 1)) if self.count > 1 else 1.0

    def whole(self, rows: int) -> int:
        """How many rows all folds have where those that are judged have `rows`."""
        return rows if self.used is None else round(rows * self.count / self.used)


NO_FOLDS = Folds()


@dataclass(frozen=True)
class Interval:
    """An estimate with its standard error and 95 % interval (normal, from the rows' own spread)."""

    estimate: float
    standard_error: float
    low: float
    high: float

    def within(self, low: float, high: float) -> Interval:
        """Cut at the range of the quantity; the estimate stays, so that it is unbiased even where it is outside."""
        return Interval(
            self.estimate, self.standard_error, min(max(self.low, low), high), max(min(self.high, high), low)
        )

    def reaching(self, by: float) -> Interval:
        """Further up by `by`, or down where that is negative."""
        return Interval(self.estimate, self.standard_error, self.low + min(by, 0.0), self.high + max(by, 0.0))

    @property
    def of_loss(self) -> Interval:
        """Cut at 0, below which no squared error is."""
        return self.within(0.0, math.inf)


def around(estimate: float, error: float, slack: float = 0.0) -> Interval:
    """The normal interval of a standard error, wider by `slack` on either side."""
    half = NORMAL_95 * error + slack
    return Interval(estimate, error, estimate - half, estimate + half)


def interval(values: FloatArray, group: Groups, stretch: float = 1.0, slack: float = 0.0) -> Interval:
    """Of the mean of values float64[N], independent between groups; its standard error times `stretch`, and wider by
    `slack` on either side."""
    mean = float(values.mean())
    return around(mean, stretch * total_error(values - mean, group) / len(values), slack)


def total_error(values: FloatArray, group: Groups) -> float:
    """The standard error of the sum of values float64[N] around zero, independent between groups; inf for one group."""
    sums = np.bincount(group, weights=values)
    groups = len(sums)
    return math.sqrt(float(np.square(sums).sum()) * groups / (groups - 1)) if groups > 1 else math.inf


def rate(labels: FloatArray, group: Groups, stretch: float = 1.0) -> Interval:
    """Of the mean of labels float64[N] that are 0 or 1, or estimate such; the interval is of the rows and two ones and
    two zeros more, so that a handful of equal labels does not claim to be certain."""
    more = np.concatenate([labels, ADDED])
    found = interval(more, np.concatenate([group, group.max() + 1 + np.arange(len(ADDED))]), stretch)
    return Interval(float(labels.mean()), found.standard_error, found.low, found.high).within(0.0, 1.0)
