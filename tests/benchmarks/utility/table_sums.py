"""Sums and counts that are mostly zero: what is learned of them at which ε, beside the paper's way and no privacy."""

from __future__ import annotations

from collections.abc import Iterator

from tests.benchmarks.utility.cells import Cell
from tests.benchmarks.utility.grid import Settings
from tests.benchmarks.utility.results import Results, Table
from tests.benchmarks.utility.sales import KINDS
from tests.benchmarks.utility.table_losses import HEADER, cells_of, fill

EPSILONS = ("0.5", "1", "2", "4")
DATA = (*KINDS, "claims")


def _data(settings: Settings) -> tuple[str, ...]:
    """Those that were asked for; the generated ones come with all."""
    return tuple(data for data in DATA if data in settings.data or settings.data == Settings().data)


def cells(settings: Settings) -> Iterator[Cell]:
    for data in _data(settings):
        yield from cells_of(data, settings.at(EPSILONS), settings)


def tables(results: Results) -> Iterator[Table]:
    title = "Sums and counts that are mostly zero: what of the gap from constant to no privacy is closed"
    table = Table("sums", title, HEADER)
    table.notes.append(
        "Closed: (constant − auto)/(constant − no privacy) of the test figure, seed by seed, the default model for "
        "both, on all rows. RR-on-Bins as published, with trees of the rule's size. sales, sales-told are generated: "
        "3 % of 150,000 clicks end in a sale, with a heavy tail up to 500, whose amount features hardly tell, or tell. "
        "claims: 96 % of the policies have none."
    )
    for data in _data(results.settings):
        for epsilon in results.settings.at(EPSILONS):
            fill(table, results, data, epsilon)
    yield table
