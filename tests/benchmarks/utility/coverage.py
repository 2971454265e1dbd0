"""How often the stated 95 % interval of the estimated test error, from privatized labels alone, holds the true one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from features_party.training.correction import correct
from features_party.training.estimate import held_out
from features_party.training.holdout import estimate_on_rows
from features_party.training.intervals import Interval
from tests.benchmarks.utility.cells import Cell
from tests.benchmarks.utility.message import Message, draw, make_message
from tests.benchmarks.utility.sources import Split, split
from tests.support.training import draws, fit

FloatArray = npt.NDArray[np.float64]
ROWS = 4000  # of one repetition's message
JUDGED = 20_000  # other rows, whose true labels tell the true error
REPETITIONS = 50  # of one cell


FIGURES = ("gain", "mse")
Told = dict[str, tuple[float, Interval | None]]


def coverage(cell: Cell) -> dict[str, Any]:
    """Repetitions with rows, draw and linear model anew, and one channel; the truth comes from rows that the message
    does not have. For "gain", over a constant prediction, and for "mse", where the channel identifies it."""
    data, rng = split(cell.data, 0, cell.rows), np.random.default_rng([7, cell.seed])
    size = min(ROWS, data.n // 2)
    message = make_message(cell, _part(data, rng.permutation(data.n)[:size]))
    told: list[Told] = []
    for _ in range(REPETITIONS):
        rows = rng.permutation(data.n)
        told.append(_repeat(cell, data, message, rows[:size], rows[size : size + JUDGED]))
    result: dict[str, Any] = {"repetitions": REPETITIONS, "rows": size, "real": data.real}
    for figure in FIGURES:
        pairs = [(truth, interval) for truth, interval in (one[figure] for one in told) if interval is not None]
        if pairs:
            result[figure] = {
                "held": sum(interval.low <= truth <= interval.high for truth, interval in pairs),
                "of": len(pairs),
                "width": float(np.mean([interval.high - interval.low for _, interval in pairs])),
                "estimate": float(np.mean([interval.estimate for _, interval in pairs])),
                "truth": float(np.mean([truth for truth, _ in pairs])),
            }
    return result


def _part(data: Split, rows: npt.NDArray[np.int64]) -> Split:
    return replace(data, features=data.features.take(rows), index=data.index[rows], truth=data.truth[rows])


def _repeat(
    cell: Cell, data: Split, message: Message, rows: npt.NDArray[np.int64], others: npt.NDArray[np.int64]
) -> Told:
    """By figure: the true one, and what is said of it."""
    part = _part(data, rows)
    outputs = draw(message, part)
    shares = np.bincount(outputs, minlength=message.channel.m) / part.n
    correction = correct(message.channel, cell.correction, message.prior, shares, part.n)
    labels = correction.corrected[outputs]
    models = []

    def fit_and_predict(train: npt.NDArray[np.int64], held: npt.NDArray[np.int64]) -> tuple[FloatArray, float]:
        model = fit(
            part.features.take(train),
            labels[train],
            noise_variance=correction.noise_variance,
            domain=data.domain,
            categorical=data.categorical,
            model="linear",
        )
        models.append(model)
        return model.predict(part.features.take(held)), model.mean

    found = held_out(draws(part.n), fit_and_predict)
    assert found is not None
    held, predictions, constant = found
    which = np.zeros(len(held), np.int64)
    said = estimate_on_rows(predictions, constant, [message.channel], which, outputs[held], held)
    (model,) = models
    judged, y = model.predict(data.features.take(others)), data.truth[others]
    mse = float(np.mean((judged - y) ** 2))
    return {"gain": (float(np.mean((constant - y) ** 2)) - mse, said.mse_below_constant), "mse": (mse, said.mse)}
