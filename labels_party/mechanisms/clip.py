"""The clipping of one bit: the two values of the domain between which its expected model error is least.

The two outputs have calibrated values (`label_dp.channels.correcting`), so the error of every pair of ends is in closed
form in sums of the prior up to either end, and all pairs of a grid are tried at once, coarse to fine.
"""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import numpy.typing as npt

from label_dp.channels.correcting import best_scale
from label_dp.channels.model_error import FLOOR, PARAMETERS, FeatureSignal
from label_dp.domain import Domain
from label_dp.privacy import Epsilon

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

GRID = 48  # ends tried at once; 48² pairs take a few milliseconds
LEAST = 1e-12  # of the labels' variance: a smaller covariance carries no information


def best_clip(domain: Domain, prior: FloatArray, epsilon: Epsilon, n: int) -> tuple[Decimal, Decimal]:
    """Find exact ends (values of the domain, low < high) of the best clipping for `n` labels that follow `prior`
    float64[k].

    Returns the domain's ends if the prior has one label only. Needs k ≥ 2.
    """
    low, high = _search(domain.values, prior, epsilon, n)
    return domain.value(low), domain.value(high)


def _search(values: FloatArray, prior: FloatArray, epsilon: Epsilon, n: int) -> tuple[int, int]:
    k = values.size
    error = _PairError(values, prior, epsilon, n)
    if error.variance <= 0.0:
        return 0, k - 1
    # labels that are mostly small have their best ends among the first
    first = np.concatenate([np.linspace(0, k - 1, min(k, GRID)), np.geomspace(1, k - 1, GRID // 2)])
    lows = highs = np.unique(first.round().astype(np.int64))
    while True:
        errors = error(lows[:, None], highs[None, :])
        i, j = np.unravel_index(int(np.argmin(errors)), errors.shape)
        low, high = int(lows[i]), int(highs[j])
        step = max(_gap(lows, int(i)), _gap(highs, int(j)))
        if not np.isfinite(errors[i, j]):
            return 0, k - 1
        if step <= 1:
            return low, high
        lows, highs = _around(low, step, k), _around(high, step, k)


def _gap(grid: IntArray, at: int) -> int:
    """Return the larger distance from a point of the grid to its neighbours."""
    return int(np.max(np.diff(grid[max(at - 1, 0) : at + 2]), initial=0))


def _around(at: int, step: int, k: int) -> IntArray:
    first, last = max(at - step, 0), min(at + step, k - 1)
    return np.unique(np.linspace(first, last, min(last - first + 1, GRID)).round().astype(np.int64))


class _PairError:
    """Expected model error of one bit clipped to a pair of ends, given as positions in the domain."""

    def __init__(self, values: FloatArray, prior: FloatArray, epsilon: Epsilon, n: int) -> None:
        self.y = values - float(prior @ values)  # centred, so that large labels lose no digits
        sums = np.stack([prior, prior * self.y, prior * self.y**2]).cumsum(axis=1)
        self.below = np.concatenate([np.zeros((3, 1)), sums], axis=1)  # sums over labels under a position
        self.variance = float(self.below[2, -1])
        self.told = FeatureSignal.of(values, prior)
        self.zero, self.apart = float(prior[0]), float(self.told.part[-1] - self.told.part[0])
        self.n = n
        self.stretch = 0.5 / np.tanh(float(epsilon.fraction) / 2.0)

    def __call__(self, low: IntArray, high: IntArray) -> FloatArray:
        """Compute float64 of the broadcast shape; infinite unless low is below high and the bit carries information."""
        a, b, v = self.y[low], self.y[high], self.variance
        total, under, over = self.below[:, -1], self.below[:, low], self.below[:, high]
        above, inside = total[:, None, None] - over, over - under
        mean = a * under[0] + inside[1] + b * above[0]
        square = a * a * under[0] + inside[2] + b * b * above[0]
        covariance = a * under[1] + inside[2] + b * above[1]
        informative = (b > a) & (covariance > LEAST * v)
        covariance = np.where(informative, covariance, 1.0)
        signal = np.maximum(square - mean * mean, 0.0)
        # E[clip(y)·h(y)] of the feature signal h, which has two values if zero, clipped to the lower end, is apart
        along = self.apart * self.zero * (mean - a) if self.told.zero_apart else covariance
        part = along * along / self.told.variance
        outer, elsewhere = covariance - along, np.maximum(signal - part, 0.0)
        scale = best_scale(self.told, along, part, outer, np.where(informative, elsewhere, 1.0))
        centre, half = (a + b) / 2.0, (b - a) * self.stretch
        noise = half * half - (square - 2.0 * centre * mean + centre * centre)
        share = signal / np.where(informative, signal + noise, 1.0)
        share = np.maximum(share, min(1.0, max(FLOOR, (2.0 / self.n) ** 0.5)))
        error = self.told.explained * (scale * along / self.told.variance - 1.0) ** 2 * self.told.variance
        error = error + self.told.rest * (scale * (scale * elsewhere - 2.0 * outer) + v - self.told.variance)
        error = error + scale * scale * noise * PARAMETERS * np.sqrt(share / self.n)
        return np.asarray(np.where(informative, error, np.inf), np.float64)
