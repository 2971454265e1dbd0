"""The absolute and the Poisson loss beside goals: what of the test error from constant to no privacy is closed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tests.benchmarks.utility.cells import INFINITE, Cell
from tests.benchmarks.utility.grid import AUTO, RR_ON_BINS, Settings, cell_of
from tests.benchmarks.utility.results import Mean, Results, Table, short
from tests.benchmarks.utility.sources import FIGURES

# of the absolute loss as much as the goals of the squared one, 88, 75 and 63, close of the root of its error
GOALS = {
    "retail-absolute": {"0.5": 0.73, "1": 0.84, "2": 0.94},
    "claims": {"0.5": 0.25, "1": 0.5, "2": 0.75},
}
EPSILONS = ("0.5", "1", "2")


def ours(data: str, epsilon: str, settings: Settings) -> Cell:
    """The default model of `auto`, on all rows."""
    return _whole(cell_of(AUTO, data, epsilon, settings), "full", settings)


def bins(data: str, epsilon: str, settings: Settings) -> Cell:
    """RR-on-Bins as published, with trees of the rule's size."""
    return _whole(cell_of(RR_ON_BINS, data, epsilon, settings), "quick", settings)


def _whole(cell: Cell, learner: str, settings: Settings) -> Cell:
    return replace(cell, rows=settings.rows(cell.data, wide=False), learner=settings.learner(learner, cell.data))


def cells_of(data: str, epsilons: tuple[str, ...], settings: Settings) -> Iterator[Cell]:
    for seed in range(settings.seeds):
        wanted = [make(data, epsilon, settings) for epsilon in epsilons for make in (ours, bins)]
        yield from (replace(cell, seed=seed) for cell in [*wanted, ours(data, INFINITE, settings)])


def fill(table: Table, results: Results, data: str, epsilon: str, goal: float | None = None) -> None:
    """A row of that data and ε, if all of its cells are there; `goal` of the share that is closed."""
    settings, figure = results.settings, FIGURES.get(data, "mse")
    none, constant = (results.mean(ours(data, INFINITE, settings), name) for name in (figure, f"constant_{figure}"))
    found, published = (results.mean(make(data, epsilon, settings), figure) for make in (ours, bins))
    if not found or not len(found.values) == len(none.values) == len(constant.values):
        return
    triples = zip(constant.values, found.values, none.values, strict=True)
    closed = Mean(tuple((c - o) / (c - n) for c, o, n in triples if c > n))
    chosen = " / ".join(sorted({result["chosen"] for result in results.of(ours(data, epsilon, settings))}))
    share = f"{closed.mean:.1%}" if closed else "–"
    share += f" ± {closed.std:.1%}" if len(closed.values) > 1 else ""
    row = [data, figure, epsilon, chosen, str(constant), str(published), str(found), str(none), share]
    means = (("constant", constant), ("bins", published), ("auto", found), ("none", none), ("closed", closed))
    record = {"data": data, "figure": figure, "epsilon": epsilon, "seeds": len(found.values), "chosen": chosen}
    for name, mean in means:
        record |= {f"{name}_mean": short(mean.mean), f"{name}_std": short(mean.std)}
    if goal is not None:
        met = bool(closed) and closed.mean >= goal
        row += [f"≥ {goal:.0%}", "yes" if met else "no"]
        record |= {"goal": goal, "met": met}
    table.rows.append(row)
    table.records.append(record)


HEADER = ["data", "figure", "ε", "chosen", "constant", "RR-on-Bins", "auto", "no privacy", "closed"]


def _data(settings: Settings) -> tuple[str, ...]:
    return tuple(data for data in GOALS if data in settings.data or settings.data == Settings().data)


def cells(settings: Settings) -> Iterator[Cell]:
    for data in _data(settings):
        yield from cells_of(data, settings.at(EPSILONS), settings)


def tables(results: Results) -> Iterator[Table]:
    table = Table("losses", "The absolute and the Poisson loss", [*HEADER, "goal", "met"])
    table.notes.append(
        "Closed: (constant − auto)/(constant − no privacy) of the test figure, seed by seed, the default model under "
        "that loss for both, on all rows; the constant is the best one for the loss, the median or the mean. The goals "
        "of the absolute loss are the shares of the root mean squared error that 88, 75 and 63 would be on retail."
    )
    for data in _data(results.settings):
        for epsilon in results.settings.at(EPSILONS):
            fill(table, results, data, epsilon, GOALS[data][epsilon])
    yield table
