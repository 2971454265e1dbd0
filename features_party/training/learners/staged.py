"""The number of trees: grown until held-out labels no longer show clearly that more of them help.

A booster grown for validation is evaluated after a few numbers of trees, the STAGES. From the rule's number on, the
next stage is grown only while held-out errors have fallen by more than their standard error: little noise takes many
times the rule's trees, much noise grows none in vain. Only the first fold decides; others grow as many.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from features_party.training.learner import Sample
from features_party.training.learners.trees import TreeInput, Trees

FloatArray = npt.NDArray[np.float64]

STAGES = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0)  # of the rule's number of trees


def stages_of(ruled: int) -> list[int]:
    """Return numbers of trees, rising."""
    return sorted({max(round(ruled * stage), 1) for stage in STAGES})


@dataclass
class Course:
    """Predictions for held-out rows by increasing numbers of trees of one booster.

    `first` float64[h] are the scores that they add to, None for their own constant.
    """

    rows: TreeInput
    first: FloatArray | None
    bounds: tuple[float, float]
    threads: int
    _score: FloatArray | None = field(default=None, repr=False)
    _trees: int = 0

    def after(self, trees: Trees, count: int) -> FloatArray:
        """Predict with the first `count` trees, float64[h] clipped to the bounds; call in rising order."""
        if self._score is None:
            self._score = trees.scores(self.rows, self.threads, self.first, count)
        elif min(count, trees.count) > self._trees:
            nothing = np.zeros(len(self.rows))
            self._score = self._score + trees.scores(self.rows, self.threads, nothing, count, self._trees)
        self._trees = min(count, trees.count)
        return np.clip(trees.linked(self._score), *self.bounds)


@dataclass
class Growth:
    """Predictions of one booster for `held` at every stage that it reaches, float64[h] by number of trees."""

    course: Course
    held: Sample
    stages: list[int]
    ruled: int
    predictions: dict[int, FloatArray] = field(default_factory=dict)
    _best: FloatArray | None = field(default=None, repr=False)

    def enough(self, trees: Trees, count: int) -> bool:
        """Check whether `count` trees are enough."""
        if count not in self.stages:
            return False
        prediction = self.predictions[count] = self.course.after(trees, count)
        errors = self.held.row_weights * (self.held.labels - prediction) ** 2
        if self._best is None:
            self._best = errors
            return False
        gain = self._best - errors
        if gain.mean() > 0.0:
            self._best = errors
        return count >= self.ruled and not bool(gain.mean() > gain.std() / np.sqrt(len(gain)))
