"""Sums by group beside OpenDP's own bounded sums with Laplace noise, of the same labels at the same ε.

Errors are root mean squares over the cells of a grouping, in label units, against the sums of the labels on their
domain. `OpenDP`: `make_sum` of each cell's labels, of known size, then `then_laplace` with the scale that its own
search gives for one label replaced; several groupings share ε in equal parts. `noisy`: the sums in our answer;
`estimate`: after consistency, which is free, of the same draws. ± is the standard deviation over runs of many draws
each, all from the generators of the system, which take no seed. Chance moves noisy over OpenDP by a hundredth for one
grouping, and by a few for a coarse one beside others. Seconds are of a processor for one whole answer, from codes of
the groups and labels in memory; finding the cells is the same code for both.

Where ε is small, bounds raise many small cells above 0, and a coarse grouping that has to agree with them gains
nothing: its estimate is biased.
"""

from __future__ import annotations

import csv
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from label_dp.companions.kinds.sum import LabelLattice, SumsParameters
from label_dp.companions.maps.group_sums import CellSums, consistent, deviation
from label_dp.domain import Domain
from label_dp.privacy import Epsilon
from labels_party.companions.kinds.groups import GroupColumns
from labels_party.companions.kinds.sum import SumsWish, noisy_groupings
from labels_party.mechanisms.entropy import LaplaceNoise
from tests.support import real_data

RUNS, DRAWS, LEAST, TIMES = 3, 16_000, 400, 5
COMMAND = 'make around ARGS="sums"'
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Sums = list[FloatArray]


@dataclass(frozen=True)
class Data:
    """A data set: its label and domain, its task, and its columns to group by with the number of their values in
    made-up data."""

    label: str
    domain: str
    task: Callable[[], real_data.Task]
    columns: dict[str, int]

    def table(self) -> tuple[pa.Table, bool]:
        """Return the rows, and whether they are real."""
        task = self.task()
        if task.real:
            return pa.concat_tables([task.train, task.test]), True
        rng = np.random.default_rng(7)
        made = {name: np.minimum(rng.geometric(2 / k, 20_000), k) for name, k in self.columns.items()}
        low, high = (float(end) for end in self.domain.split(":")[:2])
        return pa.table(made | {self.label: np.clip(rng.exponential(high / 4, 20_000), low, high)}), False


DATA = {
    "bike": Data("cnt", "0:600", real_data.bike, {"season": 4, "weekday": 7, "hr": 24}),
    "census": Data("weeks_worked_in_year", "1:52", real_data.census, {"education": 17, "sex": 2, "race": 5}),
    "retail": Data("sales_amount_gbp", "0:60:0.01", real_data.retail, {"country": 38, "weekday": 6, "hour": 15}),
    "claims": Data("ClaimNb", "0:4", real_data.claims, {"Region": 22, "Area": 6, "VehGas": 2}),
}
ASKED = {
    "bike": (["hr"], ["season", "hr", "season,hr", "weekday,hr"]),
    "census": (["education"], ["education", "sex,race", "education,sex,race"]),
    "retail": (["country"], ["country", "hour", "country,weekday"]),
    "claims": (["Region"], ["Region", "Area", "Region,Area"]),
}


@dataclass(frozen=True)
class Row:
    data: str
    real: bool
    n: int
    epsilon: str
    groupings: int
    by: str
    cells: int
    opendp: float
    opendp_sd: float
    noisy: float
    noisy_sd: float
    noisy_ratio: float
    estimate: float
    estimate_sd: float
    estimate_ratio: float
    opendp_seconds: float
    noisy_seconds: float
    estimate_seconds: float


