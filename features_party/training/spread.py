"""The distribution of labels around a prediction: the two scores of `cells.py` as maximum likelihood curves of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from features_party.training import reading
from features_party.training.cells import SCORES, CellLikelihood, LabelCells
from label_dp.schemas.json_types import JsonObject

FloatArray = npt.NDArray[np.float64]

KNOTS, SMOOTH, RIDGE = 7, 1.0, 1e-3
ENOUGH = 100_000  # rows for the few figures of a curve
MEDIANS = 33  # knots of predictions at which a median is stored
STEPS, HALVINGS, SETTLED = 60, 12, 1e-2  # the last: of a log likelihood, which is precise to about 1


@dataclass(frozen=True)
class ScoreCurve:
    """Scores float64[b, 2] at `knots` float64[b] of a prediction, linear in between."""

    knots: FloatArray
    scores: FloatArray

    def __call__(self, predictions: FloatArray) -> FloatArray:
        """Evaluate at predictions, float64[n, 2]."""
        return np.stack([np.interp(predictions, self.knots, one) for one in self.scores.T], axis=1)

    def as_json(self) -> JsonObject:
        return {"knots": self.knots.tolist(), "scores": self.scores.tolist()}

    @classmethod
    def from_json(cls, data: Any) -> ScoreCurve:
        """Parse the output of `as_json`. Raises KeyError, TypeError or ValueError."""
        knots = reading.numbers(data["knots"], most=reading.FLOAT32)
        if len(knots) < 2 or np.any(np.diff(knots) <= 0.0):
            raise ValueError("the knots of a curve do not rise")
        lines = reading.listed(data["scores"], len(knots))
        return cls(knots, np.stack([reading.numbers(line, SCORES, reading.FLOAT32) for line in lines]))


def fit_curve(told: CellLikelihood, predictions: FloatArray) -> ScoreCurve:
    """Fit the most likely scores given a prediction float64[n], lightly smoothed: the distribution of labels around it.

    Newton's method with the empirical information (Berndt, Hall, Hall & Hausman 1974) and halved steps.
    """
    knots = np.unique(np.quantile(predictions, np.linspace(0.0, 1.0, KNOTS)))
    if len(knots) < 2:
        knots = knots[0] + np.array([0.0, 1.0])
    size = len(knots)
    hats = np.stack([np.interp(predictions, knots, one) for one in np.eye(size)], axis=1)
    differences = np.diff(np.eye(size), axis=0)
    penalty = SMOOTH * np.kron(differences.T @ differences, np.eye(SCORES)) + RIDGE * np.eye(size * SCORES)
    at = np.zeros(size * SCORES)

    def looked(there: FloatArray) -> tuple[FloatArray, float]:
        gradient, cost = told.looked(hats @ there.reshape(size, SCORES))
        return gradient, cost + 0.5 * float(there @ penalty @ there)

    gradient, cost = looked(at)
    for _ in range(STEPS):
        table = (hats[:, :, None] * gradient[:, None, :]).reshape(len(hats), -1)
        slopes = table.sum(axis=0) + penalty @ at
        step = np.linalg.solve(table.T @ table + penalty, slopes)
        if float(slopes @ step) < SETTLED:
            break
        for _ in range(HALVINGS):
            gradient, then = looked(at - step)
            if then <= cost:
                break
            step = step / 2.0
        else:
            break
        at, cost = at - step, then
    return ScoreCurve(knots, at.reshape(size, SCORES))


@dataclass(frozen=True)
class MedianMap:
    """Map from a predicted mean to the median: `values` float64[b] at `knots` float64[b], linear in between, constant
    outside."""

    knots: FloatArray
    values: FloatArray

    def __call__(self, predictions: FloatArray) -> FloatArray:
        """Evaluate at predictions, float64[n]."""
        return np.asarray(np.interp(predictions, self.knots, self.values), np.float64)

    @property
    def bends(self) -> FloatArray:
        """Change of slope at each knot, float64[b]."""
        slopes = np.diff(self.values) / np.diff(self.knots)
        return np.asarray(np.diff(slopes, prepend=0.0, append=0.0), np.float64)

    def as_json(self) -> JsonObject:
        return {"knots": self.knots.tolist(), "values": self.values.tolist()}

    @classmethod
    def from_json(cls, data: Any) -> MedianMap:
        """Parse the output of `as_json`. Raises KeyError, TypeError or ValueError."""
        knots = reading.numbers(data["knots"], most=reading.FLOAT32)
        if len(knots) == 0 or np.any(np.diff(knots) <= 0.0):
            raise ValueError("the knots of a median do not rise")
        return cls(knots, reading.numbers(data["values"], len(knots), reading.FLOAT32))


@dataclass(frozen=True)
class Spread:
    """Distribution of labels around a model's predictions."""

    cells: LabelCells
    curve: ScoreCurve

    @classmethod
    def around(cls, predictions: FloatArray, told: CellLikelihood) -> Spread:
        """Fit to predictions float64[n] by models that did not see the row."""
        some = slice(None, None, -(-len(predictions) // ENOUGH) or 1)
        return cls(told.cells, fit_curve(told.take(some), predictions[some]))

    def quantiles(self, predictions: FloatArray, shares: FloatArray) -> FloatArray:
        """Return quantiles float64[n, q] as `LabelCells.quantiles`."""
        return self.cells.quantiles(self.curve(predictions), shares)

    def medians(self, predictions: FloatArray) -> MedianMap:
        """Tabulate the median of the label around a prediction, for predictions distributed like float64[n]."""
        knots = np.unique(np.quantile(predictions, np.linspace(0.0, 1.0, MEDIANS)))
        return MedianMap(knots, self.quantiles(knots, np.array([0.5]))[:, 0])

    def as_json(self) -> JsonObject:
        return {"cells": self.cells.as_json(), "curve": self.curve.as_json()}

    @classmethod
    def from_json(cls, data: Any) -> Spread:
        """Parse the output of `as_json`. Raises KeyError, TypeError or ValueError."""
        return cls(LabelCells.from_json(data["cells"]), ScoreCurve.from_json(data["curve"]))
