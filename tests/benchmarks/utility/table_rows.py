"""What holds a test error back: how many rows without noise would do as well, and how many the noise leaves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from tests.benchmarks.utility.cells import INFINITE, Cell
from tests.benchmarks.utility.grid import Settings
from tests.benchmarks.utility.results import Mean, Results, Table, number, short
from tests.benchmarks.utility.table_gap import EPSILONS, LOW, data_of, ours

CURVE = {
    "bike": (30, 100, 300, 1000, 3000, 0),
    "census": (100, 300, 1000, 3000, 10_000, 30_000, 0),
    "retail": (300, 1000, 3000, 10_000, 30_000, 100_000, 0),
}  # rows of the learning curve; 0: all
QUICK_CURVE = (100, 300, 1000)


def _curve(data: str, settings: Settings) -> list[Cell]:
    sizes = QUICK_CURVE if settings.quick else CURVE[data]
    learner = settings.learner("full", data)
    return [Cell("curve", data, 0, INFINITE, learner=learner, rows=rows) for rows in sizes]


def _epsilons(settings: Settings) -> tuple[str, ...]:
    return settings.at(e for e in EPSILONS if e not in LOW)


def cells(settings: Settings) -> Iterator[Cell]:
    for seed in range(settings.seeds):
        for data in data_of(settings):
            wanted = [*_curve(data, settings), *(ours(data, e, settings) for e in _epsilons(settings))]
            yield from (replace(cell, seed=seed) for cell in wanted)


def rows_for(error: float, rows: list[int], errors: list[float]) -> float:
    """Where a learning curve reaches `error`: straight lines between its points in the logarithm of the rows, at the
    ends the end. A curve that rises again counts as flat."""
    falling = np.minimum.accumulate(np.asarray(errors, np.float64))
    return float(np.exp(np.interp(-error, -falling, np.log(np.asarray(rows, np.float64)))))


def tables(results: Results) -> Iterator[Table]:
    header = ["data", "ε", "test MSE", "rows", "as good without noise", "of the rows", "the noise leaves"]
    table = Table("rows", "How many rows without noise do as well", header)
    table.notes.append(
        "As good without noise: at how many rows the learning curve of the default model on true labels has that test "
        "error, and their share of all rows. The noise leaves: e/(e + noise variance of the corrected labels), where e "
        "is the test error of all rows without noise: of so many rows the errors of a mean are the same. Where the "
        "first share is no smaller than the second, the channel and the rows hold the error back, not the learner."
    )
    settings = results.settings
    for data in data_of(settings):
        for epsilon in _epsilons(settings):
            found = [_row(results, data, epsilon, seed) for seed in range(settings.seeds)]
            whole = [one for one in found if one is not None]
            if not whole:
                continue
            mse, rows, same, left = (Mean(values) for values in zip(*whole, strict=True))
            share = Mean(tuple(m / n for m, n in zip(same.values, rows.values, strict=True)))
            numbers = [number(rows.mean), number(same.mean), f"{share.mean:.1%}", f"{left.mean:.1%}"]
            table.rows.append([data, epsilon, str(mse), *numbers])
            record = {"data": data, "epsilon": epsilon, "seeds": len(whole)}
            named = (("mse", mse), ("rows", rows), ("same_rows", same), ("share", share), ("noise_leaves", left))
            for name, mean in named:
                record |= {f"{name}_mean": short(mean.mean), f"{name}_std": short(mean.std)}
            table.records.append(record)
    yield table


def _row(results: Results, data: str, epsilon: str, seed: int) -> tuple[float, float, float, float] | None:
    """Test error, rows, rows without noise that do as well, share that the noise leaves; None without all cells."""
    cell = replace(ours(data, epsilon, results.settings), seed=seed)
    error, noise = results.one(cell, "mse"), results.one(cell, "corrected_noise")
    curve = [replace(one, seed=seed) for one in _curve(data, results.settings)]
    points = [(results.one(one, "rows"), results.one(one, "mse")) for one in curve]
    known = [(int(rows), mse) for rows, mse in points if rows is not None and mse is not None]
    if error is None or noise is None or len(known) < len(points):
        return None
    rows, errors = map(list, zip(*known, strict=True))
    return error, rows[-1], rows_for(error, rows, errors), errors[-1] / (errors[-1] + noise)
