"""The AUC of predictions, from labels or from g with E[g | label] = label in {0, 1}. Costs no ε.

AUC = U/D with U = Σ g_i (1 − g_j) φ_ij and D = Σ g_i (1 − g_j), both over pairs of rows i, j of different examples, and
φ_ij = 1 if f_i > f_j, ½ if they are equal, else 0. The noise of different examples is independent, so U and D are
unbiased for their values under the true labels; pairs inside an example have one label, hence no true value, and are
left out.

The standard error linearizes the ratio and projects it: U/D − θ ≈ (U − θD)/D, and U − θD, a sum over pairs of examples,
is to first order the sum over examples c of

    ψ_c = Σ_{i in c} [ g_i Σ_j (1 − g_j)(φ_ij − θ) + (1 − g_i) Σ_j g_j (φ_ji − θ) ],   j over the other examples,

independent with mean zero, so Var(U/D) ≈ Σ ψ_c² / D². For true labels this is DeLong's variance up to 1/n.
"""

from __future__ import annotations

import numpy as np

from features_party.training.intervals import FloatArray, Groups, Interval, around, total_error

SURE = 0.025  # one side of 95 %


def auc(predictions: FloatArray, labels: FloatArray, group: Groups, stretch: float = 1.0) -> Interval:
    """Estimate the AUC of N rows: predictions float64[N], labels (or estimates of them) float64[N], the example
    integer[N] from 0.

    O(N log N). The estimated numbers of ones and of zeros must be clear of zero.
    """
    theta, influence = influences(predictions, labels, group)
    interval = around(theta, stretch * total_error(influence, group))
    if theta in (0.0, 1.0):
        interval = _agreeing(interval, min(labels.sum(), len(labels) - labels.sum()))
    return interval.within(0.0, 1.0)


def macro_auc(thetas: FloatArray, influence: FloatArray, group: Groups, rarest: float, stretch: float) -> Interval:
    """Average one-against-rest AUCs float64[c], whose mean `influences` are float64[N]; `rarest` is the row count of
    the rarest of these classes."""
    interval = around(float(thetas.mean()), stretch * total_error(influence, group))
    if np.all(thetas == 0.0) or np.all(thetas == 1.0):
        interval = _agreeing(interval, rarest)
    return interval.within(0.0, 1.0)


def _agreeing(estimate: Interval, pairs: float) -> Interval:
    """Bound the AUC if no pair disagrees: all disjoint pairs, as many as the smaller class has, agree with chance θ^m
    or less."""
    reach = 1.0 - SURE ** (1.0 / pairs)
    return Interval(estimate.estimate, estimate.standard_error, estimate.estimate - reach, estimate.estimate + reach)


def influences(predictions: FloatArray, labels: FloatArray, group: Groups) -> tuple[float, FloatArray]:
    """Return (the AUC, ψ/|D| float64[N] of each row)."""
    g, size = labels, np.bincount(group)
    both = np.stack([np.ones_like(g), g])
    alone = len(size) == len(g)  # then a row's own example is the row itself
    beneath = _beneath(predictions, both, np.zeros_like(group))
    beneath -= both / 2 if alone else _beneath(predictions, both, group)
    own = np.bincount(group, weights=g)
    ones, zeros = g.sum() - own[group], (size.sum() - g.sum()) - (size - own)[group]  # of the other examples
    won, lost = beneath[0] - beneath[1], ones - beneath[1]  # zeros under a row, ones over it
    pairs = float((g * zeros).sum())
    theta = float((g * won).sum()) / pairs
    return theta, (g * (won - theta * zeros) + (1.0 - g) * (lost - theta * ones)) / abs(pairs)


def _beneath(f: FloatArray, weights: FloatArray, within: Groups) -> FloatArray:
    """Sum for each row the weights float64[2, N] of the rows of its group with a smaller f, and half of those with an
    equal one (its own too)."""
    order = np.lexsort((f, within))
    value, part = f[order], within[order]
    fresh = np.concatenate([[True], part[1:] != part[:-1]])
    tie = np.flatnonzero(fresh | np.concatenate([[True], value[1:] != value[:-1]]))
    sums = np.add.reduceat(weights[:, order], tie, axis=1)
    before = np.cumsum(sums, axis=1) - sums
    first = np.cumsum(fresh)[tie] - 1  # the group of each run of equal values
    before -= before[:, fresh[tie]][:, first]
    run = np.repeat(np.arange(len(tie)), np.diff(np.append(tie, len(f))))
    totals = np.empty_like(weights)
    totals[:, order] = (before + sums / 2)[:, run]
    return totals
