"""A model against the constant: by outputs that it was not fitted on, in the loss that it was trained with.

From the constant c to a score f the loss of a row changes by the integral of its gradient, whatever the loss. A model
is kept if held-out outputs prefer it by more than CHANCE standard errors of that difference. Scores that no feature
predicts, of spread s = Σh(f − c)² over a row's noise φ = Σg²/Σh (g and h are gradients and Hessians at c; Wedderburn
1974), gain a normal number of mean −s/2 and variance s. So they pass less than once in 40 draws, and the more rarely
the more harm they could do.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from features_party.training.draws import Draws, dealt
from features_party.training.learner import ModelInput, Sample, Task
from features_party.training.links import Gradients, Link, PoissonScore, straight_line
from features_party.training.objectives import ChannelGradients, smooth_absolute, squared
from features_party.training.progress import part
from label_dp.progress import Progress

FloatArray = npt.NDArray[np.float64]
Scored = Callable[[ModelInput], FloatArray]
Fitting = Callable[[ModelInput, Sample, Task, Progress], Scored]

SMALLEST = 50  # rows: with fewer, held-out errors are mostly chance
MANY = 200_000  # rows from which validation takes fewer folds, and one if labels are precise enough
CHANCE = 2.0
CLEAR = 6.0  # of one fold: the others would not change it; nor would they below -CHANCE
NODES = 8  # of the quadrature of a gradient


def assign_folds(draws: Draws, purpose: str = "validation") -> npt.NDArray[np.int8]:
    """Assign rows to folds int8[n]: three to five, fewest for few rows and for many; rows of one example share one."""
    rows = len(draws)
    return dealt(draws, 3 if rows < 5000 or rows >= MANY else 5 if rows < 30_000 else 4, purpose)


@dataclass(frozen=True)
class Objective:
    """Loss of scores: their link, gradients of rows, and the constant score before anything is learned."""

    link: Link | None
    gradients: Gradients
    constant: float

    @classmethod
    def of(cls, sample: Sample, task: Task, through: ChannelGradients | None) -> Objective:
        """Build the objective. `through`: gradients by the channels of the rows, which the Poisson loss ignores."""
        mean = sample.mean
        if task.loss == "poisson":
            link = PoissonScore.around(mean, *task.bounds)
            return cls(link, link.gradients, link.base())
        if through is not None:
            return cls(through.link, through, through.start)
        if task.loss == "absolute":
            spread = math.sqrt(task.capacity.label_variance) or 1.0
            return cls(None, smooth_absolute(0.1 * spread), float(np.median(sample.labels)))
        return cls(None, squared, mean)


@dataclass(frozen=True)
class OutOfFold:
    """Out-of-fold `scores` and the `constants` they are compared with, float64[n]; `fold` int8[n]. Covers rows in the
    first `used` folds; both are 0 elsewhere."""

    scores: FloatArray
    constants: FloatArray
    fold: npt.NDArray[np.int8]
    used: int

    def gain(self, sample: Sample, objective: Objective) -> float:
        """Return the gain of the scores over the constants in standard errors; 0 if no score differs.

        The standard error is that of the rows that have scores, which shows if one rare label may have made all of the
        gain, or of all rows, which include rare labels that these lack.
        """
        moves, gains = np.where(self.fold < self.used, self.scores - self.constants, 0.0), np.zeros(len(self.fold))
        for at, weight in zip(*np.polynomial.legendre.leggauss(NODES), strict=True):
            gradient, _ = objective.gradients(self.constants + (1.0 + at) / 2.0 * moves, sample.labels)
            gains -= weight / 2.0 * sample.row_weights * gradient * moves
        slopes, _ = objective.gradients(np.full(len(self.fold), objective.constant), sample.labels)
        usual = float(np.mean((sample.row_weights * slopes) ** 2)) * float(moves @ moves)
        error = math.sqrt(max(float(gains @ gains), usual))
        return float(gains.sum()) / error if error > 0.0 else 0.0

    def decides(self, sample: Sample, objective: Objective) -> bool:
        """Check whether one fold is enough."""
        return not -CHANCE <= self.gain(sample, objective) <= CLEAR

    def straightened(self, slope: float, shift: float, constant: float) -> OutOfFold:
        """Return slope·scores + shift, beside the constant of all rows, from which the shift was chosen."""
        return replace(self, scores=slope * self.scores + shift, constants=np.full(len(self.fold), constant))

    def line(self, sample: Sample, objective: Objective) -> tuple[float, float]:
        """Return the most likely slope and shift of the scores, which all folds share."""
        middle, w = objective.constant, sample.row_weights
        slopes, bends = objective.gradients(np.full(len(sample.labels), middle), sample.labels)
        noise = float(np.sum((w * slopes) ** 2)) / max(float(w @ bends), 1e-300)  # φ
        if noise <= 0.0:
            return 0.0, middle

        def weighed(score: FloatArray, labels: FloatArray) -> tuple[FloatArray, FloatArray]:
            gradient, hessian = objective.gradients(score + middle, labels)
            return w * gradient, w * hessian

        longest = math.inf if objective.link is None else 1.0
        slope, shift = straight_line(weighed, self.scores - middle, sample.labels, 1.0 / noise, longest)
        return slope, shift + (1.0 - slope) * middle


def out_of_fold(
    sample: Sample,
    task: Task,
    fitting: Fitting,
    progress: Progress,
    enough: Callable[[OutOfFold], bool] = lambda _scores: False,
) -> OutOfFold:
    """Score rows by models of the other folds.

    `fitting` returns the scores of a model of some rows; `enough` decides after the first fold whether the others are
    needed.
    """
    fold = assign_folds(sample.draws)
    count = int(fold.max()) + 1
    scores, constants = np.zeros(len(fold)), np.zeros(len(fold))
    for at in range(count):
        train, test = np.flatnonzero(fold != at), np.flatnonzero(fold == at)
        rest, channel_gradients = sample.take(train), None if task.told is None else task.told.take(train)
        own = replace(task, told=channel_gradients, watch=lambda _place, _loss: None)
        objective = Objective.of(rest, own, channel_gradients)
        low, high = task.bounds if objective.link is None else (objective.link.low, objective.link.high)
        model_input, effects = rest.seen(task)
        scored = fitting(model_input, rest, own, part(progress, at / count, 1.0 / count))
        later = sample.encoded.take(test)
        scores[test] = np.clip(scored(ModelInput(later, effects.apply(later.codes), task.sizes)), low, high)
        constants[test] = objective.constant
        unseen = OutOfFold(scores, constants, fold, at + 1)
        if at == 0 and enough(unseen):
            break
    return unseen
