"""A limit to how far predictions move from the mean: as far as labels support it, less what chance alone explains.

Held-out labels support a weighted sum of members by z²: the reduction of squares along its direction, in units of one
row's noise variance. For labels that no feature predicts, z² is not the square of one normal number: the same labels
choose among members and numbers of trees, and folds that learned from each other agree by chance. In trainings on
shuffled features of bike and census it stayed below a χ² of DIRECTIONS degrees of freedom. With p the share of that
distribution above z², S the variance of labels without noise and σ²/n a row's noise variance over the rows,

    variance of predictions  ≤  S·SMALL/p                  no limit if p ≤ SMALL
    and, out of fold,        ≤  S/3 or (z² − USUAL)·σ²/n   whichever is more

If features predict nothing, the error above the mean's is the variance of predictions, and p is uniform on 0…1 or
larger. So the first limit bounds that error, on average, by S·SMALL·(1 + ln 1/SMALL) = 0.8 % of S. Without it that was
up to 15 %, since at a small ε one row's noise over the rows can be a third of S. If features are informative, p falls
quickly with every further row. The second limit guards against extreme luck: a large z² is mostly luck if S is a few
σ²/n. If labels are precise, neither limit binds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from label_dp.numbers import rounded_up

FloatArray = npt.NDArray[np.float64]

DIRECTIONS = 6
USUAL = 12.6  # 95 % quantile of z² by chance
SMALL = 0.001
EXPLAINED = 1.0 / 3.0
NOTHING = "these labels say too little of the features: the model predicts the mean for everybody"


@dataclass(frozen=True)
class Belief:
    """Limit on predictions.

    `chance` bounds the probability that uninformative features would score as high. `variance` is the largest variance
    of predictions around the mean, in squared label units, infinite without a limit. `factor`, at most 1, shrinks the
    weights of the members for the second limit.
    """

    chance: float
    variance: float
    factor: float = 1.0

    @classmethod
    def of(cls, moved: FloatArray, left: FloatArray, weights: FloatArray, spread: float) -> Belief:
        """Compute the limit from out-of-fold predictions `moved` float64[n] and labels `left` float64[n], both less the
        mean.

        Row weights float64[n] have mean 1; `spread` is S.
        """
        square, along = float(weights @ (moved * moved)), float(weights @ (moved * left))
        if square <= 0.0:
            return cls(1.0, 0.0)
        gain = along * along / square if along > 0.0 else 0.0
        noise = (float(weights @ (left * left)) - gain) / len(left)
        chance = _chance(gain / noise) if noise > 0.0 else 0.0
        plausible = max(spread * EXPLAINED, (gain - USUAL * noise) / len(left))
        factor = math.sqrt(min(1.0, plausible * len(left) / square))
        return cls(chance, math.inf if chance <= SMALL else spread * SMALL / chance, factor)

    @property
    def certain(self) -> bool:
        return math.isinf(self.variance)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the card."""
        if self.certain:
            return ()
        if self.variance == 0.0:
            return (NOTHING,)
        return (
            "labels that no feature tells would say as much by chance, up to "
            f"{rounded_up(100.0 * self.chance, 2):g} % of the time, so predictions were kept near the mean",
        )


def drawn_in(moved: FloatArray, belief: Belief) -> float:
    """Return the factor, at most 1, that brings predictions less the mean, float64[n], within the variance."""
    if belief.certain:
        return 1.0
    square = float(np.mean(moved * moved))
    return math.sqrt(belief.variance / square) if square > belief.variance else 1.0


def _chance(z2: float) -> float:
    """Return the upper tail of χ² of DIRECTIONS, an even number, at z²."""
    half = z2 / 2.0
    return math.exp(-half) * sum(half**i / math.factorial(i) for i in range(DIRECTIONS // 2)) if half < 500.0 else 0.0
