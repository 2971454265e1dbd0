"""What is said of a final model's error from privatized labels of its own training rows, and what it really is."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from scipy.stats import binom

from features_party.training.encoding import FeatureSchema
from features_party.training.estimate import ErrorEstimate, Identified, estimate
from features_party.training.holdout import identify
from features_party.training.intervals import NORMAL_95, Folds, Interval
from label_dp.channels.base import Channel
from label_dp.domain import Domain
from tests.support.real_data import ID, Task

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

FOLDS = 3  # the fewest that trainings take, whose models are the worst
MOST_ROWS = 20_000
MOST_VALUES = 64  # of a category with a column for each


@dataclass(frozen=True)
class Rows:
    """A design float64[n, p] of n rows and the positions int64[n] of their labels in the domain."""

    design: FloatArray
    index: IntArray
    domain: Domain

    @classmethod
    def of(cls, task: Task) -> Rows:
        """At most 20,000 rows of a task: numbers standardised, a column for each value of a small category."""
        table, domain = pa.concat_tables([task.train, task.test]), Domain.parse(task.domain)
        table = table.take(np.random.default_rng(0).permutation(table.num_rows)[:MOST_ROWS])
        index, _ = domain.index(table[task.label].to_numpy().astype(np.float64))
        features = table.drop_columns([ID, task.label])
        schema = FeatureSchema.learn(features)
        encoded = schema.encode(features)
        numbers = np.nan_to_num(encoded.numbers.astype(np.float64))
        columns = [(numbers - numbers.mean(axis=0)) / np.maximum(numbers.std(axis=0), 1e-9)]
        for at, size in enumerate(schema.sizes):
            if size <= MOST_VALUES:
                columns.append(np.eye(size)[encoded.codes[:, at] + 1][:, 1:])
        return cls(np.column_stack([np.ones(len(index)), *columns]), index, domain)


@dataclass(frozen=True)
class Trial:
    """`told` from out-of-fold predictions; on rows that nobody trained on, the final model's squared error `mse` and
    its `gain` over the constant."""

    told: ErrorEstimate
    mse: float
    gain: float


@dataclass(frozen=True)
class Known:
    """Of a channel: its cumulative rows float64[k, m], what its outputs say, and the noise of its corrected labels."""

    below: FloatArray
    says: Identified
    noise: float

    @classmethod
    def of(cls, channel: Channel) -> Known:
        says = identify(channel)
        return cls(np.cumsum(channel.rows(0, channel.k), axis=1), says, float(channel.moments(says.first)[1].mean()))

    def drawn(self, index: IntArray, rng: np.random.Generator) -> Identified:
        """What outputs of labels at positions int64[n] say, by repeatable randomness: arithmetic is tested here."""
        outputs = (self.below[index] < rng.random(len(index))[:, None]).sum(axis=1)
        outputs = np.minimum(outputs, self.below.shape[1] - 1)
        second = None if self.says.second is None else self.says.second[outputs]
        return replace(self.says, first=self.says.first[outputs], second=second)


def trial(rows: Rows, known: Known, rng: np.random.Generator, trained: int, used: int | None = None) -> Trial:
    """`trained` rows at random with a draw of their own, a ridge of all and one of each fold's others, or of the first
    `used`; all other rows judge."""
    order = rng.permutation(len(rows.index))
    here, there = order[:trained], order[trained:]
    seen = known.drawn(rows.index[here], rng)
    x, z, noise = rows.design[here], seen.first + seen.centre, known.noise
    penalty = np.eye(x.shape[1]) * x.shape[1] * noise / max(float(np.var(z)) - noise, 0.02 * float(np.var(z)))
    penalty[0, 0] = 0.0

    def fitted(at: IntArray) -> FloatArray:
        return np.linalg.solve(x[at].T @ x[at] + penalty, x[at].T @ z[at])

    fold, predictions, constants = rng.permutation(trained) % FOLDS, np.empty(trained), np.empty(trained)
    low, high = rows.domain.ends
    for number in range(FOLDS):
        train, held = np.flatnonzero(fold != number), np.flatnonzero(fold == number)
        predictions[held] = np.clip(x[held] @ fitted(train), low, high)
        constants[held] = z[train].mean()
    every, folds = np.arange(trained), Folds(FOLDS, used)
    at = np.flatnonzero(fold < (FOLDS if used is None else used))
    second = None if seen.second is None else seen.second[at]
    told = estimate(predictions[at], constants[at], replace(seen, first=seen.first[at], second=second), at, folds)
    truth = rows.domain.values[rows.index[there]]
    mse = float(np.mean((np.clip(rows.design[there] @ fitted(every), low, high) - truth) ** 2))
    return Trial(told, mse, float(np.mean((z.mean() - truth) ** 2)) - mse)


@dataclass
class Coverage:
    """How often 95 % intervals hold the final model's figure; `narrow`: those of a quarter of the width, a control."""

    tried: int = 0
    held: int = 0
    narrow: int = 0

    def add(self, said: Interval, truth: float) -> None:
        self.tried += 1
        self.held += said.low <= truth <= said.high
        self.narrow += abs(truth - said.estimate) <= 0.25 * NORMAL_95 * said.standard_error

    @property
    def bound(self) -> int:
        """Of `held`, when intervals cover as they say: fewer once in 10⁶."""
        return int(binom.ppf(1e-6, self.tried, 0.95))


def coverage(
    rows: Rows,
    channel: Channel,
    rng: np.random.Generator,
    trained: int,
    most: int,
    until: float = np.inf,
    used: int | None = None,
) -> dict[str, Coverage]:
    """Of `most` trials, or fewer where time.monotonic() passes `until`: of the gain over the constant, and of the
    squared error where the channel identifies it. `used`: so many folds were enough."""
    known, found = Known.of(channel), {"gain": Coverage()}
    for _ in range(most):
        one = trial(rows, known, rng, trained, used)
        found["gain"].add(one.told.mse_below_constant, one.gain)
        if one.told.mse is not None:
            found.setdefault("mse", Coverage()).add(one.told.mse, one.mse)
        if time.monotonic() > until:
            break
    return found
