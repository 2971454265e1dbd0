"""The AUC of predictions, from labels or from g with E[g | label] = label in {0, 1}. Costs no ε.

AUC = U/D with U = Σ g_i (1 − g_j) φ_ij and D = Σ g_i (1 − g_j), both over pairs of rows i, j of different examples, and
φ_ij = 1 where f_i > f_j, ½ where they are equal, else 0. The noise of different examples is independent, so U and D are
unbiased for what the true labels give; pairs inside an example have one label, hence no true value, and are left out.

The standard error linearizes the ratio and projects it: U/D − θ ≈ (U − θD)/D, and U − θD, a sum over pairs of examples,
is to first order the sum over examples c of

    ψ_c = Σ_{i in c} [ g_i Σ_j (1 − g_j)(φ_ij − θ) + (1 − g_i) Σ_j g_j (φ_ji − θ) ],   j over the other examples,

independent with mean zero, so Var(U/D) ≈ Σ ψ_c² / D². For true labels this is DeLong's variance but for 1/n.
"""

from __future__ import annotations

import numpy as np

from features_party.training.intervals import FloatArray, Groups, Interval, around, total_error

SURE = 0.025  # one side of 95 %


def auc(predictions: FloatArray, labels: FloatArray, group: Groups, stretch: float = 1.0) -> Interval:
    """For N rows: predictions float64[N], labels (or what estimates them) float64[N], the example integer[N] from 0.
    O(N log N). The estimated numbers of ones and of zeros must be clear of zero."""
    theta, influence = influences(predictions, labels, group)
    interval = around(theta, stretch * total_error(influence, group))
    if theta in (0.0, 1.0):
        interval = _agreeing(interval, min(labels.sum(), len(labels) - labels.sum()))
    return interval.within(0.0, 1.0)


def macro_auc(thetas: FloatArray, influence: FloatArray, group: Groups, rarest: float, stretch: float) -> Interval:
    """The mean of AUCs float64[c] of one class against the rest each, whose `influences` are float64[N] on average;
    `rarest`: the number of rows of the rarest of these classes."""
    interval = around(float(thetas.mean()), stretch * total_error(influence, group))
    if np.all(thetas == 0.0) or np.all(thetas == 1.0):
        interval = _agreeing(interval, rarest)
    return interval.within(0.0, 1.0)


def _agreeing(found: Interval, pairs: float) -> Interval:
    """Where no pair disagrees: as many disjoint pairs as the smaller class has would all agree with chance θ^m or
    less."""
    reach = 1.0 - SURE ** (1.0 / pairs)
    return Interval(found.estimate, found.standard_error, found.estimate - reach, found.estimate + reach)


def influences(predictions: FloatArray, labels: FloatArray, group: Groups) -> tuple[float, FloatArray]:
    """(the AUC, ψ/|D| float64[N] of each row)"""
    g, size = labels, np.bincount(group)
    both = np.stack([np.ones_like(g), g])
    alone = len(size) == len(g)  # then a row's own example is itself
    beneath = _beneath(predictions, both, np.zeros_like(group))
    beneath -= both / 2 if alone else _beneath(predictions, both, group)
    own = np.bincount(group, weights=g)
    ones, zeros = g.sum() - own[group], (size.sum() - g.sum()) - (size - own)[group]  # of the other examples
    won, lost = beneath[0] - beneath[1], ones - beneath[1]  # zeros under a row, ones over it
    pairs = float((g * zeros).sum())
    theta = float((g * won).sum()) / pairs
    return theta, (g * (won - theta * zeros) + (1.0 - g) * (lost - theta * ones)) / abs(pairs)


def _beneath(f: FloatArray, weights: FloatArray, within: Groups) -> FloatArray:
    """For each row the weights float64[2, N] of the rows of its group that have a smaller f, and half of those that
    have the same (its own too)."""
    order = np.lexsort((f, within))
    value, part = f[order], within[order]
    fresh = np.concatenate([[True], part[1:] != part[:-1]])
    tie = np.flatnonzero(fresh | np.concatenate([[True], value[1:] != value[:-1]]))
    sums = np.add.reduceat(weights[:, order], tie, axis=1)
    before = np.cumsum(sums, axis=1) - sums
    first = np.cumsum(fresh)[tie] - 1  # of which group each run of equal values is
    before -= before[:, fresh[tie]][:, first]
    run = np.repeat(np.arange(len(tie)), np.diff(np.append(tie, len(f))))
    found = np.empty_like(weights)
    found[:, order] = (before + sums / 2)[:, run]
    return found
