"""Several messages together: never worse than the best of them alone."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tests.benchmarks.utility.cells import Cell, options_text
from tests.benchmarks.utility.combined import CASES
from tests.benchmarks.utility.grid import Settings, seeds_of
from tests.benchmarks.utility.results import Mean, Results, Table, number, short

ROWS = {"bike": 0, "retail": 20_000}
LEARNERS = ("linear", "trees", "ensemble")
QUICK = ("one batch at two ε",)


def _cells(settings: Settings) -> Iterator[Cell]:
    """Of seed 0; a case has ε of its own, which a choice of ε on the command line leaves out."""
    if settings.epsilons:
        return
    for data in settings.data:
        if data not in ROWS:
            continue
        rows = min(settings.rows(data, wide=False) or ROWS[data], ROWS[data] or math.inf)
        for learner in LEARNERS[:1] if settings.quick else LEARNERS:
            for case in QUICK if settings.quick else CASES:
                yield Cell(
                    "combined", data, 0, "2", "auto", options_text({"case": case}), learner=learner, rows=int(rows)
                )


def cells(settings: Settings) -> Iterator[Cell]:
    for cell in _cells(settings):
        yield from seeds_of(cell, settings)


def tables(results: Results) -> Iterator[Table]:
    header = ["data", "case", "model", "all messages", "each alone", "all − best alone", "± (standard error)", "kept"]
    table = Table("combined", "Several messages together, and each alone: test MSE", header)
    table.notes.append(
        "All models of a seed see the same draws. Kept: the model of all messages is not worse than that of the best "
        "one alone, which is chosen by its own test error, by more than two standard errors over seeds."
    )
    for cell in _cells(results.settings):
        found = results.of(cell)
        if not found:
            continue
        case = next(name for name in CASES if options_text({"case": name}) == cell.options)
        every, difference = results.mean(cell, "mse"), results.mean(cell, "difference")
        alone = [Mean(tuple(result["alone"][at] for result in found)) for at in range(len(CASES[case]))]
        # one seed has no spread: its difference is judged as it is
        error = difference.std / math.sqrt(len(found)) if len(found) > 1 else 0.0
        kept = difference.mean <= 2.0 * error
        of_each = zip(CASES[case], alone, strict=True)
        names = [f"ε {sent.epsilon} {sent.mechanism}: {number(one.mean)}" for sent, one in of_each]
        row = [cell.data, case, cell.learner, str(every), "; ".join(names), number(difference.mean)]
        table.rows.append([*row, number(error), "yes" if kept else "no"])
        record = {"data": cell.data, "case": case, "model": cell.learner, "seeds": len(found)}
        record |= {"mse_mean": short(every.mean), "difference_mean": short(difference.mean)}
        table.records.append(record | {"difference_error": short(error), "kept": kept})
    yield table
