"""Categories as numbers: random effects of each value on the corrected label, estimated jointly and out of fold.

Model: z = μ + Σ_c u_c[value] + e, u_c ~ (0, τ_c²), e ~ (0, σ²). The best linear predictor shrinks a value's mean by
λ_c = σ²/τ_c² rows, so the label noise decides how much one value with few rows may say. σ² and τ_c² come from the
method of moments (one-way analysis of variance); the joint solution comes from a few rounds of backfitting.

Rows that are trained on get the effects of the folds they are not in: with noisy labels a value's own mean would
otherwise hand its noise to the trees. Later rows get the average over the folds, which lies between the values that the
trees split at; an estimate from all rows need not, and can fall on the wrong side of a split.
Rows of several messages count by their weights, so that the labels of a noisy one do not drown those of a clear one.
Reads corrected labels only, so it costs no ε.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
Float32 = npt.NDArray[np.float32]
Codes = npt.NDArray[np.int32]

FOLDS = 5
ROUNDS = 6
FEW = 1 << 20  # places that may be counted through whatever the rows
LARGEST_SHRINKAGE = 1e4  # rows: where the moments see no effect at all, a value still needs a finite prior weight


@dataclass(frozen=True)
class Effects:
    """Per category column float64[values + 1]: the effect of missing first, then of each value of its vocabulary.
    `shrinkage`: the λ of each column, where it was fitted."""

    tables: tuple[FloatArray, ...]
    shrinkage: tuple[float, ...] = ()

    def apply(self, codes: Codes) -> Float32:
        """float32[n, c] for codes int32[n, c] with -1 for missing."""
        out = np.empty(codes.shape, dtype=np.float32, order="F")
        for at, table in enumerate(self.tables):
            out[:, at] = table[codes[:, at] + 1]
        return out


@dataclass(frozen=True)
class Moments:
    """Of the effects of one column's values on residuals: `shrinkage` is λ = σ²/τ² in rows, between almost 0 (a value's
    mean is believed) and LARGEST_SHRINKAGE; `explained` the variance of the shrunken effects."""

    shrinkage: float
    explained: float

    @classmethod
    def of(cls, residual: FloatArray, places: npt.NDArray[np.integer], weights: FloatArray | None = None) -> Moments:
        """For residuals float64[n] and places integer[n] ≥ 0, by one-way analysis of variance; rows are counted in
        weights float64[n] of mean 1 (None: all alike)."""
        if int(places.max(initial=0)) > 4 * len(places) + FEW:
            places = np.unique(places, return_inverse=True)[1]
        counts, weighted = np.bincount(places, weights), residual if weights is None else weights * residual
        n, groups = len(residual), int(np.count_nonzero(counts))
        if n <= groups or groups < 2:
            return cls(LARGEST_SHRINKAGE, 0.0)
        sums, total = np.bincount(places, weighted), float(counts.sum())
        whole = np.where(counts > 0.0, counts, 1.0)
        between = float(np.sum(sums * sums / whole))
        if weights is None:
            within = max(float(residual @ residual) - between, 0.0) / (n - groups)
        else:
            # noise of a value's mean times its weight, whatever the rows' noise is: Σ w²v/Σ w
            means, own, mixed = sums / whole, np.bincount(places, weights**2), np.bincount(places, weights * weighted)
            squares = float(weighted @ weighted) - 2.0 * float(means @ mixed) + float(means**2 @ own)
            within = max(squares, 0.0) / max(total - float(np.sum(own / whole)), 1e-300)
        spread = total - float(np.sum(counts.astype(np.float64) ** 2)) / total
        tau2 = (between - groups * within) / spread if spread > 0 else 0.0
        if tau2 <= within / LARGEST_SHRINKAGE:
            return cls(LARGEST_SHRINKAGE, 0.0)
        shrinkage = max(within / tau2, 1e-3)
        return cls(shrinkage, tau2 * float(np.sum(counts * (counts / (counts + shrinkage)))) / total)


def fit_effects(
    codes: Codes,
    labels: FloatArray,
    sizes: Sequence[int],
    known: Sequence[float | None] = (),
    weights: FloatArray | None = None,
) -> Effects:
    """Joint effects of `sizes[c]` values (missing included) on `labels` float64[n] with `weights` float64[n] of mean 1
    (None: all alike), codes int32[n, c]. `known`: the λ of the last columns; None, and elsewhere, that of the column by
    itself."""
    columns = [codes[:, at] + 1 for at in range(codes.shape[1])]
    residual = labels - (np.average(labels, weights=weights) if labels.size else 0.0)
    counts = [np.bincount(column, weights, minlength=size) for column, size in zip(columns, sizes, strict=True)]
    given = [None] * (len(columns) - len(known)) + [*known]
    shrinkage = [
        Moments.of(residual, c, weights).shrinkage if g is None else g for c, g in zip(columns, given, strict=True)
    ]
    tables = [np.zeros(size) for size in sizes]
    for _ in range(ROUNDS if len(sizes) > 1 else 1):
        for at, column in enumerate(columns):
            residual = residual + tables[at][column]
            sums = np.bincount(column, residual if weights is None else weights * residual, minlength=sizes[at])
            tables[at] = sums / (counts[at] + shrinkage[at])
            residual = residual - tables[at][column]
    return Effects(tuple(tables), tuple(shrinkage))


def out_of_fold(
    codes: Codes,
    labels: FloatArray,
    sizes: Sequence[int],
    done: Callable[[float], None] = lambda _share: None,
    known: Sequence[float | None] = (),
    weights: FloatArray | None = None,
) -> tuple[Float32, Effects]:
    """float32[n, c]: each row's effects from the other folds, and the averages over folds for later rows.

    Zeros where there are too few rows to leave some out. `done` is told the share of folds that are behind.
    """
    n = len(labels)
    if n < 2 * FOLDS or not sizes:
        return np.zeros(codes.shape, dtype=np.float32), Effects(tuple(np.zeros(size) for size in sizes))
    # which rows share a fold says nothing; it is fixed so that training is repeatable
    fold = np.random.default_rng(0).permutation(n) % FOLDS
    out = np.empty(codes.shape, dtype=np.float32, order="F")
    folds = []
    for index in range(FOLDS):
        inside = fold == index
        told = None if weights is None else weights[~inside]
        folds.append(fit_effects(codes[~inside], labels[~inside], sizes, known, told))
        out[inside] = folds[-1].apply(codes[inside])
        done((index + 1) / FOLDS)
    averages = tuple(np.mean(tables, axis=0) for tables in zip(*(f.tables for f in folds), strict=True))
    return out, Effects(averages)
