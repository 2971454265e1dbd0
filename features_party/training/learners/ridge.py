"""Ridge regression, its penalty by empirical Bayes, and logistic regression as a sequence of such.

`scored` maximises the likelihood of the observed outputs (`training/likelihood.py`) less λ|b|²/2, by Fisher scoring:
each step is a weighted ridge regression of the working labels f − g/h on the columns, with gradient g and information h
of every row on its score f. λ decreases along a path, and the solution of the largest evidence (Laplace's
approximation) is taken: the likelihood at it, less λ|b|²/2 and ½ log det(1 + H/λ). So it needs no folds: if the labels
are uninformative the largest λ is taken, and the model predicts the mean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from features_party.training.likelihood import RowLikelihood
from label_dp.progress import Progress

FloatArray = npt.NDArray[np.float64]
Chunks = Iterator[tuple[slice, FloatArray]]

PATH = (3.0, *np.arange(1.0, -6.25, -0.5))  # decades of λ, from the largest eigenvalue of the information
BEHIND = 4.0  # nats of evidence: this far below the best, λ is too small
STEPS, HALVINGS = 25, 12
SETTLED = 1e-2  # nats: coefficients whose likelihoods differ less are equivalent


def ridge_penalty(values: FloatArray, along: FloatArray, variance: float) -> float:
    """Choose the λ that makes the labels most likely when coefficients are drawn from N(0, variance/λ): empirical
    Bayes.

    `values` float64[p] are the eigenvalues of the centred Gram matrix, `along` float64[p] the moments in its basis,
    `variance` that of the labels, noise included. For the log link it is the same figure to first order.
    """
    if not values.size or variance <= 0.0 or values.max() <= 0.0:
        return 1.0
    grid = values.max() * np.logspace(-7, 3, 101)
    scores = [
        float(np.sum(along * along / (values + ridge)) / variance - np.sum(np.log1p(values / ridge))) for ridge in grid
    ]
    # the largest of equals: without any signal the constant
    best = float(max(scores))
    return float(max(ridge for ridge, score in zip(grid, scores, strict=True) if score >= best - 1e-9))


@dataclass(frozen=True)
class Moments:
    """Moments Σ h x xᵀ and Σ h x (z − mean z) over rows of weight h, both about the weighted means, with the means of
    the columns x, float64[p], and of z, which restore the intercept.

    For fewer rows than columns, `rows` holds A float64[n, p] = √h (x − mean) and r = √h (z − mean z): then `gram` is A
    Aᵀ and `moment` r. The eigenvalues are the same except zeros, and (AᵀA + λ)⁻¹ Aᵀr = Aᵀ (A Aᵀ + λ)⁻¹ r.
    """

    gram: FloatArray
    moment: FloatArray
    columns: FloatArray
    mean: float
    rows: FloatArray | None = None

    @classmethod
    def of(cls, chunks: Chunks, labels: FloatArray, weights: FloatArray, width: int) -> Moments:
        total = float(weights.sum())
        mean = float(weights @ labels) / total
        if len(labels) < width:
            root = np.sqrt(weights)
            few = np.concatenate([columns for _, columns in chunks])
            middle = weights @ few / total
            few = root[:, None] * (few - middle)
            return cls(few @ few.T, root * (labels - mean), middle, mean, few)
        gram, moment, middle = np.zeros((width, width)), np.zeros(width), np.zeros(width)
        for rows, columns in chunks:
            weighted = columns * weights[rows, None]
            gram += weighted.T @ columns
            moment += weighted.T @ (labels[rows] - mean)
            middle += weighted.sum(axis=0)
        return cls(gram - np.outer(middle, middle) / total, moment, middle / total, mean)

    def penalty(self, variance: float) -> float:
        values, along, _ = self._spectrum
        return ridge_penalty(values, along if self.rows is None else along * np.sqrt(values), variance)

    def solved(self, penalty: float) -> tuple[float, FloatArray]:
        """Solve for intercept and coefficients."""
        values, along, vectors = self._spectrum
        return self._back(vectors @ (along / (values + penalty)))

    def solved_once(self, penalty: float) -> tuple[float, FloatArray, float]:
        """Solve for one penalty alone, some thirty times as quickly; also returns log det(1 + gram/penalty)."""
        from scipy.linalg import cho_factor, cho_solve

        if not len(self.gram):
            return *self._back(self.moment), 0.0
        factor = cho_factor(self.gram + penalty * np.eye(len(self.gram)), lower=True)
        volume = 2.0 * float(np.log(np.diag(factor[0])).sum()) - len(self.gram) * float(np.log(penalty))
        return *self._back(cho_solve(factor, self.moment)), volume

    @property
    def largest(self) -> float:
        """Largest eigenvalue of the Gram matrix, 0 without columns."""
        from scipy.linalg import eigvalsh

        last = len(self.gram) - 1
        return float(eigvalsh(self.gram, subset_by_index=[last, last])[0]) if last >= 0 else 0.0

    def _back(self, row_coefficients: FloatArray) -> tuple[float, FloatArray]:
        coefficients = np.asarray(row_coefficients if self.rows is None else self.rows.T @ row_coefficients, np.float64)
        return self.mean - float(self.columns @ coefficients), coefficients

    @cached_property
    def _spectrum(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        values, vectors = np.linalg.eigh(self.gram)
        return np.maximum(values, 0.0), vectors.T @ self.moment, vectors


@dataclass(frozen=True)
class RidgeFit:
    """Fit: `parameters` float64[1 + p], the intercept first, their scores float64[n], their penalty, and the log of its
    evidence in nats, up to a constant."""

    parameters: FloatArray
    score: FloatArray
    penalty: float
    evidence: float


def scored(
    chunks: Callable[[], Chunks], told: RowLikelihood, width: int, progress: Progress
) -> tuple[float, FloatArray]:
    """Fit intercept and coefficients float64[width] of the score. `progress` is called for every chunk."""
    constant = np.full(len(told.outputs), told.start)
    best = ridge_fit = RidgeFit(np.concatenate([[told.start], np.zeros(width)]), constant, np.inf, -np.inf)
    largest = 0.0
    for at, decades in enumerate(PATH):
        share = at / len(PATH)

        def reported(share: float = share) -> Chunks:
            for chunk in chunks():
                progress("solving", share)
                yield chunk

        if at == 0:
            whole = Moments.of(reported(), constant, told(constant, constant)[1], width)
            largest = max(whole.largest, 0.0) or 1.0
        ridge_fit = _maximised(reported, told, largest * 10.0**decades, ridge_fit)
        best = max(best, ridge_fit, key=lambda one: one.evidence)
        if ridge_fit.evidence < best.evidence - BEHIND:
            break
    # at the largest penalty nothing was found, and not even a ranking may remain
    nothing = best.penalty >= largest * 10.0 ** PATH[0]
    return float(best.parameters[0]), 0.0 * best.parameters[1:] if nothing else best.parameters[1:]


def _maximised(chunks: Callable[[], Chunks], likelihood: RowLikelihood, penalty: float, start: RidgeFit) -> RidgeFit:
    """Maximise the likelihood less the penalty from `start`, by Fisher scoring."""

    def cost(score: FloatArray, parameters: FloatArray) -> float:
        """Return the cost in nats."""
        ridge = 0.5 * penalty * likelihood.information * float(parameters[1:] @ parameters[1:])
        return float(likelihood.losses(score).sum()) + ridge

    parameters, score = start.parameters, start.score
    now, volume = cost(score, parameters), 0.0
    for _ in range(STEPS):
        gradient, information = likelihood(score, score)
        moments = Moments.of(chunks(), score - gradient / information, information, len(parameters) - 1)
        intercept, coefficients, volume = moments.solved_once(penalty)
        towards = np.concatenate([[intercept], coefficients]) - parameters
        change = np.empty(len(score))
        for rows, columns in chunks():
            change[rows] = towards[0] + columns @ towards[1:]
        # through a channel the likelihood is not concave: a step that lowers it is halved
        lengths = (0.5**halved for halved in range(HALVINGS))
        tried = ((length, cost(score + length * change, parameters + length * towards)) for length in lengths)
        length, then = next(((length, then) for length, then in tried if then <= now), (0.0, now))
        parameters, score = parameters + length * towards, score + length * change
        gained, now = now - then, then
        if gained < SETTLED:
            break
    # Laplace's approximation, with Fisher's information in place of the curvature
    return RidgeFit(parameters, score, penalty, -now - 0.5 * volume)
