"""Empirical Bayes for additive models: every block of coefficients with a variance of its own, by marginal likelihood.

z = intercept + Σ_b T_b[level_b]·w_b + e, w_b ~ N(0, τ_b²), e ~ N(0, σ²/weight). T_b[levels, r] is the square root of
the block's prior covariance over its levels, so that neighbouring bins of a number share information. The products of
two blocks are sums over pairs of levels, never over a design matrix: the time is rows × blocks², for any number of
levels.

The fixed point is MacKay's (1992): τ² = |w|²/γ with γ the block's effective number of coefficients; a block without
support in the labels vanishes by itself, which protects the model at a small ε.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

SMALLEST_SHARE = 1e-7  # of the signal: below it a block is dead


@dataclass(frozen=True)
class DesignBlock:
    """Block: `places` int[n] of the rows, and `roots` float64[levels, r]."""

    places: npt.NDArray[np.integer]
    roots: FloatArray

    @property
    def levels(self) -> int:
        return len(self.roots)

    def counts(self, weights: FloatArray | None) -> FloatArray:
        return np.bincount(self.places, weights, minlength=self.levels).astype(np.float64)


@dataclass
class BlockStatistics:
    """Sufficient statistics of a regression on blocks, centred: `gram` float64[p, p], `along` float64[p], `square`."""

    gram: FloatArray
    along: FloatArray
    square: float
    middle: FloatArray
    mean: float
    rows: float
    total: float  # of the weights
    starts: npt.NDArray[np.int64]


def moments(
    blocks: list[DesignBlock], labels: FloatArray, weights: FloatArray | None, report: Callable[[float], None]
) -> BlockStatistics:
    """Compute the moments of labels float64[n] under row weights of any scale. `report` receives the share of finished
    blocks."""
    w = np.ones(len(labels)) if weights is None else weights
    total = float(w.sum())
    mean = float(w @ labels) / total
    centred = labels - mean
    starts = np.concatenate([[0], np.cumsum([block.roots.shape[1] for block in blocks])]).astype(np.int64)
    width = int(starts[-1])
    gram, along, middle = np.zeros((width, width)), np.zeros(width), np.zeros(width)
    for i, a in enumerate(blocks):
        at = slice(starts[i], starts[i + 1])
        counts, places = a.counts(weights), a.places.astype(np.int32)
        middle[at] = a.roots.T @ counts
        along[at] = a.roots.T @ np.bincount(a.places, w * centred, minlength=a.levels)
        gram[at, at] = a.roots.T @ (counts[:, None] * a.roots)
        for j in range(i):
            b = blocks[j]
            joint = np.bincount(places * b.levels + b.places, weights, minlength=a.levels * b.levels)
            part = a.roots.T @ joint.reshape(a.levels, b.levels) @ b.roots
            gram[at, starts[j] : starts[j + 1]] = part
            gram[starts[j] : starts[j + 1], at] = part.T
        report((i + 1) / len(blocks))
    gram -= np.outer(middle, middle) / total
    return BlockStatistics(gram, along, float(w @ (centred * centred)), middle, mean, float(len(labels)), total, starts)


@dataclass(frozen=True)
class Posterior:
    """Posterior: means of the coefficients float64[p], the variances τ_b² of the blocks, and the residual variance
    σ²."""

    coefficients: FloatArray
    block_variances: FloatArray
    residual_variance: float


def empirical_bayes(
    data: BlockStatistics,
    signal: float,
    residual: float,
    start: FloatArray,
    iterations: int,
    report: Callable[[float], None] = lambda _share: None,
) -> Posterior:
    """Iterate to the fixed point from block variances `start` and residual variance `residual`. `signal` bounds a
    block's variance."""
    from scipy.linalg import cho_factor, cho_solve, lapack

    sizes = np.diff(data.starts)
    variances, sigma2 = np.where(sizes > 0, start, 0.0), residual
    floor = SMALLEST_SHARE * signal
    coefficients = np.zeros(len(data.along))
    for step in range(iterations):
        scale = np.repeat(np.where(variances > floor, variances, 0.0), sizes)
        alive = np.flatnonzero(scale > 0.0)
        coefficients = np.zeros(len(data.along))
        if not alive.size:
            break
        root = np.sqrt(scale[alive])
        gram = data.gram[np.ix_(alive, alive)]
        system = root[:, None] * gram * (root / sigma2)
        system[np.diag_indices_from(system)] += 1.0
        factor = cho_factor(system, lower=True, overwrite_a=True, check_finite=False)
        means = root * cho_solve(factor, root * data.along[alive] / sigma2, check_finite=False)
        coefficients[alive] = means
        inverse, _ = lapack.dpotri(factor[0], lower=1)
        effective = np.zeros(len(data.along))  # 1 if the labels decide a coefficient, 0 if its prior does
        effective[alive] = 1.0 - np.diag(inverse)
        per_block = np.add.reduceat(np.append(effective, 0.0), data.starts[:-1]) * (sizes > 0)
        squares = np.add.reduceat(np.append(coefficients**2, 0.0), data.starts[:-1]) * (sizes > 0)
        updated = np.minimum(squares / np.maximum(per_block, 1e-9), 4.0 * signal)
        variances = np.where(variances > floor, updated, 0.0)
        residual_square = data.square - 2.0 * float(data.along[alive] @ means) + float(means @ gram @ means)
        sigma2 = max(residual_square / max(data.rows - float(effective.sum()), 1.0), 1e-9 * residual)
        report((step + 1) / iterations)
    return Posterior(coefficients, variances, sigma2)
