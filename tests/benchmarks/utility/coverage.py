"""How often the stated 95 % interval of the estimated test error, from privatized labels alone, holds the true one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from features_party.correction import correct
from features_party.holdout import estimate_on_rows
from features_party.training.estimate import held_out
from features_party.training.fitting import fit
from tests.benchmarks.utility.cells import Cell
from tests.benchmarks.utility.message import draw, make_message
from tests.benchmarks.utility.sources import Split, split

FloatArray = npt.NDArray[np.float64]
ROWS = 4000  # of one repetition's message
JUDGED = 20_000  # other rows, whose true labels tell the true error
REPETITIONS = 50  # of one cell


def coverage(cell: Cell) -> dict[str, Any]:
    """Repetitions with rows, draw and linear model anew; the truth comes from rows that the message does not have."""
    data, rng = split(cell.data, 0, cell.rows), np.random.default_rng([7, cell.seed])
    held, widths, estimates, truths = 0, [], [], []
    size = min(ROWS, data.n // 2)
    for _ in range(REPETITIONS):
        rows = rng.permutation(data.n)
        truth, (estimate, low, high) = _repeat(cell, data, rows[:size], rows[size : size + JUDGED])
        held += low <= truth <= high
        widths.append(high - low)
        estimates.append(estimate)
        truths.append(truth)
    return {
        "held": held,
        "repetitions": REPETITIONS,
        "width": float(np.mean(widths)),
        "estimate": float(np.mean(estimates)),
        "truth": float(np.mean(truths)),
        "rows": size,
        "real": data.real,
    }


def _repeat(
    cell: Cell, data: Split, rows: npt.NDArray[np.int64], others: npt.NDArray[np.int64]
) -> tuple[float, tuple[float, float, float]]:
    """(true drop of the squared error below the constant, (estimate, low, high))."""
    part = replace(data, features=data.features.take(rows), index=data.index[rows], truth=data.truth[rows])
    message = make_message(cell, part)
    correction = correct(message.channel, cell.correction, message.prior, None, part.n)
    outputs = draw(message, part)
    labels = correction.corrected[outputs]
    true: list[float] = []

    def fit_and_predict(train: npt.NDArray[np.int64], held: npt.NDArray[np.int64]) -> tuple[FloatArray, float]:
        model = fit(
            part.features.take(train),
            labels[train],
            noise_variance=correction.noise_variance,
            domain=data.domain,
            model="linear",
        )
        judged, y = model.predict(data.features.take(others)), data.truth[others]
        true.append(float(np.mean((model.mean - y) ** 2 - (judged - y) ** 2)))
        return model.predict(part.features.take(held)), model.mean

    examples = np.arange(part.n)
    found = held_out(part.n, examples, fit_and_predict)
    assert found is not None
    held, predictions, constant = found
    which = np.zeros(len(held), np.int64)
    told = estimate_on_rows(predictions, constant, [message.channel], which, outputs[held], examples[held])
    gain = told.mse_below_constant
    return float(np.mean(true)), (gain.estimate, gain.low, gain.high)
