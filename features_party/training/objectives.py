"""Gradients of the losses, written for corrected labels: they may be negative and are mostly noise.

The squared and the Poisson loss are affine in y up to a term without the prediction, so the gradient at a corrected
label is an unbiased estimate of the gradient at the true one; it must not be clipped. What is bounded instead is the
score f (the log of the prediction) and, from below, the Hessian: without both a Poisson learner diverges.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
Gradients = Callable[[FloatArray, FloatArray], tuple[FloatArray, FloatArray]]

HESSIAN_FLOOR = 0.1  # of the mean prediction
LARGEST_STEP = 0.7  # of f in one leaf: no tree may double a prediction


@dataclass(frozen=True)
class PoissonScore:
    """The log link: prediction = e^f with f between `low` and `high`, float64. `scale` is the mean prediction."""

    low: float
    high: float
    scale: float

    @classmethod
    def around(cls, mean: float, smallest: float, largest: float) -> PoissonScore:
        """Bounds for labels between `smallest` and `largest` of mean `mean`; the prediction is kept positive."""
        top = max(largest, mean, 1e-6)
        scale = min(max(mean, 1e-3 * top), top)
        low = max(smallest, 1e-3 * scale)
        return cls(float(np.log(low)), float(np.log(max(top, low))), float(scale))

    def base(self) -> float:
        return float(np.clip(np.log(self.scale), self.low, self.high))

    def predictions(self, score: npt.NDArray[np.floating]) -> FloatArray:
        return np.asarray(np.exp(np.clip(score.astype(np.float64), self.low, self.high)), np.float64)

    def gradients(self, score: FloatArray, labels: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(μ − z, max(μ, floor)) in units of the mean prediction, so that a Hessian of 1 is one ordinary row."""
        mu = self.predictions(score)
        return (mu - labels) / self.scale, np.maximum(mu / self.scale, HESSIAN_FLOOR)


def squared(score: FloatArray, labels: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(f − z, 1): any real z."""
    difference = score - labels
    return difference, np.ones_like(difference)


def smooth_absolute(width: float) -> Gradients:
    """|f − z| rounded off within about `width` of its corner (pseudo-Huber), with a majorising Hessian."""

    def gradients(score: FloatArray, labels: FloatArray) -> tuple[FloatArray, FloatArray]:
        ratio = (score - labels) / width
        root = np.sqrt(1.0 + ratio * ratio)
        return width * ratio / root, 1.0 / root

    return gradients
