"""The mean of corrected labels, from two private sources: the labels themselves and the message's prior.

At a small ε the noise of the labels leaves their mean uncertain by σ/√n, which can exceed everything that a model could
learn; the private prior, estimated with an ε of its own, is often far more precise. Both are unbiased (the prior
nearly) and independent, so labels are shifted by a constant to the mean weighted by precision. Costs no ε.
"""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt

from label_dp.prior_cells import prior_cells

FloatArray = npt.NDArray[np.float64]


def recentred(
    labels: FloatArray, values: FloatArray, prior: FloatArray | None, epsilon_prior: float, cells: int
) -> FloatArray:
    """Shift the corrected labels float64[n] of one whole message.

    `values`, `prior` float64[k] are the domain and the prior, estimated on `cells` cells with `epsilon_prior` from the
    same n labels; without such a prior the labels stay unchanged.
    """
    n = len(labels)
    if n < 2:
        return labels
    by = move(n, float(labels.mean()), float(np.var(labels)), values, prior, epsilon_prior, cells)
    return labels + by if by else labels


def move(
    n: int,
    mean: float,
    variance: float,
    values: FloatArray,
    prior: FloatArray | None,
    epsilon_prior: float,
    cells: int,
) -> float:
    """Return the shift for n labels of this mean and variance."""
    if prior is None or epsilon_prior <= 0.0 or cells < 1 or n < 2:
        return 0.0
    prior_mean, noise = float(prior @ values), prior_mean_variance(values, prior, epsilon_prior, cells, n)
    sampled = variance / n
    return 0.0 if sampled <= 0.0 else sampled / (sampled + noise) * (prior_mean - mean)


def prior_mean_variance(values: FloatArray, prior: FloatArray, epsilon_prior: float, cells: int, n: int) -> float:
    """Bound, approximately, the variance of the prior's mean.

    A count of each cell has discrete Laplace noise of scale 2/ε_prior. The mean within a cell of several labels may be
    anywhere in it (variance of a uniform place, one for each cell, since no end of the domain with possibly many labels
    shares a cell with others: `label_dp.prior_cells`).
    """
    ends = prior_cells(len(values), cells, float(values[0]) == 0.0)
    parts = [(values[a:b], float(prior[a:b].sum())) for a, b in itertools.pairwise(ends)]
    away = np.array([part.mean() for part, _ in parts]) - float(prior @ values)
    noise = 8.0 / (epsilon_prior * n) ** 2 * float(away @ away)
    return noise + sum((mass * float(np.ptp(part))) ** 2 for part, mass in parts) / 12.0
