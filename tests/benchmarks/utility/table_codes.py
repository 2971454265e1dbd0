"""Small ε: a model of sums by public codes beside one of a message, and where the rule of thumb changes its advice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tests.benchmarks.utility.cells import Cell
from tests.benchmarks.utility.grid import Settings
from tests.benchmarks.utility.results import Results, Table, spread
from tests.benchmarks.utility.table_gap import data_of, ours

EPSILONS = ("0.02", "0.05", "0.1", "0.2", "0.3", "0.5")
GOALS = {("census", "0.05"): 145.0, ("census", "0.1"): 135.0, ("bike", "0.1"): 22_500.0}
WORSE_THAN_CONSTANT = 1.01


def _sums(data: str, epsilon: str, settings: Settings) -> Cell:
    return Cell("codes", data, 0, epsilon, mechanism="sums", rows=settings.rows(data, wide=False))


def cells(settings: Settings) -> Iterator[Cell]:
    for seed in range(settings.seeds):
        for make in (_sums, ours):
            for data in data_of(settings):
                yield from (replace(make(data, e, settings), seed=seed) for e in settings.at(EPSILONS))


def tables(results: Results) -> Iterator[Table]:
    header = [
        "data",
        "ε",
        "codes",
        "constant",
        "message",
        "sums",
        "sums / message",
        "advice",
        "gain held",
        "goal",
        "met",
    ]
    table = Table("codes", "Small ε: a model of sums by public codes beside one of a message, test MSE", header)
    table.notes.append(
        "Sums: codes are chosen without labels, at most 8 columns in at most 16 levels each, and share ε; one draw a "
        "seed. Message: the default of every step. Both on all rows. Advice: by rows, codes and ε. Gain held: how "
        "many of the cards' 95 % intervals hold the gain over the constant on the test rows."
    )
    for data in data_of(results.settings):
        for epsilon in results.settings.at(EPSILONS):
            sums, message = _sums(data, epsilon, results.settings), ours(data, epsilon, results.settings)
            stored = results.of(sums)
            if not stored:
                continue
            constant, of_sums = results.mean(sums, "constant_mse"), results.mean(sums, "mse")
            of_message = results.mean(message, "mse")
            below = min(result["sums_below"] for result in stored)
            advice = "sums" if float(epsilon) < below else "message"
            ratio = of_sums.mean / of_message.mean if of_message else None
            held = sum(result["gain_low"] <= result["true_gain"] <= result["gain_high"] for result in stored)
            most = GOALS.get((data, epsilon), WORSE_THAN_CONSTANT * constant.mean)
            goal = f"≤ {most:g}" if (data, epsilon) in GOALS else "≤ 1.01 × constant"
            many = "–".join(sorted({str(result["codes"]) for result in stored}))
            row = [data, epsilon, many, str(constant), str(of_message), str(of_sums), f"{ratio:.3f}" if ratio else "–"]
            row += [f"{advice} (below {below:.2g})", f"{held} of {len(stored)}", goal]
            table.rows.append([*row, "yes" if of_sums.mean <= most else "no"])
            table.records.append(
                {"data": data, "epsilon": epsilon, "codes": many, "sums_below": round(below, 4), "advice": advice}
                | spread("constant", constant)
                | spread("message", of_message)
                | spread("sums", of_sums)
                | {"gain_held": held, "goal": most, "met": of_sums.mean <= most}
            )
    yield table
