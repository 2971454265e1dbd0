"""The paper's Tables 1 and 2: errors of the labels and of the models trained on them, by ε and randomizer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tests.benchmarks.utility.cells import INFINITE, Cell
from tests.benchmarks.utility.grid import (
    COLUMNS,
    PAPER_COLUMNS,
    RR_ON_BINS,
    RR_WITH_PRIOR,
    UNCLIPPED,
    Column,
    Settings,
    cell_of,
    known,
    seeds_of,
    trained,
)
from tests.benchmarks.utility.results import Mean, Results, Table, spread
from tests.benchmarks.utility.sources import TRAINED_WITH

TABLE_2 = ("0.5", "1", "2", "4", "8", INFINITE)
TABLE_2_DATA = ("census", "census1940")
UNCLIPPED_DATA = ("retail", "criteo")  # figure 6 compares with and without clipping there


def member_of(data: str) -> str:
    """What test error models on that data are judged by."""
    return "poisson" if TRAINED_WITH.get(data) == "poisson" else "mse"


def columns_of(data: str) -> list[Column]:
    return known(PAPER_COLUMNS.get(data, COLUMNS) + (UNCLIPPED if data in UNCLIPPED_DATA else ()))


def cells(settings: Settings) -> Iterator[Cell]:
    for data in settings.data:
        for epsilon in settings.grid(data):
            for column in columns_of(data):
                yield from seeds_of(cell_of(column, data, epsilon, settings), settings)


def cells_2(settings: Settings) -> Iterator[Cell]:
    for data in set(TABLE_2_DATA) & set(settings.data):
        for epsilon in settings.at(TABLE_2):
            for column in known((RR_WITH_PRIOR, RR_ON_BINS)):
                yield from seeds_of(cell_of(column, data, epsilon, settings), settings)


def tables(results: Results) -> Iterator[Table]:
    settings = results.settings
    for data in settings.data:
        channels = [c for c in columns_of(data) if c.correction == "none" or not _sent_before(c, columns_of(data))]
        grid = settings.grid(data)
        yield _block(results, f"table1-{data}-mechanism", f"Table 1, {data}: MSE (mechanism)", data, grid, channels)
        judged = "Poisson loss" if member_of(data) == "poisson" else "MSE"
        table = _block(
            results,
            f"table1-{data}-generalization",
            f"Table 1, {data}: {judged} (generalization)",
            data,
            grid,
            [column for column in columns_of(data) if trained(column, data)],
            member_of(data),
        )
        if member_of(data) == "poisson":
            table.notes.append(signal_words(results, data))
        yield table


def tables_2(results: Results) -> Iterator[Table]:
    settings = results.settings
    for data in [d for d in settings.data if d in TABLE_2_DATA]:
        table = Table(f"table2-{data}", f"Table 2, {data}: RRWithPrior against RR-on-Bins", ["ε"])
        columns = known((RR_WITH_PRIOR, RR_ON_BINS))
        table.header += [f"{c.title}, MSE (mechanism)" for c in columns]
        table.header += [f"{c.title}, MSE (generalization)" for c in columns]
        for epsilon in settings.at(TABLE_2):
            found = {
                (column.title, member): results.mean(cell_of(column, data, epsilon, settings), member)
                for member in ("label_mse", "mse")
                for column in columns
            }
            table.rows.append([shown(epsilon), *(str(mean) for mean in found.values())])
            for (title, member), mean in found.items():
                record = {"data": data, "epsilon": epsilon, "column": title, "figure": member}
                table.records.append(record | spread("value", mean))
        yield table


def _sent_before(column: Column, columns: Sequence[Column]) -> bool:
    """Whether an uncorrected column draws from the same channel: the labels sent are then the same."""
    return any(
        other.correction == "none" and (other.mechanism, other.options) == (column.mechanism, column.options)
        for other in columns
    )


def _block(
    results: Results,
    name: str,
    title: str,
    data: str,
    grid: Iterable[str],
    columns: Sequence[Column],
    member: str = "label_mse",
) -> Table:
    table = Table(name, title, ["ε", *(column.title for column in columns)])
    for epsilon in grid:
        found = []
        for column in columns:
            cell = cell_of(column, data, epsilon, results.settings)
            mean = results.mean(cell, member)
            found.append(mean)
            record = {"data": data, "epsilon": epsilon, "column": column.title} | spread(member, mean)
            if member == "label_mse":
                record |= {"drawn_mean": spread("x", results.mean(cell, "label_mse_drawn"))["x_mean"]}
            table.records.append(record | {"refused": results.refused(cell) or ""})
        table.rows.append([shown(epsilon), *best_in_bold(found)])
    return table


def best_in_bold(found: Sequence[Mean]) -> list[str]:
    best = min((mean.mean for mean in found if mean), default=None)
    several = len({mean.mean for mean in found if mean}) > 1
    return [f"**{mean}**" if several and mean and mean.mean == best else str(mean) for mean in found]


def signal_words(results: Results, data: str) -> str:
    """Where a model on privatized labels is no better than predicting the mean for everybody."""
    settings, member = results.settings, member_of(data)
    lost = []
    base = results.mean(cell_of(RR_ON_BINS, data, INFINITE, settings), member)
    constant = results.mean(cell_of(RR_ON_BINS, data, INFINITE, settings), f"constant_{member}")
    for epsilon in settings.grid(data):
        means = [results.mean(cell_of(c, data, epsilon, settings), member) for c in columns_of(data)]
        there = [mean.mean for mean in means if mean]
        if epsilon != INFINITE and there and constant and min(there) >= constant.mean:
            lost.append(epsilon)
    words = f"Without privacy {base}; the mean for everybody gives {constant}. "
    if lost:
        return words + f"At ε = {', '.join(lost)} no randomizer leaves a signal: every model is worse than the mean."
    return words + "At every ε shown some randomizer leaves a signal: its model is better than the mean."


def shown(epsilon: str) -> str:
    return "∞" if epsilon == INFINITE else epsilon
