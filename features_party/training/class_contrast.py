"""One number for labels that are classes, whose effects large categories are given (`effects.py`).

Classes have no order, so their own numbers would suit some orders only. The number is r·v. r float64[k] is the
posterior of the class shares given an output, less these shares. v is the leading solution of B v = λ W v, where W
holds the squares of r over all rows and B those of its means over the values of the categories, less their expectation
by chance. So v is the contrast of classes by which the values differ most, above chance (as in discriminant analysis,
Rao 1948). It costs no ε.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from features_party.training.class_likelihood import ClassLikelihood
from features_party.training.encoding import Codes

FloatArray = npt.NDArray[np.float64]

LEAST = 1e-9  # of the largest direction of W, since the rows of r sum to 0


def contrast(told: ClassLikelihood, codes: Codes) -> FloatArray:
    """Return float64[n] for codes int32[n, c] of the categories, −1 for missing; zeros if the outputs say nothing."""
    rows = -told.seen(np.tile(told.shares, (len(told.outputs), 1)))[0]
    whole = rows.T @ rows / max(len(rows), 1)
    between = np.zeros_like(whole)
    for column in codes.T:
        _, value, counts = np.unique(column, return_inverse=True, return_counts=True)
        sums = np.zeros((len(counts), told.k))
        np.add.at(sums, value, rows)
        between += (sums / counts[:, None]).T @ sums - (len(counts) - 1) * whole
    scale, axes = np.linalg.eigh(whole)
    significant = scale > max(LEAST * scale[-1], 1e-300)
    if not significant.any():
        return np.zeros(len(rows))
    white = axes[:, significant] / np.sqrt(scale[significant])
    leading = np.linalg.eigh(white.T @ between @ white)[1][:, -1]
    return np.asarray(rows @ (white @ leading), np.float64)
