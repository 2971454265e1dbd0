"""The penalty of linear models, by empirical Bayes, and regressions that are solved by steps of it.

`scored` maximises the likelihood of what was seen (`training/likelihood.py`) less λ|b|²/2, by Fisher scoring: each step
is a weighted ridge regression of the working labels f − g/h on the columns, with gradient g and information h of every
row on its score f. Step after step λ is chosen anew on the working labels, for PENALTIES steps, and then stands (the
"performance iteration" of Gu 1992). So it needs no folds: where the labels say nothing λ is the largest, and the model
predicts the mean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from features_party.training.likelihood import RowLikelihood
from shared.service.cli import Progress

FloatArray = npt.NDArray[np.float64]
Chunks = Iterator[tuple[slice, FloatArray]]

PENALTIES, STEPS, HALVINGS = 5, 40, 12
SETTLED = 1e-4  # nats: the likelihood tells no coefficients apart that differ by so little


def ridge_penalty(values: FloatArray, along: FloatArray, variance: float) -> float:
    """λ that makes the labels likeliest when coefficients are drawn from N(0, variance/λ): empirical Bayes.

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
    """Σ h x xᵀ and Σ h x (z − mean z) over rows of weight h, both about the weighted means, and what gives the
    intercept back: the means of the columns x, float64[p], and of z."""

    gram: FloatArray
    moment: FloatArray
    columns: FloatArray
    mean: float

    @classmethod
    def of(cls, chunks: Chunks, labels: FloatArray, weights: FloatArray, width: int) -> Moments:
        total = float(weights.sum())
        mean = float(weights @ labels) / total
        gram, moment, middle = np.zeros((width, width)), np.zeros(width), np.zeros(width)
        for rows, columns in chunks:
            weighted = columns * weights[rows, None]
            gram += weighted.T @ columns
            moment += weighted.T @ (labels[rows] - mean)
            middle += weighted.sum(axis=0)
        return cls(gram - np.outer(middle, middle) / total, moment, middle / total, mean)

    def penalty(self, variance: float) -> float:
        values, along, _ = self._spectrum
        return ridge_penalty(values, along, variance)

    def solved(self, penalty: float) -> tuple[float, FloatArray]:
        """Intercept and coefficients."""
        values, along, vectors = self._spectrum
        coefficients = np.asarray(vectors @ (along / (values + penalty)), np.float64)
        return self.mean - float(self.columns @ coefficients), coefficients

    @cached_property
    def _spectrum(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        values, vectors = np.linalg.eigh(self.gram)
        return np.maximum(values, 0.0), vectors.T @ self.moment, vectors


def scored(
    chunks: Callable[[], Chunks], told: RowLikelihood, width: int, progress: Progress
) -> tuple[float, FloatArray]:
    """Intercept and coefficients float64[width] of the score. `progress` is told of every chunk."""

    def scores(parameters: FloatArray) -> FloatArray:
        found = np.empty(len(told.outputs))
        for rows, columns in reported():
            found[rows] = parameters[0] + columns @ parameters[1:]
        return found

    def reported() -> Chunks:
        for chunk in chunks():
            progress("solving", share)
            yield chunk

    def cost(score: FloatArray, parameters: FloatArray) -> float:
        """In nats."""
        ridge = 0.5 * penalty * told.information * float(parameters[1:] @ parameters[1:])
        return float(told.losses(score).sum()) + ridge

    share, penalty = 0.0, 1.0
    parameters = np.concatenate([[told.start], np.zeros(width)])
    score = np.full(len(told.outputs), told.start)
    for step in range(STEPS):
        share = 1.0 - 0.8**step
        gradient, information = told(score, score)
        moments = Moments.of(reported(), score - gradient / information, information, width)
        # a weight of 1 is a row whose working label has the variance 1/information
        penalty = moments.penalty(1.0 / told.information) if step < PENALTIES else penalty
        before = cost(score, parameters)
        intercept, coefficients = moments.solved(penalty)
        towards = np.concatenate([[intercept], coefficients]) - parameters
        change = scores(towards)
        # through a channel the likelihood is not concave: a step that makes it worse is halved
        length = 1.0
        for _ in range(HALVINGS):
            if cost(score + length * change, parameters + length * towards) <= before:
                break
            length /= 2.0
        else:
            break
        parameters, score = parameters + length * towards, score + length * change
        if step >= PENALTIES and before - cost(score, parameters) < SETTLED:
            break
    return float(parameters[0]), parameters[1:]
