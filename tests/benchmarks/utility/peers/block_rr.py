"""BlockRR: Liu & Ding, "BlockRR: A Unified Framework of RR-type Algorithms for Label Differential Privacy", 2026
(arXiv 2602.03277), for classes.

The classes whose prior is at least e^(−1/σ) of the largest one are the frequent ones, S₁; the others are S₂. A frequent
label is sent as itself with e^ε·β, as another frequent one with β, as a rare one with γ. A rare label is sent as itself
with e^ε·γ, as another rare one with γ, as each of the ℓ most frequent ones with 1/K and as each other frequent one with
β. β and γ are what makes both kinds of rows sum to 1. σ and ℓ are parameters; without rare labels it is randomized
response.

The prior is counted on a part of the examples, with Laplace noise at the whole ε, and the labels of the others are
randomized at the whole ε: each label is used once (parallel composition). Those of the part are not trained on.

Restated from the abstract and from the authors' public code (yuyin132/BlockRR); the article itself was not at hand. The
code gives the prior an ε of its own, 1 unless said otherwise; here it is that of the labels, so that no label has more.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

SIGMAS = (0.3, 1.0, 3.0)  # the code has 1
PARTS = (0.01, 0.1)  # of the examples, for the prior; the code has 0.01


def counted(labels: IntArray, k: int, epsilon: float, rng: np.random.Generator) -> FloatArray:
    """The prior float64[k] of some labels, ε-DP: replacing one moves two counts by 1. Uniform if no count is left."""
    noisy = np.maximum(np.bincount(labels, minlength=k) + rng.laplace(0.0, 2.0 / epsilon, k), 0.0)
    return np.asarray(noisy / noisy.sum() if noisy.sum() > 0.0 else np.full(k, 1.0 / k), np.float64)


def frequent(prior: FloatArray, sigma: float) -> npt.NDArray[np.bool_]:
    """bool[k]: where no other label has, weighted with e^(−1/σ), a larger prior."""
    return np.asarray(prior >= np.exp(-1.0 / sigma) * prior.max(), np.bool_)


def favoured(prior: FloatArray, first: npt.NDArray[np.bool_], most: int) -> npt.NDArray[np.bool_]:
    """bool[k]: the `most` likeliest of the frequent labels, all of them where there are fewer."""
    order = np.argsort(np.where(first, -prior, np.inf), kind="stable")[: min(most, int(first.sum()))]
    chosen = np.zeros(len(prior), np.bool_)
    chosen[order] = True
    return chosen


def channel(first: npt.NDArray[np.bool_], chosen: npt.NDArray[np.bool_], epsilon: float) -> FloatArray:
    """float64[k, k]: P[output | label] for the frequent labels `first` and the ℓ `chosen` among them."""
    k, a, ell, odds = len(first), int(first.sum()), int(chosen.sum()), float(np.exp(epsilon))
    b = k - a
    # (e^ε + a − 1)·β + b·γ = 1 and ℓ/K + (a − ℓ)·β + (e^ε + b − 1)·γ = 1
    beta, gamma = np.linalg.solve([[odds + a - 1.0, b], [a - ell, odds + b - 1.0]], [1.0, 1.0 - ell / k])
    of_rare = np.where(chosen, 1.0 / k, np.where(first, beta, gamma))
    rows = np.where(first[:, None], np.where(first, beta, gamma)[None, :], of_rare[None, :])
    return np.asarray(rows * np.where(np.eye(k, dtype=bool), odds, 1.0), np.float64)


def drawn(rows: FloatArray, labels: IntArray, rng: np.random.Generator) -> IntArray:
    """int64[n]: one output of the channel float64[k, k] for each label."""
    below = np.cumsum(rows, axis=1)
    below /= below[:, -1:]
    out = np.empty(len(labels), np.int64)
    for label in np.unique(labels):
        own = labels == label
        out[own] = np.searchsorted(below[label], rng.random(int(own.sum())), side="right")
    return out
