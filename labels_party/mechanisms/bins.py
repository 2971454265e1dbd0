"""The bins of randomized response: the optimal monotone map of labels to outputs, for a prior and an ε."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import partial
from types import ModuleType

import numpy as np
import numpy.typing as npt

from label_dp.errors import InvalidLoss
from label_dp.losses import Loss, get_loss
from label_dp.privacy import Epsilon
from labels_party.mechanisms.bins_grid import solve_grid
from labels_party.mechanisms.bins_matrix import solve_matrix
from labels_party.mechanisms.bins_paths import (
    MAX_REPRESENTABLE_EPSILON,
    Instance,
    Path,
    dinkelbach,
    least_path,
    path_cost,
    trace,
)
from labels_party.mechanisms.prior import check_prior

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

NUMPY_LABELS = 1500  # up to here the path without numba takes well under a second
STORED_LABELS = 2000  # up to here all edge costs are stored between rounds
EXACT_LABELS = 1 << 14
COARSE = 8
POLISH_ROUNDS = 100

_kernels: ModuleType | None = None


@dataclass(frozen=True, eq=False)
class Bins:
    """Bins: bin j holds the labels at positions boundaries[j] … boundaries[j + 1] − 1 and becomes `values[j]`.

    `boundaries` int64[d + 1], `values` float64[d] strictly increasing, `expected_loss` at the given prior and ε, `gap`
    a proven bound of (expected_loss − optimum)/expected_loss (0.0: exact up to rounding).
    """

    boundaries: IntArray
    values: FloatArray
    expected_loss: float
    gap: float


def warm_up() -> None:
    """Load the compiled kernels (compiling them if NUMBA_CACHE_DIR has none); later solves use them."""
    global _kernels
    if _kernels is None:
        from labels_party.mechanisms import bins_kernels

        bins_kernels.warm_up()
        _kernels = bins_kernels


def solve_bins(
    prior: npt.ArrayLike,
    labels: npt.ArrayLike,
    epsilon: Epsilon | float | str,
    loss: str | Loss = "squared",
) -> Bins:
    """Find the bins of least expected loss of randomized response at ε, for labels (float64[k], increasing) that follow
    `prior`.

    Under Assumption 4 this is optimal among all ε-DP randomizers (Ghazi et al. 2022, Theorem 5); for a matrix loss the
    best of its family. Exact up to 2¹⁴ labels (2,000 for log) and for a matrix loss; above, the outputs are searched
    coarse to fine and `gap` is the proven bound. Every label belongs to its nearest output. A weaker solution would
    cost utility, never privacy. Raises InvalidPrior, InvalidLoss, InvalidEpsilon.
    """
    y = np.asarray(labels, dtype=np.float64)
    ell = get_loss(loss)
    ell.check(y)
    if np.any(np.diff(y) <= 0):
        raise InvalidLoss("The labels must be strictly increasing.")
    p = check_prior(prior, y.size)
    exponent = float(Epsilon.parse(epsilon))
    candidates = ell.candidates
    if candidates is not None:
        gain = math.expm1(min(exponent, MAX_REPRESENTABLE_EPSILON))
        boundaries, columns, expected = solve_matrix(p, ell.matrix(candidates, y), gain)
        return Bins(boundaries, candidates[columns], expected, 0.0)
    instance = Instance.of(p, y, exponent, ell)
    if y.size > (STORED_LABELS if ell.name == "log" else EXACT_LABELS):
        values, bound = solve_grid(instance)
        boundaries, values, expected = polish(instance, values)
        gap = 1.0 - bound * instance.unit / expected if expected > 0 else 0.0
        return Bins(boundaries, values, expected, min(1.0, max(0.0, gap)))
    boundaries, values, expected = polish(instance, _exact_values(instance))
    return Bins(boundaries, values, expected, _rounding_gap(instance, expected))


def polish(instance: Instance, values: FloatArray) -> tuple[IntArray, FloatArray, float]:
    """Alternate nearest output and best output until the loss no longer falls: (boundaries, values, loss)."""
    boundaries, values = instance.assign(values)
    best = boundaries, values, instance.expected_loss(boundaries, values)
    for _ in range(POLISH_ROUNDS):
        boundaries, values = instance.assign(instance.best_values(best[0]))
        reached = instance.expected_loss(boundaries, values)
        if reached >= best[2]:
            break
        best = boundaries, values, reached
    return best


def _rounding_gap(instance: Instance, expected: float) -> float:
    """Return the rounding of the prefix sums as a share of the loss; 0.0 if it is negligible."""
    if np.count_nonzero(np.diff(instance.p0)) <= 1:
        return 0.0  # all mass on one label, which is an output of its own: nothing is lost
    spread = float(instance.p2[-1]) if instance.loss.name != "absolute" else float(np.ptp(instance.x))
    error = 16 * np.finfo(np.float64).eps * instance.gain / (1.0 + instance.gain) * spread * instance.unit
    if error <= 1e-9 * expected:
        return 0.0
    return min(1.0, error / expected) if expected > 0 else 1.0


def _exact_values(instance: Instance) -> FloatArray:
    if instance.k > NUMPY_LABELS:
        warm_up()
    if instance.loss.name == "absolute":
        path = _absolute_path(instance)
        return np.asarray(instance.labels[np.array(path[1:-1]) - 1], np.float64)
    return instance.best_values(np.array(_interval_path(instance), dtype=np.int64))


def _interval_path(instance: Instance) -> Path:
    s, whole = instance, [0, instance.k]
    poisson = s.loss.name == "poisson"
    if s.k <= STORED_LABELS:
        if _kernels is None or s.loss.name == "log":
            edges = s.interval_edges()
            return dinkelbach(partial(least_path, edges), path_cost(edges), whole, s.gain, 0)[0]
        kernels = _kernels
        edges = kernels.interval_edges(s.p0, s.p1, s.p2, s.gain, s.floor, poisson)
        return dinkelbach(lambda price: trace(kernels.least_path(edges, price)), path_cost(edges), whole, s.gain, 0)[0]
    assert _kernels is not None
    kernels = _kernels

    def cost(path: Path) -> float:
        return math.fsum(float(s.interval_row(i, j + 1)[-1]) for i, j in itertools.pairwise(path))

    def search(nodes: IntArray, price: float) -> Path:
        came = kernels.interval_path(s.p0[nodes], s.p1[nodes], s.p2[nodes], s.gain, s.floor, poisson, price)
        return [int(nodes[i]) for i in trace(came)]

    # a coarse set of boundaries gives a first price near the last one, for a fraction of a full round
    coarse = np.unique(np.concatenate([np.arange(0, s.k, COARSE), [s.k]]))
    start, _ = dinkelbach(lambda price: search(coarse, price), cost, whole, s.gain, 0)
    every = np.arange(s.k + 1)
    return dinkelbach(lambda price: search(every, price), cost, start, s.gain, 0)[0]


def _absolute_path(instance: Instance) -> Path:
    s = instance
    opening = s.overall(s.labels)
    start = [0, int(np.argmin(opening)) + 1, s.k + 1]
    if _kernels is None:
        edges = s.candidate_edges(s.labels)
        return dinkelbach(partial(least_path, edges), path_cost(edges), start, s.gain, 1)[0]
    kernels = _kernels

    def cost(path: Path) -> float:
        values = s.labels[np.array(path[1:-1]) - 1]
        boundaries, values = s.assign(values)
        return s.expected_loss(boundaries, values) / s.unit * (values.size + s.gain)

    def search(price: float) -> Path:
        return trace(kernels.absolute_path(s.x, s.p0, s.p1, opening, s.gain, price))

    return dinkelbach(search, cost, start, s.gain, 1)[0]
