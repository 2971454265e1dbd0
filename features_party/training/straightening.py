"""One slope for all classes and a shift for each, the most likely for scores by models of other rows.

The slope is shrunk by its own error (James & Stein 1961): without signal it is 0, and the class shares are predicted.
Newton's method with the empirical information (Berndt, Hall, Hall & Hausman 1974) and halved steps; the shifts include
the rows of each class that `ClassLikelihood.shares` adds, so that at slope 0 they are the log of these.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from features_party.training.class_likelihood import ClassLikelihood
from features_party.training.links import MOST_SLOPE
from features_party.training.softmax import Softmax, softmax

FloatArray = npt.NDArray[np.float64]

STEPS, HALVINGS, SETTLED = 30, 12, 1e-3  # the last: of a log likelihood, which is precise to about 1
RIDGE = 1e-9


def straightened(told: ClassLikelihood, score: FloatArray) -> Softmax:
    """Fit the softmax for scores float64[n, k], 0 if nothing was learned."""
    nothing = Softmax(0.0, tuple(told.start.tolist()))
    if not np.any(score):
        return nothing
    solution, error = _fitted(told, score, np.append(told.start, 1.0), slope=True)
    slope = float(solution[-1])
    if slope <= 0.0 or slope * slope <= error:
        return nothing
    solution[-1] = min(slope * (1.0 - error / (slope * slope)), MOST_SLOPE)
    solution, _ = _fitted(told, score, solution, slope=False)
    return Softmax(float(solution[-1]), tuple(solution[:-1].tolist()))


def _fitted(likelihood: ClassLikelihood, score: FloatArray, at: FloatArray, *, slope: bool) -> tuple[FloatArray, float]:
    """Return (k shifts and the slope, the variance of the slope's error); the slope stays fixed unless requested."""
    k, more = likelihood.k, likelihood.unseen
    free = k + slope
    gradient, cost = _looked(likelihood, score, at)
    for _ in range(STEPS):
        table = np.column_stack([gradient, np.einsum("ij,ij->i", gradient, score)])[:, :free]
        shares = softmax(at[None, :k])[0]
        slopes = table.sum(axis=0)
        slopes[:k] += more.sum() * shares - more
        whole = table.T @ table
        whole[:k, :k] += more.sum() * (np.diag(shares) - np.outer(shares, shares))
        whole += RIDGE * np.trace(whole) * np.eye(free)
        step = np.linalg.solve(whole, slopes)
        if float(slopes @ step) < SETTLED:
            break
        for _ in range(HALVINGS):
            there = at.copy()
            there[:free] -= step
            gradient, then = _looked(likelihood, score, there)
            if then <= cost:
                break
            step = step / 2.0
        else:
            break
        at, cost = there, then
    return at, float(np.linalg.inv(whole)[-1, -1])


def _looked(likelihood: ClassLikelihood, score: FloatArray, at: FloatArray) -> tuple[FloatArray, float]:
    """Return gradients on the scores float64[n, k], and minus the log likelihood with the added rows."""
    gradient, likely = likelihood.seen(softmax(at[-1] * score + at[:-1]))
    shares = softmax(at[None, :-1])[0]
    cost = -float(np.log(likely).sum()) - float(likelihood.unseen @ np.log(np.maximum(shares, 1e-300)))
    return np.asarray(gradient, np.float64), cost
