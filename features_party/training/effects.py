"""Categories as numbers: random effects of each value on the corrected label, estimated jointly and out of fold.

Model: z = μ + Σ_c u_c[value] + e, u_c ~ (0, τ_c²), e ~ (0, σ²). The best linear predictor shrinks a value's mean by λ_c
= σ²/τ_c² rows, so the label noise limits the effect of a value with few rows. A few rounds of backfitting give the
joint solution. σ² and τ_c² start from the method of moments for each column by itself (one-way analysis of variance)
and then follow the joint effects (MacKay 1992: τ² is Σu² over the effective number of effects), so two redundant
columns, such as a product's number and its name, share the effect.

Training rows get effects estimated on the other folds: with noisy labels a value's own mean would pass its noise to the
trees. Later rows get the average over the folds, which lies between the values that the trees split at; an estimate
from all rows need not, and can fall on the wrong side of a split. Rows of several messages are weighted, so that the
labels of a noisy one do not drown those of a clear one. Reads corrected labels only, so it costs no ε.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from features_party.training.draws import Draws, dealt
from features_party.training.words import Named, Words

FloatArray = npt.NDArray[np.float64]
Float32 = npt.NDArray[np.float32]
Codes = npt.NDArray[np.int32]

NO_WORDS: Mapping[int, Words] = MappingProxyType({})
FOLDS = 5
ROUNDS = 8
ALONE = 2  # rounds before the variances are re-estimated
FEW = 1 << 20  # places that may be counted through whatever the number of rows
SMALLEST_SHRINKAGE = 1e-3  # rows
LARGEST_SHRINKAGE = 1e4  # rows: if the moments show no effect at all, a value still needs a finite prior weight


@dataclass(frozen=True)
class Effects:
    """Effects by category column, float64[values + 1]: missing first, then each value of its vocabulary.

    `shrinkage` is the λ of each column, if fitted.
    """

    tables: tuple[FloatArray, ...]
    shrinkage: tuple[float, ...] = ()

    def apply(self, codes: Codes) -> Float32:
        """Look up effects float32[n, c] for codes int32[n, c] with -1 for missing."""
        out = np.empty(codes.shape, dtype=np.float32, order="F")
        for at, table in enumerate(self.tables):
            out[:, at] = table[codes[:, at] + 1]
        return out


@dataclass(frozen=True)
class EffectMoments:
    """Moments of the effects of one column's values on residuals.

    `shrinkage` is λ = σ²/τ² in rows, between almost 0 (a value's mean is taken as it is) and LARGEST_SHRINKAGE;
    `explained` is the variance of the shrunken effects; `noise` is σ².
    """

    shrinkage: float
    explained: float
    noise: float = 0.0

    @classmethod
    def of(
        cls, residual: FloatArray, places: npt.NDArray[np.integer], weights: FloatArray | None = None
    ) -> EffectMoments:
        """Estimate from residuals float64[n] and places integer[n] ≥ 0, by one-way analysis of variance.

        Rows are counted in weights float64[n] of mean 1 (None: all equal).
        """
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
            # noise of a value's mean times its weight, for any noise of the rows: Σ w²v/Σ w
            means, own, mixed = sums / whole, np.bincount(places, weights**2), np.bincount(places, weights * weighted)
            squares = float(weighted @ weighted) - 2.0 * float(means @ mixed) + float(means**2 @ own)
            within = max(squares, 0.0) / max(total - float(np.sum(own / whole)), 1e-300)
        spread = total - float(np.sum(counts.astype(np.float64) ** 2)) / total
        tau2 = (between - groups * within) / spread if spread > 0 else 0.0
        if tau2 <= within / LARGEST_SHRINKAGE:
            return cls(LARGEST_SHRINKAGE, 0.0, within)
        shrinkage = max(within / tau2, SMALLEST_SHRINKAGE)
        explained = tau2 * float(np.sum(counts * (counts / (counts + shrinkage)))) / total
        return cls(shrinkage, explained, within)


def fit_effects(
    codes: Codes,
    labels: FloatArray,
    sizes: Sequence[int],
    known: Sequence[float | None] = (),
    weights: FloatArray | None = None,
    words: Mapping[int, Words] = NO_WORDS,
) -> Effects:
    """Fit joint effects of `sizes[c]` values (missing included) on `labels` float64[n], codes int32[n, c].

    `weights` float64[n] have mean 1 (None: all equal). `known` holds the λ of the last columns; None, and all other
    columns, mean the column's own estimate. `words` are those of columns whose values are texts.
    """
    columns = [codes[:, at] + 1 for at in range(codes.shape[1])]
    residual = labels - (np.average(labels, weights=weights) if labels.size else 0.0)
    counts = [
        np.bincount(column, weights, minlength=size).astype(np.float64)
        for column, size in zip(columns, sizes, strict=True)
    ]
    fixed = [None] * (len(columns) - len(known)) + [*known]
    alone = [
        EffectMoments.of(residual, c, weights) if g is None else EffectMoments(g, 0.0)
        for c, g in zip(columns, fixed, strict=True)
    ]
    shrinkage, named = [one.shrinkage for one in alone], {}
    for at, of in words.items():
        if alone[at].explained > 0.0:  # half of a value's effect may belong to its words
            named[at] = Named(of, alone[at].noise / shrinkage[at] / (2.0 * of.usual))
            shrinkage[at] *= 2.0
    noise = min((one.noise for one in alone if one.noise > 0.0), default=0.0)
    tables = [np.zeros(size) for size in sizes]
    for step in range(ROUNDS if len(sizes) > 1 or named else 1):
        freedom = 0.0
        variances = list(shrinkage)
        for at, column in enumerate(columns):
            residual = residual + tables[at][column]
            sums = np.bincount(column, residual if weights is None else weights * residual, minlength=sizes[at])
            by_words = named[at].fit(sums, counts[at], shrinkage[at], noise) if at in named else 0.0
            own = (sums - counts[at] * by_words) / (counts[at] + shrinkage[at])
            tables[at] = by_words + own
            residual = residual - tables[at][column]
            effective = float(np.sum(counts[at] / (counts[at] + shrinkage[at])))
            freedom += effective
            if fixed[at] is None:
                variances[at] = noise * effective / max(float(own @ own), 1e-300)
        if noise > 0.0 and step >= ALONE:
            squares = float(np.sum(residual**2 if weights is None else (weights * residual) ** 2))
            noise = squares / max(float(counts[0].sum()) - freedom, 1.0)
            shrinkage = [min(max(one, SMALLEST_SHRINKAGE), LARGEST_SHRINKAGE) for one in variances]
    return Effects(tuple(tables), tuple(shrinkage))


def out_of_fold(
    codes: Codes,
    labels: FloatArray,
    draws: Draws,
    sizes: Sequence[int],
    done: Callable[[float], None] = lambda _share: None,
    known: Sequence[float | None] = (),
    weights: FloatArray | None = None,
    words: Mapping[int, Words] = NO_WORDS,
) -> tuple[Float32, Effects]:
    """Return each row's effects from the other folds, float32[n, c], and the averages over folds for later rows.

    Effects are zero if there are too few rows to leave some out. `done` receives the share of finished folds.
    """
    n = len(labels)
    if n < 2 * FOLDS or not sizes:
        return np.zeros(codes.shape, dtype=np.float32), Effects(tuple(np.zeros(size) for size in sizes))
    fold = dealt(draws, FOLDS, "effects of categories")
    out = np.empty(codes.shape, dtype=np.float32, order="F")
    folds = []
    for index in range(FOLDS):
        inside = fold == index
        train_weights = None if weights is None else weights[~inside]
        folds.append(fit_effects(codes[~inside], labels[~inside], sizes, known, train_weights, words))
        out[inside] = folds[-1].apply(codes[inside])
        done((index + 1) / FOLDS)
    averages = tuple(np.mean(tables, axis=0) for tables in zip(*(f.tables for f in folds), strict=True))
    return out, Effects(averages)
