"""Whether 95 % intervals hold the true error 95 times in a hundred."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from tests.benchmarks.utility.cells import Cell
from tests.benchmarks.utility.coverage import REPETITIONS
from tests.benchmarks.utility.grid import COLUMNS, Column, Settings, cell_of
from tests.benchmarks.utility.results import Results, Table, number, short

MECHANISMS = ("one bit", "unbiased")
EPSILONS = ("1", "2")
DATA = ("bike", "retail")
BATCHES = 6
STATED = 0.95


def _columns() -> list[Column]:
    return [column for column in COLUMNS if column.title in MECHANISMS and column.known]


def _batches(column: Column, data: str, epsilon: str, settings: Settings) -> list[Cell]:
    cell = replace(cell_of(column, data, epsilon, settings, kind="coverage"), learner="linear")
    return [replace(cell, seed=batch) for batch in range(1 if settings.quick else BATCHES)]


def _data(settings: Settings) -> list[str]:
    return [data for data in settings.data if data in DATA]


def cells(settings: Settings) -> Iterator[Cell]:
    for data in _data(settings):
        for epsilon in settings.at(EPSILONS):
            for column in _columns():
                yield from _batches(column, data, epsilon, settings)


def tables(results: Results) -> Iterator[Table]:
    header = ["data", "ε", "mechanism", "held", "of", "coverage", "± (binomial)", "true gain", "estimate", "width"]
    table = Table("coverage", "Coverage of the 95 % interval of the estimated test error", header)
    table.notes.append(
        "The gain in squared error over a constant prediction, estimated from privatized labels alone; rows, draw and "
        f"linear model anew each time, {REPETITIONS} times a cell. The truth comes from rows outside the message."
    )
    for data in _data(results.settings):
        for epsilon in results.settings.at(EPSILONS):
            for column in _columns():
                batches = _batches(column, data, epsilon, results.settings)
                found = [results.found[cell] for cell in batches if cell in results.found]
                found = [result for result in found if "refused" not in result]
                if not found:
                    continue
                held, of = sum(r["held"] for r in found), sum(r["repetitions"] for r in found)
                share = held / of
                error = math.sqrt(max(share * (1 - share), STATED * (1 - STATED)) / of)
                truth, estimate, width = (
                    sum(r[name] for r in found) / len(found) for name in ("truth", "estimate", "width")
                )
                row = [data, epsilon, column.title, str(held), str(of), f"{share:.1%}", f"{error:.1%}"]
                table.rows.append([*row, number(truth), number(estimate), number(width)])
                table.records.append(
                    {"data": data, "epsilon": epsilon, "mechanism": column.title, "held": held, "repetitions": of}
                    | {"coverage": short(share), "coverage_error": short(error), "true_gain": short(truth)}
                    | {"estimated_gain": short(estimate), "width": short(width)}
                )
    yield table
