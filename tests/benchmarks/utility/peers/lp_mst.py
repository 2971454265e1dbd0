"""LP-MST: multi-stage training of Ghazi, Golowich, Kumar, Manurangsi & Zhang, "Deep Learning with Label Differential
Privacy", 2021 (Algorithms 1 to 3), for classes.

The examples are cut into T parts. Each stage randomizes the labels of its part by RRWithPrior, with the probabilities
that the last stage's model predicts for each example as that example's prior (uniform at first, which is randomized
response), and trains on all labels randomized so far. A label is randomized once, at the whole ε. It needs the features
of an example at whoever holds its label, or a round of messages for each stage; our service sends one message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
# training rows, their labels → probabilities float64[n, k] of every training row, and float64[m, k] of the test
Trainer = Callable[[IntArray, IntArray], tuple[FloatArray, FloatArray]]


def kept(priors: FloatArray, epsilon: float) -> IntArray:
    """int64[n]: for each prior float64[n, k] the number d of likeliest labels on which randomized response is right
    most often, e^ε/(e^ε + d − 1) times their mass (Algorithm 2)."""
    falling = -np.sort(-priors, axis=1)
    d = np.arange(1, priors.shape[1] + 1)
    right = np.cumsum(falling, axis=1) * (np.exp(epsilon) / (np.exp(epsilon) + d - 1.0))
    # among equals, but for rounding, the fewest labels
    return np.asarray(np.argmax(right >= right.max(axis=1, keepdims=True) * (1.0 - 1e-12), axis=1) + 1, np.int64)


def channels(priors: FloatArray, epsilon: float) -> FloatArray:
    """float64[n, k, k]: P[output | label] of RRWithPrior for each prior float64[n, k] (Algorithm 1): randomized
    response on the d likeliest labels, and any of these alike for another label."""
    k = priors.shape[1]
    d = kept(priors, epsilon)[:, None]
    rank = np.argsort(np.argsort(-priors, axis=1, kind="stable"), axis=1, kind="stable")
    inside = rank < d
    odds = np.exp(epsilon)
    response = np.where(np.eye(k, dtype=bool)[None], odds, 1.0) / (odds + d[:, :, None] - 1.0)
    rows = np.where(inside[:, :, None], response, 1.0 / d[:, :, None])
    return np.where(inside[:, None, :], rows, 0.0)


def randomized(labels: IntArray, priors: FloatArray, epsilon: float, rng: np.random.Generator) -> IntArray:
    """int64[n]: one output of its own channel for each label."""
    out = np.empty(len(labels), np.int64)
    step = max(1, (1 << 22) // priors.shape[1] ** 2)
    for start in range(0, len(labels), step):
        some = slice(start, start + step)
        rows = channels(priors[some], epsilon)[np.arange(len(labels[some])), labels[some]]
        below = np.cumsum(rows, axis=1)
        below /= below[:, -1:]
        out[some] = (below <= rng.random(len(rows))[:, None]).sum(axis=1)
    return out


def multi_stage(
    labels: IntArray, k: int, epsilon: float, stages: int, train: Trainer, rng: np.random.Generator
) -> Iterator[FloatArray]:
    """The probabilities float64[m, k] that the model of each stage predicts for the test; the last one counts."""
    n = len(labels)
    part = rng.permutation(n) % stages
    noisy, priors = np.zeros(n, np.int64), np.full((n, k), 1.0 / k)
    for stage in range(stages):
        now = np.flatnonzero(part == stage)
        noisy[now] = randomized(labels[now], priors[now], epsilon, rng)
        rows = np.flatnonzero(part <= stage)
        priors, test = train(rows, noisy[rows])
        yield test
