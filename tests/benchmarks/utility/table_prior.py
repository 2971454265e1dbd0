"""What the private prior's rules cost: its share of ε, the way onto the simplex, a prior paid for before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tests.benchmarks.utility.cells import Cell
from tests.benchmarks.utility.grid import AUTO, CORRECTED, Column, Settings, cell_of, seeds_of
from tests.benchmarks.utility.message import CARRIED
from tests.benchmarks.utility.randomizing import PRIORS
from tests.benchmarks.utility.results import Results, Table, number, spread

EPSILONS = ("0.1", "0.5", "2")
DATA = ("bike", "census", "retail")
RULES: dict[str, dict[str, str]] = {
    "auto, project": {},
    "auto, clip": {"prior_method": "clip"},
    "theorem7, project": {"prior_epsilon": "theorem7"},
    "theorem7, clip": {"prior_epsilon": "theorem7", "prior_method": "clip"},
    "carried over": {"prior": CARRIED},
}


def _columns() -> list[Column]:
    return [column for column in (CORRECTED, AUTO) if column.known]


def _loss_cell(data: str, epsilon: str, rule: str, settings: Settings) -> Cell:
    cell = cell_of(CORRECTED, data, epsilon, settings, kind="prior", correction="none")
    return replace(cell, **RULES[rule])


def _train_cell(column: Column, data: str, epsilon: str, rule: str, settings: Settings) -> Cell:
    return replace(cell_of(column, data, epsilon, settings), **RULES[rule])


def _data(settings: Settings) -> list[str]:
    return [data for data in settings.data if data in DATA]


def cells(settings: Settings) -> Iterator[Cell]:
    for data in _data(settings):
        for epsilon in settings.at(EPSILONS):
            for rule in RULES:
                yield _loss_cell(data, epsilon, rule, settings)
                for column in _columns():
                    yield from seeds_of(_train_cell(column, data, epsilon, rule, settings), settings)


def tables(results: Results) -> Iterator[Table]:
    settings, columns = results.settings, _columns()
    header = ["data", "ε", "prior", "its ε", "label MSE of RR-on-Bins", "worst"]
    table = Table("prior", "Private priors", header + [f"test MSE, {column.title}" for column in columns])
    table.notes.append(
        f"Label MSE: expectation of the channel under the true labels, mean ± std over {PRIORS} priors estimated anew. "
        "Carried over: the prior of an earlier release of other labels of the same kind and number, already paid for."
    )
    for data in _data(settings):
        for epsilon in settings.at(EPSILONS):
            for rule in RULES:
                losses = results.of(_loss_cell(data, epsilon, rule, settings))
                if not losses:
                    continue
                loss = losses[0]
                shown = f"{number(loss['label_mse'])} ± {number(loss['label_mse_std'], loss['label_mse'])}"
                worst, paid = number(loss["label_mse_worst"]), loss["epsilon_prior"]
                means = [results.mean(_train_cell(c, data, epsilon, rule, settings), "mse") for c in columns]
                table.rows.append([data, epsilon, rule, paid, shown, worst, *(str(mean) for mean in means)])
                record = {"data": data, "epsilon": epsilon, "prior": rule, "epsilon_prior": paid}
                record |= {name: loss[name] for name in ("label_mse", "label_mse_std", "label_mse_worst")}
                for column, mean in zip(columns, means, strict=True):
                    record |= spread(f"test_mse {column.title}", mean)
                table.records.append(record)
    yield table
