"""Stored cells as figures: means and standard deviations over seeds, and tables of them as Markdown and CSV."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.utility.cells import Cell
from tests.benchmarks.utility.grid import Settings, seeds_of
from tests.benchmarks.utility.store import Result

FOLDER = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Mean:
    """Mean and sample standard deviation over seeds; NaN of nothing."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        return float(np.mean(self.values)) if self.values else math.nan

    @property
    def std(self) -> float:
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else math.nan

    def __bool__(self) -> bool:
        return bool(self.values)

    def __str__(self) -> str:
        if not self.values:
            return "–"
        return number(self.mean) + (f" ± {number(self.std, self.mean)}" if len(self.values) > 1 else "")


def number(value: float, like: float | None = None) -> str:
    """Four significant digits; `like` gives the place of the last one."""
    size = abs(value if like is None else like)
    places = 1 if size == 0 else max(0, 3 - math.floor(math.log10(size)))
    return f"{value:,.{min(places, 5)}f}".replace(",", "\u202f")


class Results:
    """What is stored, looked up by cell."""

    def __init__(self, found: Mapping[Cell, Result], settings: Settings) -> None:
        self.found, self.settings = found, settings

    def of(self, cell: Cell) -> list[Result]:
        """Results of all seeds that are there and were not refused."""
        stored = (self.found.get(one) for one in seeds_of(cell, self.settings))
        return [result for result in stored if result is not None and "refused" not in result]

    def one(self, cell: Cell, member: str) -> float | None:
        """One seed's figure, None where it is not there."""
        return self.found.get(cell, {}).get(member)

    def mean(self, cell: Cell, member: str) -> Mean:
        return Mean(tuple(result[member] for result in self.of(cell) if result.get(member) is not None))

    def refused(self, cell: Cell) -> str | None:
        """Why the service refuses this cell, if it does."""
        result = self.found.get(cell)
        return None if result is None else result.get("refused")


@dataclass
class Table:
    """Texts for people (`header`, `rows`), numbers for programs (`records`, one flat object per row of the CSV)."""

    name: str
    title: str
    header: list[str]
    rows: list[list[str]] = field(default_factory=list)
    records: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def markdown(self) -> str:
        lines = [self.header, ["---"] * len(self.header), *self.rows]
        body = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        notes = "".join(f"\n{note}\n" for note in self.notes)
        return f"### {self.title}\n{notes}\n{body}\n"

    def write_csv(self, folder: Path) -> None:
        names = list(dict.fromkeys(name for record in self.records for name in record))
        with (folder / f"{self.name}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, names, lineterminator="\n")
            writer.writeheader()
            writer.writerows(self.records)


def spread(name: str, values: Mean) -> dict[str, Any]:
    """The members of a CSV record for one mean."""
    return {f"{name}_mean": short(values.mean), f"{name}_std": short(values.std), "seeds": len(values.values)}


def short(value: float) -> float | str:
    return float(f"{value:.7g}") if math.isfinite(value) else ""
