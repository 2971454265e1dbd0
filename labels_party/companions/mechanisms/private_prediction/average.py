"""The average of the predictions of disjoint parts' models, with noise."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from labels_party.companions.mechanisms.private_prediction import GRID
from labels_party.companions.mechanisms.private_prediction.lattice import Noise, laplace_noise, noisy

SENSITIVITY = GRID  # of the sum: one example is in one part, whose prediction may move from end to end


def parts_for(alpha: Fraction, epsilon: Fraction) -> int:
    """Return ⌈1/(αε)⌉ parts: the noise is then α of the range on average (Lemma 4.5; Corollary 4.7 takes as many)."""
    return math.ceil(1 / (alpha * epsilon))


def clipped_sum(predictions: npt.NDArray[np.float64]) -> int:
    """Sum the predictions float64[m], each a share of the label range, clipped to [0, 1] and rounded to the grid.

    Each is a whole number of 0 … GRID by itself, so for any computation another model of one part moves the sum by at
    most GRID. NaN counts as 0.
    """
    share = np.clip(np.nan_to_num(predictions, nan=0.0, posinf=1.0, neginf=0.0), 0.0, 1.0)
    return int(np.rint(share * GRID).astype(np.int64).sum())


def noisy_average(total: int, parts: int, epsilon: Fraction, noise: Noise = laplace_noise) -> int:
    """Add noise to the `total` of `clipped_sum` over `parts` models: 0 … parts·GRID, to be divided by parts·GRID.

    ε-DP if replacing one example, label and features, changes one model: noise of scale GRID/ε, so range/(parts·ε) of
    the average. Source: Dwork & Feldman 2018, Lemmas 4.5 and 4.6. Raises InvalidMechanism, RandomnessUnavailable.
    """
    return noisy(total, SENSITIVITY, epsilon, (0, parts * GRID), noise)
