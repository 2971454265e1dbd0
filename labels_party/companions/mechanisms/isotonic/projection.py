"""Isotonic regression by least squares, without privacy: applied to means that are private already."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from labels_party.mechanisms.compiled import compiled

FloatArray = npt.NDArray[np.float64]

MOST_ROUNDS = 1000
CLOSE = 1e-7  # of the values' range


def rising(values: FloatArray, weights: FloatArray) -> FloatArray:
    """Project `values` onto arrays that fall along no axis, in squares weighted by positive `weights` of their shape:
    float64[M] or float64[a, b].

    For two axes by Dykstra's alternating projections (Boyle & Dykstra 1986), until both agree to 10⁻⁷ of the range or
    for 1,000 rounds; remaining violations are raised to the largest value before them.
    """
    if values.ndim == 1:
        line = _pooled(values.astype(np.float64)[None], weights.astype(np.float64)[None])
        return np.asarray(line[0], np.float64)
    current, residues = values.astype(np.float64), [np.zeros(values.shape), np.zeros(values.shape)]
    close = CLOSE * max(float(np.ptp(values)), 1e-300)
    for _ in range(MOST_ROUNDS):
        before = current
        for axis, residue in enumerate(residues):
            open_ = current + residue
            current = _along(axis, open_, weights)
            residues[axis] = open_ - current
        if float(np.abs(current - before).max()) <= close:
            break
    return np.asarray(np.maximum.accumulate(np.maximum.accumulate(current, axis=0), axis=1), np.float64)


def _along(axis: int, values: FloatArray, weights: FloatArray) -> FloatArray:
    """Project every line along `axis` separately."""
    lines = (np.ascontiguousarray(np.moveaxis(each, axis, -1)) for each in (values, weights))
    return np.moveaxis(_pooled(*lines), -1, axis)


@compiled()
def _pooled(values: FloatArray, weights: FloatArray) -> FloatArray:
    """Project each line to the nearest one that never falls: adjacent violators are pooled (Ayer et al. 1955)."""
    out = np.empty(values.shape, np.float64)
    mean, weight = np.empty(values.shape[1]), np.empty(values.shape[1])
    end = np.empty(values.shape[1], np.int64)
    for line in range(values.shape[0]):
        top = -1
        for i in range(values.shape[1]):
            top += 1
            mean[top], weight[top], end[top] = values[line, i], weights[line, i], i + 1
            while top and mean[top - 1] >= mean[top]:
                both = weight[top - 1] + weight[top]
                mean[top - 1] += (mean[top] - mean[top - 1]) * (weight[top] / both)
                weight[top - 1], end[top - 1] = both, end[top]
                top -= 1
        start = 0
        for block in range(top + 1):
            out[line, start : end[block]] = mean[block]
            start = end[block]
    return out