class Report:
    """Both ways to the sums of one request on one table."""

    def __init__(self, table: pa.Table, label: str, domain: str, by: Sequence[str], epsilon: str) -> None:
        self.domain, self.columns = Domain.parse(domain), GroupColumns.parse(by)
        self.lattice = LabelLattice.of(self.domain)
        wish = SumsWish(Epsilon.parse(epsilon), self.columns, False)
        self.shares = wish.shares
        index, _ = self.domain.index(pc.cast(table[label], pa.float64()).to_numpy())
        self.numbers = index.astype(np.int64)
        self.labels = self.domain.values[index]
        if self.lattice.unit == 1:
            self.labels = np.rint(self.labels).astype(np.int64)
        _, self.codes = self.columns.encode(table)
        self.cells = [(cells, n) for cells, n, _ in self.columns.cells(self.codes)]
        self.truth = [np.bincount(at, weights=self.labels, minlength=len(n)) for _, n, at in self._located()]
        self.noises = [LaplaceNoise(self.lattice.sensitivity, share.fraction) for share in self.shares]
        parameters = SumsParameters(
            by=[list(columns) for columns in self.columns.by],
            epsilon=[str(share) for share in self.shares],
            cells=[len(n) for _, n in self.cells],
            rows=len(self.numbers),
        )
        self.scales = parameters.scales(self.lattice)

    def _located(self) -> Iterator[tuple[IntArray, IntArray, IntArray]]:
        return self.columns.cells(self.codes)

    def measurements(self) -> list[list[tuple[Any, Any]]]:
        """Return OpenDP's measurement of each cell, with the labels of the cell."""
        import opendp.prelude as dp

        dp.enable_features("contrib")
        low, high = self.domain.values[0].item(), self.domain.values[-1].item()
        whole = self.labels.dtype == np.int64
        kind = {"T": "i64", "bounds": (int(low), int(high))} if whole else {"bounds": (low, high), "nan": False}
        found = []
        for (_, n, at), share in zip(self._located(), self.shares, strict=True):
            parts = np.split(self.labels[np.argsort(at, kind="stable")], np.cumsum(n)[:-1])

            def total(size: int) -> Any:
                return dp.t.make_sum(dp.vector_domain(dp.atom_domain(**kind), size=size), dp.symmetric_distance())

            largest, epsilon = total(int(n.max())), float(share)
            # one row replaced is two of OpenDP's symmetric distance
            scale = dp.binary_search_param(lambda s, of=largest: of >> dp.m.then_laplace(s), d_in=2, d_out=epsilon)
            found.append([(total(len(part)) >> dp.m.then_laplace(scale), part) for part in parts])
        return found

    def of_opendp(self, measurements: list[list[tuple[Any, Any]]] | None = None) -> Sums:
        """Return OpenDP's noisy sums."""
        cells = self.measurements() if measurements is None else measurements
        return [np.array([measure(part) for measure, part in of], np.float64) for of in cells]

    def noisy(self) -> Sums:
        """Return the noisy sums that our answer holds, in label units."""
        low, unit = float(self.lattice.low), float(self.lattice.unit)
        groupings = noisy_groupings(self.columns, self.codes, self.numbers, self.noises)
        return [low * np.array(g["n"]) + unit * np.array([int(text) for text in g["sums"]]) for g in groupings]

    def estimates(self, noisy: Sums) -> Sums:
        """Return the estimates that a reader has of noisy sums."""
        low, unit = float(self.lattice.low), float(self.lattice.unit)
        cells = [
            CellSums(names, codes, n, sums, unit * deviation(scale))
            for names, (codes, n), sums, scale in zip(self.columns.by, self.cells, noisy, self.scales, strict=True)
        ]
        return consistent(cells, low, low + unit * self.lattice.sensitivity)

    def squares(self, sums: Sums) -> FloatArray:
        """float64[groupings]: mean squared errors."""
        return np.array([np.mean((one - truth) ** 2) for one, truth in zip(sums, self.truth, strict=True)])

    def quick_noisy(self) -> Callable[[], Sums]:
        """Return draws of `noisy` that do not sum up again."""
        from labels_party.mechanisms.entropy import discrete_laplace

        unit = float(self.lattice.unit)
        return lambda: [
            truth + unit * discrete_laplace(noise, len(truth))
            for truth, noise in zip(self.truth, self.noises, strict=True)
        ]


def measured(name: str, by: Sequence[str], epsilon: str, runs: int, draws: int) -> list[Row]:
    table, real = DATA[name].table()
    report = Report(table, DATA[name].label, DATA[name].domain, by, epsilon)
    seconds = [_seconds(report.of_opendp), _seconds(report.noisy), _seconds(lambda: report.estimates(report.noisy()))]
    measurements, noisy = report.measurements(), report.quick_noisy()
    times = max(LEAST if len(by) > 1 else 1, math.ceil(draws / sum(len(n) for _, n in report.cells)))
    errors = np.empty((runs, 3, len(by)))
    for run_number in range(runs):
        squares = []
        for _ in range(times):
            own = noisy()
            squares.append([report.squares(s) for s in (report.of_opendp(measurements), own, report.estimates(own))])
        errors[run_number] = np.sqrt(np.mean(squares, axis=0))
    rows = []
    for place, columns in enumerate(by):
        means, sd = errors[:, :, place].mean(axis=0), errors[:, :, place].std(axis=0, ddof=1)
        figures = [value for pair in zip(means, sd, strict=True) for value in pair]
        opendp, opendp_sd, own, own_sd, estimate, estimate_sd = map(float, figures)
        cells = len(report.truth[place])
        rows.append(
            Row(
                *(name, real, len(report.numbers), epsilon, len(by), columns, cells, opendp, opendp_sd),
                *(own, own_sd, own / opendp, estimate, estimate_sd, estimate / own, *seconds),
            )
        )
    return rows


def _seconds(work: Callable[[], object]) -> float:
    """Median seconds of a processor for a call."""
    spans = []
    for _ in range(TIMES):
        began = time.process_time()
        work()
        spans.append(time.process_time() - began)
    return float(np.median(spans))


def lines(rows: list[Row]) -> Iterator[str]:
    yield from ("# Sums by group beside OpenDP", "", *(__doc__ or "").splitlines()[2:], "", f"Made by `{COMMAND}`.", "")
    yield (
        "| data | n | ε | groupings | by | cells | OpenDP | noisy | of OpenDP | estimate | of noisy "
        "| s OpenDP | s noisy | s estimate |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|"
    for r in rows:
        figures = [f"{mean:,.1f} ± {sd:,.1f}" for mean, sd in ((r.opendp, r.opendp_sd), (r.noisy, r.noisy_sd))]
        yield (
            f"| {r.data}{'' if r.real else ' (made up)'} | {r.n:,} | {r.epsilon} | {r.groupings} | {r.by} | {r.cells} "
            f"| {figures[0]} | {figures[1]} | {r.noisy_ratio:.3f} | {r.estimate:,.1f} ± {r.estimate_sd:,.1f} "
            f"| {r.estimate_ratio:.3f} | {r.opendp_seconds:.3f} | {r.noisy_seconds:.3f} | {r.estimate_seconds:.3f} |"
        )


def run(out: Path, quick: bool) -> None:
    """sums.csv and sums.md."""
    runs, draws, epsilons = (2, 500, ("0.1",)) if quick else (RUNS, DRAWS, ("0.1", "1"))
    rows = [
        row
        for name in DATA
        for by in ASKED[name]
        for epsilon in epsilons
        for row in measured(name, by, epsilon, runs, draws)
    ]
    with (out / "sums.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(asdict(rows[0])))
        writer.writeheader()
        writer.writerows({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in asdict(r).items()} for r in rows)
    text = "\n".join([*lines(rows), ""])
    (out / "sums.md").write_text(text, encoding="utf-8")
    print(text)
