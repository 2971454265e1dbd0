"""Isotonic regression by least squares, without privacy: what is done to means that are private already."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.optimize import isotonic_regression

FloatArray = npt.NDArray[np.float64]

MOST_ROUNDS = 1000
CLOSE = 1e-7  # of the values' range


def rising(values: FloatArray, weights: FloatArray) -> FloatArray:
    """float64[M] or float64[a, b]: the nearest to `values`, in squares weighted by positive `weights` of their shape,
    among those that fall along no axis.

    Of two axes by Dykstra's alternating projections (Boyle & Dykstra 1986), until both agree to 10⁻⁷ of the range or
    for 1,000 rounds; what is left is raised to the largest value before it.
    """
    if values.ndim == 1:
        return np.asarray(isotonic_regression(values, weights=weights).x, np.float64)
    found, residues = values.astype(np.float64), [np.zeros(values.shape), np.zeros(values.shape)]
    close = CLOSE * max(float(np.ptp(values)), 1e-300)
    for _ in range(MOST_ROUNDS):
        before = found
        for axis, residue in enumerate(residues):
            open_ = found + residue
            found = _along(axis, open_, weights)
            residues[axis] = open_ - found
        if float(np.abs(found - before).max()) <= close:
            break
    return np.asarray(np.maximum.accumulate(np.maximum.accumulate(found, axis=0), axis=1), np.float64)


def _along(axis: int, values: FloatArray, weights: FloatArray) -> FloatArray:
    """Every line along `axis` by itself."""
    lines = zip(np.moveaxis(values, axis, -1), np.moveaxis(weights, axis, -1), strict=True)
    return np.moveaxis(np.stack([isotonic_regression(v, weights=w).x for v, w in lines]), -1, axis)
