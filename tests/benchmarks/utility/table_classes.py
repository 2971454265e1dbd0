"""Classes: what models learn of 17 levels of education in the census, by the mechanism of their message."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tests.benchmarks.utility.cells import Cell
from tests.benchmarks.utility.grid import Settings
from tests.benchmarks.utility.peers.cell import EDUCATION, MESSAGE
from tests.benchmarks.utility.results import Mean, Results, Table, short
from tests.benchmarks.utility.table_conversions import QUICK_ROWS, whole
from tests.benchmarks.utility.table_peers import FIGURES, SHOWN

EPSILONS = ("0.1", "0.2", "0.5", "1", "2", "4")
MECHANISMS = ("auto", "subset-selection", "rr", "rr-with-prior")


def _cell(mechanism: str, epsilon: str, settings: Settings) -> Cell:
    rows, learner = QUICK_ROWS if settings.quick else 0, settings.learner("full", EDUCATION)
    return Cell("peers", EDUCATION, 0, epsilon, mechanism=mechanism, rows=rows, learner=f"{MESSAGE} {learner}")


def cells(settings: Settings) -> Iterator[Cell]:
    """Seed by seed, so that a run that is stopped has whole seeds."""
    for seed in range(settings.seeds if whole(settings) else 0):
        for epsilon in settings.at(EPSILONS):
            yield from (replace(_cell(mechanism, epsilon, settings), seed=seed) for mechanism in MECHANISMS)


def tables(results: Results) -> Iterator[Table]:
    settings = results.settings
    header = ["ε", "figure", *MECHANISMS, "constant"]
    table = Table("classes", "Classes: levels of education in the census, by mechanism", header)
    table.notes.append(
        "Test figures of the service's model with every default, by true labels. Up to 40,000 rows train it. The "
        "constant predicts the true shares of the classes. `rr-with-prior` pays for a prior, and `auto` where a "
        "message without one would not tell the shares."
    )
    for epsilon in settings.at(EPSILONS):
        every = {mechanism: _cell(mechanism, epsilon, settings) for mechanism in MECHANISMS}
        for name in FIGURES[EDUCATION]:
            means = {mechanism: _mean(results, cell, name) for mechanism, cell in every.items()}
            means["constant"] = _mean(results, every["rr"], name, constant=True)
            if any(means.values()):
                table.rows.append([epsilon, SHOWN[name], *(str(mean) for mean in means.values())])
                record = {"epsilon": epsilon, "figure": name}
                for mechanism, mean in means.items():
                    record |= {f"{mechanism}_mean": short(mean.mean), f"{mechanism}_std": short(mean.std)}
                table.records.append(record)
    yield table


def _mean(results: Results, cell: Cell, name: str, *, constant: bool = False) -> Mean:
    """Over the seeds that are stored."""
    stored = [results.found.get(replace(cell, seed=seed), {}) for seed in range(results.settings.seeds)]
    if constant:
        return Mean(tuple(one[f"constant_{name}"] for one in stored if f"constant_{name}" in one))
    return Mean(tuple(one["ours"][name] for one in stored if name in one.get("ours", {})))
