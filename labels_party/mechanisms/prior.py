"""The private prior: a noisy histogram of the labels on public cells, projected to the probability simplex."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
import numpy.typing as npt

from label_dp.errors import InvalidEpsilon, InvalidPrior
from label_dp.prior_cells import prior_cells
from label_dp.privacy import NANO, ZERO, Epsilon
from labels_party.mechanisms.entropy import LaplaceNoise, discrete_laplace

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

SENSITIVITY = 2  # replacing one label moves one count down and one up
AUTO_SHARE = 40
LARGEST_SHARE = 3
AUTO_FACTOR = 1.6
FROM_ZERO_FACTOR = 16.0  # of labels that begin at zero most may be zero, and the few others decide
FEWEST_CELLS = 8
ROWS_PER_CELL = 400  # n·ε for each cell: at ε/40 the noise of a cell is then a quarter of its mass
FROM_ZERO_FEWEST = 16
FROM_ZERO_MEAN_ROWS = 45  # n·ε for each cell if cells are few: from here on the prior's mean is as good as the labels'
FROM_ZERO_ROWS = 8000  # the same if labels begin at zero: there most cells hold few labels
ENOUGH = 30  # n·ε_prior for each of the fewest cells
HOPELESS = 2  # n·ε_prior for each of them, below which noise exceeds the signal


@dataclass(frozen=True, eq=False)
class PriorPlan:
    """Cost of a prior and the cells it is estimated on; made of public facts only.

    `epsilon` may be 0 (ε too small to be split): the prior is then uniform. `cells` int64[g + 1] rises from 0 to k.
    """

    epsilon: Epsilon
    cells: IntArray


def public_cells(k: int, epsilon: Epsilon, n: int, from_zero: bool = False) -> IntArray:
    """Return boundaries of the g cells of `prior_cells`, int64[g + 1], from k, ε, n and whether the labels begin at 0
    alone.

    g is at most 32 below ε = 2, 48 below 3, 64 below 6 and 128 from there on. It is n·ε/400 if that is smaller, but not
    under 8 (noise of scale 80/ε would drown finer cells). If labels begin at 0, it is n·ε·max(ε, 1)/8000 if that is
    smaller, but below ε = 2 not under 16 from n·ε = 720 on: of 8 growing cells the last one is too wide to show the
    mean.
    """
    limit = 32 if epsilon.nano < 2 * NANO else 48 if epsilon.nano < 3 * NANO else 64 if epsilon.nano < 6 * NANO else 128
    fraction = max(epsilon.fraction, Fraction(1)) / FROM_ZERO_ROWS if from_zero else Fraction(1, ROWS_PER_CELL)
    of_mean = from_zero and epsilon.nano < 2 * NANO  # from there on labels show it themselves
    fewest = min(FROM_ZERO_FEWEST, math.floor(epsilon.fraction * n / FROM_ZERO_MEAN_ROWS)) if of_mean else 0
    g = min(k, max(FEWEST_CELLS, fewest, min(limit, math.floor(epsilon.fraction * n * fraction))))
    return prior_cells(k, g, from_zero)


def prior_epsilon(rule: str | Epsilon, *, k: int, n: int, epsilon: Epsilon, from_zero: bool = False) -> PriorPlan:
    """Plan the prior's share of the total `epsilon`, rounded down to whole nano-ε, and its cells.

    "auto": min(ε/40, 1.6·(g/n)^⅔) on the g public cells: the cost of noise in the prior falls with the square of
    n·ε_prior/g, the cost to the labels rises with ε_prior, so their sum is least at such a power of g/n. Above ε = 4 it
    grows with ε: many bins then depend on the prior, and a poor one costs more than a little ε. If labels begin at
    zero, 16 replaces 1.6: most may be zero, and all then depends on the few that are not. If ε/40 is under 240/n, it is
    that much, but at most ε/3: with so few labels a model learns little but the mean, for which a prior is better.
    Nothing if even ε/3 is under 16/n: a uniform prior is then better than noise. "theorem7": min(√(k/n), ε/2) on all k
    labels (Ghazi et al. 2022, Theorem 7). An explicit amount must leave something for the labels. Raises
    InvalidEpsilon.
    """
    cells = public_cells(k, epsilon, n, from_zero)
    if isinstance(rule, Epsilon):
        if rule >= epsilon:
            raise InvalidEpsilon(
                "ε for the prior must be smaller than the total ε; nothing would be left for the labels."
            )
        return PriorPlan(rule, cells)
    if rule == "theorem7":
        root = math.isqrt(k * NANO * NANO // max(n, 1))
        return PriorPlan(Epsilon(min(root, epsilon.nano // 2)), np.arange(k + 1, dtype=np.int64))
    if rule == "auto":
        g = cells.size - 1
        needed = Fraction(ENOUGH * min(k, FEWEST_CELLS), max(n, 1))
        share = max(epsilon.fraction / AUTO_SHARE, min(needed, epsilon.fraction / LARGEST_SHARE))
        if share * ENOUGH < needed * HOPELESS:
            return PriorPlan(ZERO, cells)
        factor = FROM_ZERO_FACTOR if from_zero else AUTO_FACTOR
        enough = Fraction(factor * (g / max(n, 1)) ** (2 / 3)) * max(Fraction(1), epsilon.fraction / 4)
        return PriorPlan(Epsilon.round_down(min(share, enough)), cells)
    raise InvalidEpsilon('ε for the prior is "auto", "theorem7" or a number.')


def onto_simplex(values: FloatArray) -> FloatArray:
    """Project float64[g] onto the probability simplex, Euclidean (Duchi et al. 2008, by sorting)."""
    values = values - values.max()  # the projection does not change, and large values lose no digits
    descending = np.sort(values)[::-1]
    excess = (np.cumsum(descending) - 1.0) / np.arange(1, values.size + 1)
    last = int(np.flatnonzero(descending > excess)[-1])
    return np.asarray(np.maximum(values - excess[last], 0.0), np.float64)


def estimate_prior(
    counts: IntArray, epsilon: Epsilon, cells: IntArray, method: Literal["project", "clip"] = "project"
) -> FloatArray:
    """Estimate the ε-DP prior (replace-one), float64[k] summing to 1, from the label counts int64[k].

    Counts per cell plus exact discrete Laplace noise of scale 2/ε rounded up (`LaplaceNoise`), divided by n, mapped to
    the simplex by Euclidean projection (`project`) or by max(·, 0) and normalising (`clip`, the paper's), spread evenly
    within each cell. All zero, n = 0 or ε = 0 give the uniform prior. n is public. Raises InvalidPrior,
    RandomnessUnavailable, EpsilonNotProved.
    """
    k, g = counts.size, cells.size - 1
    if g < 1 or cells[0] != 0 or cells[-1] != k or np.any(np.diff(cells) < 1):
        raise InvalidPrior("The cells of a prior must rise strictly from 0 to the number of labels.")
    if method not in ("project", "clip"):
        raise InvalidPrior('A prior is put onto the simplex by "project" or "clip".')
    uniform, n = np.full(k, 1.0 / k), int(counts.sum())
    if not epsilon or n == 0:
        return uniform
    # added as whole numbers: a sum of floats would depend on more than the noisy count if noise is beyond 2⁵³
    noisy = np.add.reduceat(counts, cells[:-1]) + discrete_laplace(LaplaceNoise(SENSITIVITY, epsilon.fraction), g)
    share = noisy.astype(np.float64) / n
    mass = onto_simplex(share) if method == "project" else np.maximum(share, 0.0)
    total = math.fsum(mass.tolist())
    if total <= 0.0:
        return uniform
    widths = np.diff(cells)
    return np.asarray(np.repeat(mass / total / widths, widths), np.float64)


def check_prior(prior: npt.ArrayLike, k: int) -> FloatArray:
    """Return `prior` checked and renormalised, float64[k] summing to 1. Raises InvalidPrior.

    Every probability must be finite and not negative, and the sum 1 within 10⁻⁶ + 10⁻⁹·k.
    """
    try:
        p = np.asarray(prior, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidPrior("A prior is a list of numbers.") from None
    if p.shape != (k,):
        raise InvalidPrior(f"A prior needs one probability for each of the {k} labels of the domain.")
    if not np.all(np.isfinite(p)) or np.any(p < 0):
        raise InvalidPrior("Every probability of a prior must be finite and not negative.")
    total = float(np.sum(p))
    if abs(total - 1.0) > 1e-6 + 1e-9 * k:
        raise InvalidPrior("The probabilities of a prior must sum to 1.")
    return np.asarray(p / total, np.float64)
