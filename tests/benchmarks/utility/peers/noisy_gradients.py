"""Training with noisy gradients where the trainer holds raw labels: the central model of label privacy.

DP-SGD (Abadi et al. 2016) adds Gaussian noise to sums of gradients. Where features are public and labels alone are
private (Chaudhuri & Hsu 2011), a generalized linear model of canonical link has the gradient Xᵀ(p(w) − t), in which
labels appear in Xᵀt alone, whatever w is. So nothing has to be clipped: rows of norm 1 change it by at most the range
of t. And nothing is gained by paying for each step: T steps at σ√T and one release of Xᵀt at σ have the same privacy,
exactly, and the average noise of the steps is that of the release. The release is what is done here, with as many
steps on it as the minimum takes. The guarantee is (ε, δ), with the exact δ of the Gaussian mechanism.

The noise may be shaped by what is public: A·Xᵀt with A = (XᵀX + μ)^(−½) is released, whose sensitivity is the largest
‖A·x‖ of a row, and A⁻¹ of it is Xᵀt with less noise where the features say little.

Everybody is told a model; no message exists, so nobody else can train another one on the same ε.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from label_dp.domain import Domain

FloatArray = npt.NDArray[np.float64]

DELTA = 1e-6  # below 1/n of every data set here
PENALTIES = tuple(float(x) for x in 10.0 ** np.arange(0.0, 3.1, 0.5))
SHAPES = (0.0, 10.0, 100.0)
MOST_SHAPED = 1500  # columns
STEPS, CHUNK = 200, 1 << 13


def delta_of(epsilon: float, sigma: float, sensitivity: float = 1.0, steps: int = 1) -> float:
    """The least δ at `epsilon` of `steps` Gaussian releases, each of that L2 sensitivity and noise `sigma`.

    Exact: Theorem 8 of Balle & Wang 2018; that steps compose as one release of √steps times the sensitivity is
    Corollary 3.3 of Dong, Roth & Su 2022.
    """
    from scipy.special import log_ndtr, ndtr

    mu = sensitivity * math.sqrt(steps) / sigma
    return float(ndtr(mu / 2.0 - epsilon / mu) - math.exp(epsilon + float(log_ndtr(-mu / 2.0 - epsilon / mu))))


def sigma_for(epsilon: float, delta: float, sensitivity: float = 1.0, steps: int = 1) -> float:
    """The least noise that keeps (ε, δ), rounded up by at most 10⁻⁹ of itself."""
    low, high = 1e-3, 1.0
    while delta_of(epsilon, high * sensitivity, sensitivity, steps) > delta:
        low, high = high, 2.0 * high
    while high - low > 1e-9 * high:
        middle = (low + high) / 2.0
        low, high = (
            (low, middle) if delta_of(epsilon, middle * sensitivity, sensitivity, steps) <= delta else (middle, high)
        )
    return high * sensitivity


def targets(domain: Domain, labels: FloatArray) -> tuple[FloatArray, float]:
    """t float64[n, c] and how far one label can move it (L2): indicators of classes, else the label over the domain's
    range about its middle."""
    if domain.nominal:
        return np.eye(domain.k)[labels.astype(np.int64)], math.sqrt(2.0)
    low, high = float(domain.values[0]), float(domain.values[-1])
    return ((labels - (low + high) / 2.0) / (high - low))[:, None], 1.0


def released(
    design: Any, t: FloatArray, sensitivity: float, epsilon: float, rng: np.random.Generator, shape: float = 0.0
) -> FloatArray:
    """Xᵀt float64[d, c] with noise, (ε, `DELTA`) for one label; rows of `design` (sparse [n, d]) have the norm 1.

    `shape`: the μ of noise shaped by the features, O(n·d² + d³); 0 for the same noise in every direction.
    """
    exact = np.asarray(design.T @ t, np.float64)
    normal = rng.normal(size=exact.shape)
    if shape == 0.0:
        return np.asarray(exact + sigma_for(epsilon, DELTA, sensitivity) * normal, np.float64)
    values, vectors = np.linalg.eigh((design.T @ design).toarray())
    roots = np.sqrt(np.maximum(values, 0.0) + shape)
    farthest = max(
        float(np.max(np.sum((design[at : at + CHUNK] @ vectors / roots) ** 2, axis=1)))
        for at in range(0, design.shape[0], CHUNK)
    )
    # in the basis of A, where normal noise is normal noise again
    sigma = sigma_for(epsilon, DELTA, sensitivity * math.sqrt(farthest))
    return np.asarray(exact + vectors @ (roots[:, None] * sigma * normal), np.float64)


def models(
    domain: Domain, design: Any, noisy: FloatArray, test: Any, penalties: tuple[float, ...] = PENALTIES
) -> Iterator[tuple[str, FloatArray]]:
    """(penalty, predictions) of the test rows; linear, logistic or multinomial as the domain is. Post-processing."""
    w = np.zeros_like(noisy)
    for penalty in reversed(penalties):  # each starts where the one before ended
        w = _least_squares(design, noisy, penalty, w) if _numbers(domain) else _likeliest(design, noisy, penalty, w)
        scores = np.asarray(test @ w)
        if domain.nominal:
            scores -= scores.max(axis=1, keepdims=True)
            p = np.exp(scores)
            yield f"λ {penalty:g}", p / p.sum(axis=1, keepdims=True)
        elif domain.k == 2:
            yield f"λ {penalty:g}", 1.0 / (1.0 + np.exp(-scores[:, 0]))
        else:
            low, high = float(domain.values[0]), float(domain.values[-1])
            yield f"λ {penalty:g}", (low + high) / 2.0 + (high - low) * scores[:, 0]


def log_linear(
    domain: Domain, design: Any, noisy: FloatArray, test: Any, penalties: tuple[float, ...] = PENALTIES
) -> Iterator[tuple[str, FloatArray]]:
    """(penalty, predictions) of the test rows under the Poisson loss, whose canonical link is the logarithm: of the
    same release, Σ exp(b + x·w) − ⟨w, Xᵀy⟩ + λ/2‖w‖² is least. exp(b) is the noisy mean. Post-processing."""
    from scipy.optimize import minimize

    low, high = float(domain.values[0]), float(domain.values[-1])
    public = np.asarray(design.sum(axis=0), np.float64).ravel()
    sums = (high - low) * noisy[:, 0] + (low + high) / 2.0 * public
    mean = float(np.clip(sums.sum() / public.sum(), 1e-3 * (high - low), high))
    offset, w = math.log(mean), np.zeros(len(sums))

    def objective(v: FloatArray, penalty: float) -> tuple[float, FloatArray]:
        scores = np.minimum(offset + np.asarray(design @ v), math.log(high) + 1.0)
        rates = np.exp(scores)
        value = float(rates.sum()) - float(v @ sums) + penalty / 2.0 * float(v @ v)
        return value, np.asarray(design.T @ rates - sums + penalty * v).ravel()

    for penalty in reversed(penalties):
        w = minimize(objective, w, (penalty,), jac=True, method="L-BFGS-B", options={"maxiter": STEPS}).x
        yield f"log link, λ {penalty:g}", np.minimum(np.exp(np.minimum(offset + np.asarray(test @ w), 50.0)), high)


def _numbers(domain: Domain) -> bool:
    return not domain.nominal and domain.k > 2


def _least_squares(design: Any, noisy: FloatArray, penalty: float, start: FloatArray) -> FloatArray:
    from scipy.sparse.linalg import LinearOperator, cg

    d = design.shape[1]
    normal = LinearOperator((d, d), matvec=lambda w: design.T @ (design @ w) + penalty * w, dtype=np.float64)
    found, _ = cg(normal, noisy[:, 0], x0=start[:, 0], rtol=1e-6, maxiter=STEPS)
    return np.asarray(found, np.float64)[:, None]


def _likeliest(design: Any, noisy: FloatArray, penalty: float, start: FloatArray) -> FloatArray:
    """Minimises Σ log-partition(x·w) − ⟨w, noisy⟩ + λ/2‖w‖², in which no label is left."""
    from scipy.optimize import minimize

    shape = noisy.shape

    def objective(flat: FloatArray) -> tuple[float, FloatArray]:
        w = flat.reshape(shape)
        scores = np.asarray(design @ w)
        if shape[1] == 1:  # t = y − ½: the partition is that of scores ±½
            partition = float(np.logaddexp(scores / 2.0, -scores / 2.0).sum())
            p = np.tanh(scores / 2.0) / 2.0
        else:
            top = scores.max(axis=1, keepdims=True)
            e = np.exp(scores - top)
            total = e.sum(axis=1, keepdims=True)
            partition, p = float((top + np.log(total)).sum()), e / total
        value = partition - float((w * noisy).sum()) + penalty / 2.0 * float((w * w).sum())
        return value, np.asarray(design.T @ p - noisy + penalty * w).ravel()

    found = minimize(objective, start.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": STEPS})
    return np.asarray(found.x, np.float64).reshape(shape)
