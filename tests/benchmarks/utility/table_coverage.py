"""Whether 95 % intervals hold the true error 95 times in a hundred."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from tests.benchmarks.utility.cells import Cell
from tests.benchmarks.utility.coverage import FIGURES, REPETITIONS
from tests.benchmarks.utility.grid import COLUMNS, Column, Settings, cell_of
from tests.benchmarks.utility.results import Results, Table, number, short
from tests.benchmarks.utility.store import Result

MECHANISMS = ("one bit", "unbiased", "discrete Laplace, corrected")
EPSILONS = ("1", "2")
DATA = ("bike", "retail")
BATCHES = 4
STATED = 0.95


def _columns(settings: Settings) -> list[Column]:
    wanted = MECHANISMS[:1] if settings.quick else MECHANISMS
    return [column for column in COLUMNS if column.title in wanted and column.known]


def _batches(column: Column, data: str, epsilon: str, settings: Settings) -> list[Cell]:
    cell = replace(cell_of(column, data, epsilon, settings, kind="coverage"), learner="linear")
    return [replace(cell, seed=batch) for batch in range(1 if settings.quick else BATCHES)]


def _data(settings: Settings) -> list[str]:
    return [data for data in settings.data if data in DATA]


def cells(settings: Settings) -> Iterator[Cell]:
    for data in _data(settings):
        for epsilon in settings.at(EPSILONS):
            for column in _columns(settings):
                yield from _batches(column, data, epsilon, settings)


def tables(results: Results) -> Iterator[Table]:
    header = ["data", "ε", "mechanism", "estimated", "held", "of", "coverage", "± (binomial)"]
    header += ["truth", "estimate", "width"]
    table = Table("coverage", "Coverage of the 95 % interval of the estimated test error", header)
    table.notes.append(
        "From privatized labels alone: the test MSE where the channel identifies it, and its gain over a constant "
        f"prediction. Rows, draw and linear model anew each time, {REPETITIONS} times a cell; the truth comes from "
        "rows outside the message. Deterministic bins and clipped labels identify neither: no estimate there."
    )
    for data in _data(results.settings):
        for epsilon in results.settings.at(EPSILONS):
            for column in _columns(results.settings):
                batches = _batches(column, data, epsilon, results.settings)
                found = [results.found[cell] for cell in batches if cell in results.found]
                for figure in FIGURES:
                    told = [result[figure] for result in found if figure in result]
                    if told:
                        _add(table, data, epsilon, column, figure, told)
    yield table


def _add(table: Table, data: str, epsilon: str, column: Column, figure: str, told: list[Result]) -> None:
    held, of = sum(one["held"] for one in told), sum(one["of"] for one in told)
    share = held / of
    error = math.sqrt(STATED * (1 - STATED) / of)  # of the share of intervals that hold, were it as stated
    truth, estimate, width = (sum(one[name] for one in told) / len(told) for name in ("truth", "estimate", "width"))
    shown = [f"{share:.1%}", f"{error:.1%}", number(truth), number(estimate), number(width)]
    table.rows.append([data, epsilon, column.title, figure, str(held), str(of), *shown])
    table.records.append(
        {"data": data, "epsilon": epsilon, "mechanism": column.title, "estimated": figure, "held": held, "of": of}
        | {"coverage": short(share), "binomial_error": short(error), "truth": short(truth)}
        | {"estimate": short(estimate), "width": short(width)}
    )
