"""Calibration of predicted probabilities, from labels or from g with E[g | label] = label in {0, 1}. Costs no ε.

The slope is Cox's (1958): b of the logistic model logit P(y = 1) = a + b·logit(f). It is 1 if predictions are
calibrated and below 1 if they are too extreme. Its likelihood is linear in y, so its score equations with g in place of
y have the same expectation. The standard error is a sandwich estimate with rows clustered by example.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from features_party.training.intervals import FloatArray, Groups, Interval, around, total_error

IntArray = npt.NDArray[np.int64]

LEAST = 1e-6  # before a logarithm, predictions are cut to at least this distance from 0 and 1
SAME = 1e-9  # logits that spread no more than this count as equal
ROUNDS, HALVINGS, DECREMENT = 50, 30, 1e-14  # the decrement: gain of another step, far below the noise
SURE = 1e-10  # smallest mean p(1 − p): below it the fit separates the labels and no finite slope is best
FARTHEST = 1e3  # in standard deviations of the logits: a larger coefficient is diverging


def equal_groups(predictions: FloatArray, groups: int) -> IntArray:
    """Number at most `groups` groups of about equal size by rising prediction; equal predictions share a group:
    int64[n]."""
    cuts = np.sort(predictions)[len(predictions) * np.arange(1, groups) // groups]
    return np.unique(np.searchsorted(np.unique(cuts), predictions, side="right"), return_inverse=True)[1]


def logits(probabilities: FloatArray) -> FloatArray:
    """Return log(f) − log(1 − f) of f cut into [10⁻⁶, 1 − 10⁻⁶]."""
    f = np.clip(probabilities, LEAST, 1.0 - LEAST)
    return np.asarray(np.log(f) - np.log1p(-f), np.float64)


def slope(predictions: FloatArray, labels: FloatArray, group: Groups, stretch: float = 1.0) -> Interval | None:
    """Estimate the calibration slope from N rows; None if all predictions are equal or no finite slope fits the noisy
    labels."""
    x = logits(predictions)
    centre, scale = float(x.mean()), float(x.std())
    if scale <= SAME:
        return None
    design = np.stack([np.ones_like(x), (x - centre) / scale])
    at = _fitted(design, labels, np.array([centre, scale]))
    if at is None:
        return None
    p = _logistic(at @ design)
    bread = np.linalg.inv((design * (p * (1.0 - p))) @ design.T)
    # contribution of each row's score to the slope's coefficient
    influence = bread[1] @ (design * (labels - p))
    return around(float(at[1]) / scale, stretch * total_error(influence, group) / scale)


def _fitted(design: FloatArray, labels: FloatArray, start: FloatArray) -> FloatArray | None:
    """Minimise the mean of log(1 + e^η) − g·η, convex for every g, by Newton's method with halved steps. Returns None
    if it does not converge."""
    at, rows = start, design.shape[1]

    def cost(b: FloatArray) -> float:
        eta = b @ design
        return float(np.mean(np.logaddexp(0.0, eta) - labels * eta))

    now = cost(at)
    for _ in range(ROUNDS):
        p = _logistic(at @ design)
        gradient = design @ (labels - p) / rows
        try:
            step = np.linalg.solve((design * (p * (1.0 - p))) @ design.T / rows, gradient)
        except np.linalg.LinAlgError:
            return None
        if abs(float(gradient @ step)) <= DECREMENT:
            return at if float(np.mean(p * (1.0 - p))) > SURE else None
        for _ in range(HALVINGS):
            then = cost(at + step)
            if then <= now:
                break
            step = step / 2.0
        at, now = at + step, then
        if not np.max(np.abs(at)) <= FARTHEST:
            return None
    return None


def _logistic(eta: FloatArray) -> FloatArray:
    return np.asarray(0.5 * (1.0 + np.tanh(eta / 2.0)), np.float64)
