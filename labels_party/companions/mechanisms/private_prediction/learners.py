"""Learners for disjoint parts: the only requirement is that a part's model depends on its examples alone.

All return numbers: a share of the label range, or, for thresholded labels, at least ½ if the model predicts 1. The time
of fitting and predicting and the size of a model depend on sizes, not on labels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from labels_party.companions.mechanisms.private_prediction import UNIT

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
State = Mapping[str, npt.NDArray[Any]]

PENALTY = 1.0  # of the squared weights, as of one more example
NEWTON_STEPS = 12
ROUNDS, DEPTH, CELLS, RATE = 24, 3, 16, 0.3


@dataclass(frozen=True)
class PartLearner:
    """Learner: `fit` makes the state of one part from x int64[n, D] and y float64[n] in [0, 1], n ≥ 0; all parts'
    states are stacked. `predict` returns float64[m] for x int64[D] and the stacked state of m parts."""

    name: str
    fit: Callable[[IntArray, FloatArray], dict[str, npt.NDArray[Any]]]
    predict: Callable[[State, IntArray], FloatArray]


def stacked(
    learner: PartLearner, x: IntArray, y: FloatArray, part: IntArray, parts: int
) -> dict[str, npt.NDArray[Any]]:
    """Fit the states of all parts of int64[n] `part`, one after the other; a part without examples has a model as
    well."""
    order = np.argsort(part, kind="stable")
    ends = np.searchsorted(part[order], np.arange(parts + 1))
    states = [learner.fit(x[rows], y[rows]) for rows in (order[a:b] for a, b in pairwise(ends))]
    return {name: np.stack([one[name] for one in states]) for name in states[0]}


# --- linear --------------------------------------------------------------------------------------------------


def _fit_ridge(x: IntArray, y: FloatArray) -> dict[str, npt.NDArray[Any]]:
    rows = x.astype(np.float64) / UNIT
    penalised = rows.T @ rows + PENALTY * np.eye(rows.shape[1])
    return {"weights": np.linalg.solve(penalised, rows.T @ (y - 0.5))}


def _predict_ridge(state: State, x: IntArray) -> FloatArray:
    return np.asarray(0.5 + state["weights"] @ (x.astype(np.float64) / UNIT), np.float64)


def _fit_logistic(x: IntArray, y: FloatArray) -> dict[str, npt.NDArray[Any]]:
    """Fit by a fixed number of Newton steps; also for labels between 0 and 1."""
    rows = x.astype(np.float64) / UNIT
    weights = np.zeros(rows.shape[1])
    for _ in range(NEWTON_STEPS):
        p = _logistic(rows @ weights)
        gradient = rows.T @ (p - y) + PENALTY * weights
        # at least a tenth of the largest curvature, so that steps cannot diverge
        curved = (rows * np.maximum(p * (1 - p), 0.025)[:, None]).T @ rows + PENALTY * np.eye(rows.shape[1])
        weights = weights - np.linalg.solve(curved, gradient)
    return {"weights": weights}


def _logistic(score: FloatArray) -> FloatArray:
    small = np.exp(-np.abs(score))
    return np.asarray(np.where(score >= 0, 1.0, small) / (1.0 + small), np.float64)


# --- trees ---------------------------------------------------------------------------------------------------


def _cells(x: IntArray) -> IntArray:
    """Bin coordinates to 0 … CELLS − 1: int64, the same shape."""
    return np.minimum((x + UNIT) * CELLS // (2 * UNIT), CELLS - 1)


def _fit_trees(x: IntArray, y: FloatArray) -> dict[str, npt.NDArray[Any]]:
    """Boost for the squared loss with whole trees of depth DEPTH: every node splits, so all trees are one size."""
    cells, (n, width) = _cells(x), x.shape
    inner, leaves = (1 << DEPTH) - 1, 1 << DEPTH
    columns, cuts = np.zeros((ROUNDS, inner), np.int16), np.zeros((ROUNDS, inner), np.int16)
    values = np.zeros((ROUNDS, leaves))
    base = (y.sum() + 0.5) / (n + 1.0)
    rest = y - base
    offsets = np.arange(width) * CELLS
    for t in range(ROUNDS):
        node = np.zeros(n, np.int64)  # among those of its level
        for level in range(DEPTH):
            nodes = 1 << level
            place = ((node[:, None] * width * CELLS) + offsets + cells).ravel()
            size = nodes * width * CELLS
            counts = np.bincount(place, minlength=size).reshape(nodes, width, CELLS).cumsum(2)
            sums = np.bincount(place, np.repeat(rest, width), size).reshape(nodes, width, CELLS).cumsum(2)
            below, total = sums[:, :, :-1], sums[:, :, -1:]
            n_left, n_all = counts[:, :, :-1], counts[:, :, -1:]
            gain = below**2 / (n_left + PENALTY) + (total - below) ** 2 / (n_all - n_left + PENALTY)
            best = gain.reshape(nodes, -1).argmax(1)
            at = nodes - 1 + np.arange(nodes)
            columns[t, at], cuts[t, at] = best // (CELLS - 1), best % (CELLS - 1)
            goes_right = cells[np.arange(n), columns[t, at[node]]] > cuts[t, at[node]]
            node = 2 * node + goes_right
        counted = np.bincount(node, minlength=leaves)
        values[t] = RATE * np.bincount(node, rest, leaves) / (counted + PENALTY)
        rest = rest - values[t][node]
    return {"columns": columns, "cuts": cuts, "values": values, "base": np.array(base)}


def _predict_trees(state: State, x: IntArray) -> FloatArray:
    """Descend DEPTH steps in every tree, for any input."""
    cells = _cells(x)
    columns, cuts, values = state["columns"], state["cuts"], state["values"]
    node = np.zeros(columns.shape[:2], np.int64)
    for level in range(DEPTH):
        at = (1 << level) - 1 + node
        column = np.take_along_axis(columns, at[..., None], 2)[..., 0]
        cut = np.take_along_axis(cuts, at[..., None], 2)[..., 0]
        node = 2 * node + (cells[column] > cut)
    return np.asarray(state["base"] + np.take_along_axis(values, node[..., None], 2)[..., 0].sum(1), np.float64)


LEARNERS: dict[str, PartLearner] = {
    learner.name: learner
    for learner in (
        PartLearner("ridge", _fit_ridge, _predict_ridge),
        PartLearner(
            "logistic", _fit_logistic, lambda state, x: _logistic(state["weights"] @ (x.astype(np.float64) / UNIT))
        ),
        PartLearner("trees", _fit_trees, _predict_trees),
    )
}
