"""`make tables`: the paper's tables and figures, computed where they are not stored yet, and the report."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from tests.benchmarks.utility import (
    figures,
    report,
    table_auto,
    table_classes,
    table_codes,
    table_combined,
    table_conversions,
    table_coverage,
    table_errors,
    table_gap,
    table_losses,
    table_peers,
    table_prior,
    table_rows,
    table_sums,
)
from tests.benchmarks.utility.cells import HERE, INFINITE, ROOT, Cell
from tests.benchmarks.utility.checks import violations
from tests.benchmarks.utility.grid import SEEDS, Settings
from tests.benchmarks.utility.results import FOLDER, Results, Table
from tests.benchmarks.utility.runner import run
from tests.benchmarks.utility.sources import PAPER, TASKS
from tests.benchmarks.utility.store import Store

WORK = HERE / "work" / "cells.ndjson"
COMMITTED = FOLDER / "cells.ndjson.gz"  # of an earlier run: cells count as long as their source files have not changed
PART_OUT = HERE / "work" / "report"
Part = tuple[Callable[[Settings], Iterator[Cell]], Callable[[Results], Iterator[Table]]]
# in the order of computing: what judges the targets comes first
PARTS: dict[str, Part] = {
    "gap": (table_gap.cells, table_gap.tables),
    "rows": (table_rows.cells, table_rows.tables),
    "table1": (table_errors.cells, table_errors.tables),
    "table2": (table_errors.cells_2, table_errors.tables_2),
    "auto": (table_auto.cells, table_auto.tables),
    "prior": (table_prior.cells, table_prior.tables),
    "coverage": (table_coverage.cells, table_coverage.tables),
    "conversions": (table_conversions.cells, table_conversions.tables),
    "rare": (table_conversions.cells_rare, table_conversions.tables_rare),
    "losses": (table_losses.cells, table_losses.tables),
    "sums": (table_sums.cells, table_sums.tables),
    "peers": (table_peers.cells, table_peers.tables),
    "classes": (table_classes.cells, table_classes.tables),
    "codes": (table_codes.cells, table_codes.tables),
    "combined": (table_combined.cells, table_combined.tables),
}


def main(arguments: list[str] | None = None) -> int:
    """0 if every cell could be computed and none contradicts itself, otherwise 1; 130 if it was stopped."""
    asked = _parser().parse_args(arguments)
    files = {name: path for name, path in (("criteo", asked.criteo), ("census1940", asked.census1940)) if path}
    settings = Settings(
        data=tuple(asked.data.split(",")) if asked.data else tuple(files) or Settings().data,
        seeds=asked.seeds or (1 if asked.quick else SEEDS),
        epsilons=tuple(asked.epsilons.split(",")) if asked.epsilons else (),
        quick=asked.quick,
    )
    unknown = [name for name in settings.data if name not in TASKS and name not in files]
    if unknown:
        names = f"{', '.join(TASKS)}, and with their files {', '.join(PAPER)}"
        print(f"error: there is no data '{unknown[0]}'; known are {names}.", file=sys.stderr)
        return 2
    parts = asked.only.split(",") if asked.only else list(PARTS)
    strange = [name for name in parts if name not in PARTS]
    if strange:
        print(f"error: there is no part '{strange[0]}'; there are {', '.join(PARTS)}.", file=sys.stderr)
        return 2
    store, began = Store(asked.work, keep=asked.keep, earlier=COMMITTED), time.monotonic()
    settings = replace(settings, kept=(stored := store.read()))
    if asked.stale:
        return _stale({name: set(PARTS[name][0](settings)) for name in parts}, store)
    failed: dict[Cell, str] = {}
    try:
        while True:  # what is best on one split may decide what is computed of another
            wanted = [*(cell for name in parts for cell in PARTS[name][0](settings)), *figures.cells(settings, parts)]
            if asked.stored or all(cell in stored or cell in failed for cell in wanted):
                break
            failed |= run([cell for cell in wanted if cell not in failed], store, asked.jobs, files)
            settings = replace(settings, kept=(stored := store.read()))
    except KeyboardInterrupt:
        print("stopped; the same command goes on from here", file=sys.stderr)
        return 130
    results = Results({cell: stored[cell] for cell in dict.fromkeys(wanted) if cell in stored}, settings)
    tables = [table for name in parts for table in PARTS[name][1](results)]
    out = asked.out or (PART_OUT if asked.quick or asked.only or asked.data or asked.epsilons or files else FOLDER)
    out.mkdir(parents=True, exist_ok=True)
    if not asked.out:
        for old in (*out.glob("*.csv"), *out.glob("*.png")):
            old.unlink()
    drawn = list(figures.draw(results, parts, out))
    wrong = [*violations(results), *report.failures(failed)]
    warnings = [*wrong, *report.refusals(results)]
    path = report.write(out, results, tables, drawn, warnings, time.monotonic() - began, _command(asked))
    print(path.read_text())
    return 1 if wrong else 0


def _stale(parts: dict[str, set[Cell]], store: Store) -> int:
    """Print of each part how many of its cells are current, of other source files, and missing; 1 if any is not
    current."""
    ages = store.ages()
    print(f"{'part':14}{'cells':>8}{'current':>10}{'stale':>8}{'missing':>10}")
    for name, cells in parts.items():
        current, stale = (sum(ages.get(cell) is age for cell in cells) for age in (True, False))
        print(f"{name:14}{len(cells):>8}{current:>10}{stale:>8}{len(cells) - current - stale:>10}")
    return int(any(not ages.get(cell, False) for cells in parts.values() for cell in cells))


def _command(asked: argparse.Namespace) -> str:
    """What to type for the same figures, without this machine's paths."""
    options = [f"--{name}" for name in ("quick", "keep") if getattr(asked, name)]
    options += [
        f"--{name} {value}" for name in ("data", "seeds", "epsilons", "only") if (value := getattr(asked, name))
    ]
    options += [f"--{name} FILE" for name in PAPER if getattr(asked, name)]
    return report.COMMAND + (f' ARGS="{" ".join(options)}"' if options else "")


def _of_project(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make tables", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two ε, one seed, few rows: two minutes")
    parser.add_argument("--stale", action="store_true", help="only say which parts' kept cells other sources made")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default 2)")
    parser.add_argument("--data", default="", help=f"some of {','.join(TASKS)} (default all)")
    parser.add_argument("--seeds", type=int, default=0, help=f"splits (default {SEEDS})")
    parser.add_argument("--epsilons", default="", help=f"instead of each table's own, for example 0.5,1,{INFINITE}")
    parser.add_argument("--only", default="", help=f"some parts of the report: of {','.join(PARTS)}")
    parser.add_argument(
        "--out",
        type=Path,
        help=f"folder of the report (default {_of_project(FOLDER)}, for less than all of it {_of_project(PART_OUT)})",
    )
    parser.add_argument("--work", type=Path, default=WORK, help="file of what is computed already")
    parser.add_argument("--keep", action="store_true", help="use stored cells although their source files changed")
    parser.add_argument("--stored", action="store_true", help="compute nothing: a report of what is stored")
    parser.add_argument("--criteo", type=Path, help="the Criteo Sponsored Search Conversion Log, its TSV file")
    parser.add_argument("--census1940", type=Path, help="the 1940 census, an IPUMS extract")
    return parser


if __name__ == "__main__":
    sys.exit(main())
