"""How much better than a constant a model is, estimated from privatized labels alone. Costs no ε.

(c − y)² − (p − y)² is affine in y. With E[z | y] = y its mean over rows that were not trained on is therefore
estimated without bias from z in place of y, whatever the labels' distribution; with a biased channel it is not, and
no figure is given. The error itself would need E[Var(z | y)] under the true labels, which is nowhere public.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

HELD_OUT = 5  # one row in five
MIN_ROWS = 1000
NORMAL_95 = 1.959964


@dataclass(frozen=True)
class Estimate:
    """Drop of the mean squared error from the constant prediction to the model, and its 95 % interval."""

    mse_below_constant: float
    low: float
    high: float
    rows: int

    def as_json(self) -> dict[str, object]:
        return asdict(self)


def gain_over_constant(
    labels: FloatArray,
    groups: npt.NDArray[np.integer],
    fit_and_predict: Callable[[npt.NDArray[np.int64], npt.NDArray[np.int64]], tuple[FloatArray, float]],
) -> Estimate | None:
    """`labels` float64[n] with E[z | y] = y. `groups` integer[n]: rows of one group stay together (one example with
    two labels). `fit_and_predict(train, held)` gives predictions for `held` and the constant. None below 1000 rows."""
    if len(labels) < MIN_ROWS:
        return None
    side = np.random.default_rng(1).integers(0, HELD_OUT, int(groups.max()) + 1)[groups] == 0
    train, held = np.flatnonzero(~side), np.flatnonzero(side)
    if not len(train) or not len(held):
        return None
    predictions, constant = fit_and_predict(train, held)
    z = labels[held]
    gain = (constant - z) ** 2 - (predictions - z) ** 2
    mean, half = float(gain.mean()), NORMAL_95 * float(gain.std()) / math.sqrt(len(held))
    return Estimate(mean, mean - half, mean + half, len(held))
