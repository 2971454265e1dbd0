"""Which randomizers are compared, on which data, at which ε."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from labels_party.mechanisms.catalogue import MECHANISMS
from tests.benchmarks.utility.cells import INFINITE, LABELS_ONLY, Cell, options_text

PAPER_GRID = ("0.05", "0.1", "0.3", "0.5", "0.8", "1", "1.5", "2", "3", "4", "6", "8", INFINITE)
SHORT_GRID = ("0.1", "0.5", "1", "2", "4", INFINITE)
GRIDS = {"retail": SHORT_GRID, "claims": SHORT_GRID}
ROWS = {
    "census": 40_000,
    "retail": 50_000,
    "claims": 50_000,
}  # of the wide grids; the tables that judge targets use all
REAL_LABELS = ("retail", "criteo")
QUICK_GRID = ("0.5", "2", INFINITE)
QUICK_ROWS = 2000
SEEDS = 3


@dataclass(frozen=True)
class Column:
    """A way to make labels private and to correct them. `family` decides the colour in every figure."""

    title: str
    mechanism: str
    family: str
    correction: str = "none"
    options: dict[str, Any] = field(default_factory=dict, hash=False)

    @property
    def known(self) -> bool:
        return self.mechanism == "auto" or self.mechanism in MECHANISMS


RR_ON_BINS = Column("RR-on-Bins", "rr-on-bins", "RR-on-Bins")
CORRECTED = Column("RR-on-Bins, corrected", "rr-on-bins", "RR-on-Bins", "auto")
LAPLACE = Column("Laplace", "laplace", "Laplace")
STAIRCASE = Column("staircase", "staircase", "staircase")
EXPONENTIAL = Column("exponential 2Δ/ε", "exponential", "exponential")
RR_WITH_PRIOR = Column("RRWithPrior", "rr-with-prior", "RRWithPrior")
AUTO = Column("auto", "auto", "auto", "auto")
COLUMNS = (
    RR_ON_BINS,
    LAPLACE,
    Column("discrete Laplace", "discrete-laplace", "Laplace"),
    STAIRCASE,
    Column("discrete staircase", "discrete-staircase", "staircase"),
    EXPONENTIAL,
    Column("exponential Δ/ε", "exponential", "exponential", options={"tight": True}),
    Column("RR", "rr", "RR"),
    RR_WITH_PRIOR,
    CORRECTED,
    Column("discrete Laplace, corrected", "discrete-laplace", "Laplace", "auto"),
    Column("discrete staircase, corrected", "discrete-staircase", "staircase", "auto"),
    Column("RR, corrected", "rr", "RR", "auto"),
    Column("one bit", "one-bit", "one bit", "auto"),
    Column("one bit, clipped", "one-bit", "one bit", "auto", {"clip": "auto"}),
    Column("unbiased", "unbiased", "unbiased", "auto"),
    Column("balanced", "balanced", "balanced", "auto"),
    AUTO,
)
PAPER_COLUMNS = {
    "criteo": (RR_ON_BINS, LAPLACE, STAIRCASE, EXPONENTIAL, CORRECTED, AUTO),
    "census1940": (
        RR_ON_BINS,
        *(c for c in COLUMNS if c.title in ("discrete Laplace", "discrete staircase")),
        EXPONENTIAL,
        RR_WITH_PRIOR,
        CORRECTED,
        AUTO,
    ),
}  # its network takes hours: what it compares, and what this project adds
PAPER_PRIOR = {"prior_epsilon": "theorem7", "prior_method": "clip"}
UNCLIPPED = (
    Column("Laplace, not clipped", "laplace", "Laplace", options={"unclipped": True}),
    Column("staircase, not clipped", "staircase", "staircase", options={"unclipped": True}),
)


NO_PRIOR = {"prior_epsilon": "auto", "prior_method": "project"}


@dataclass(frozen=True)
class Settings:
    """What was asked for on the command line. Empty `epsilons`: each data set's own grid. `kept`: what is stored."""

    data: tuple[str, ...] = ("bike", "census", "retail", "claims")
    seeds: int = SEEDS
    epsilons: tuple[str, ...] = ()
    quick: bool = False
    kept: Mapping[Cell, dict[str, Any]] = field(default_factory=dict, hash=False)

    def grid(self, data: str) -> tuple[str, ...]:
        return self.epsilons or (QUICK_GRID if self.quick else GRIDS.get(data, PAPER_GRID))

    def at(self, wanted: Iterable[str]) -> tuple[str, ...]:
        """Those of the ε `wanted` that were not excluded on the command line."""
        allowed = self.epsilons or (QUICK_GRID if self.quick else None)
        return tuple(e for e in wanted if allowed is None or e in allowed)

    def rows(self, data: str, wide: bool = True) -> int:
        if self.quick:
            return QUICK_ROWS
        return ROWS.get(data, 0) if wide else 0

    def learner(self, wanted: str, data: str) -> str:
        """The paper's network on the paper's own data; quick runs have no time for the whole procedure."""
        if data in PAPER_COLUMNS:
            return "network"
        return "quick" if self.quick else wanted


def known(columns: Iterable[Column]) -> list[Column]:
    return [column for column in columns if column.known]


def unknown(columns: Iterable[Column]) -> list[str]:
    return sorted({column.mechanism for column in columns if not column.known})


def trained(column: Column, data: str) -> bool:
    """As in the paper, models see continuous noise on real labels and discrete noise on whole numbers; the error of the
    labels is shown of both, since it costs no training."""
    if column.mechanism in ("laplace", "staircase"):
        return data in REAL_LABELS
    return (
        data not in REAL_LABELS
        or column.mechanism not in ("discrete-laplace", "discrete-staircase")
        or (column.correction != "none")
    )


def cell_of(column: Column, data: str, epsilon: str, settings: Settings, **changes: Any) -> Cell:
    """The training cell of seed 0 in the wide grid; at ε = ∞ that of the labels themselves, the same for all."""
    cell = Cell(
        "train",
        data,
        0,
        epsilon,
        mechanism=column.mechanism,
        options=options_text(column.options),
        correction=column.correction,
        learner=settings.learner("quick", data) if trained(column, data) else LABELS_ONLY,
        rows=settings.rows(data),
    )
    if data in PAPER_COLUMNS and column.correction == "none":
        cell = replace(cell, **PAPER_PRIOR)
    if epsilon == INFINITE:
        learner = settings.learner("quick", data)
        cell = replace(cell, mechanism="none", options="{}", correction="none", learner=learner, **NO_PRIOR)
    return replace(cell, **changes)


def seeds_of(cell: Cell, settings: Settings) -> list[Cell]:
    return [replace(cell, seed=seed) for seed in range(settings.seeds)]
