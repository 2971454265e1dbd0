"""Private monotone medians: the excess absolute loss of Algorithm 1 and of medians of public cells.

Excess is over the best monotone step function of the same examples without privacy, in label units. `smooth`: counts
0 to 100 whose middle is a logistic function, three in ten labels anything. `heavy`: amounts 0 to 600, lognormal, whose
median grows by e² along the scores. `rank error` is what the plan states: by how many labels the median of a cell
misses half of them at most, 19 times in 20. ± is one standard error over the runs.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from label_dp.domain import Domain
from label_dp.privacy import Epsilon
from labels_party.companions.mechanisms.isotonic.binned import BinnedMedians
from labels_party.companions.mechanisms.isotonic.binning import default_bins
from labels_party.companions.mechanisms.isotonic.surfaces import axis_cells
from labels_party.companions.mechanisms.isotonic.total_order import isotonic
from tests.benchmarks.around.isotonic import examples

SIZE = 1 << 32
DOMAINS = {"smooth": Domain.parse("0:100"), "heavy": Domain.parse("0:600")}
ASKED = ((1_000, "1"), (10_000, "0.1"), (10_000, "1"), (10_000, "4"), (100_000, "1"))
NO_PRIVACY, LEVELS = Epsilon.parse("100000"), {"smooth": 7, "heavy": 10}  # a level each way for every label
Index = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Row:
    labels: str
    n: int
    epsilon: str
    runs: int
    best: float
    algorithm_1: float
    algorithm_1_error: float
    cells: int
    medians: float
    medians_error: float
    rank_error: float


def drawn(shape: str, n: int, seed: int) -> tuple[Index, Index]:
    """int64[n] scores and positions of labels."""
    if shape == "smooth":
        return examples(shape, n, SIZE, seed)
    rng = np.random.default_rng(seed)
    x = rng.integers(0, SIZE, n)
    return x, np.minimum(600, np.floor(rng.lognormal(1.5 + 2 * x / SIZE, 1.0))).astype(np.int64)


def measured(shape: str, n: int, epsilon: str, runs: int) -> Row:
    domain, asked = DOMAINS[shape], Epsilon.parse(epsilon)
    best, first, ours = [], [], []
    for seed in range(runs):
        x, y = drawn(shape, n, seed)
        plan = BinnedMedians(domain, (axis_cells(x, SIZE, default_bins(n, asked, 1, "absolute")),), n, asked)
        fits = (
            isotonic(x, y, domain, SIZE, NO_PRIVACY, "absolute", levels=LEVELS[shape]),
            isotonic(x, y, domain, SIZE, asked, "absolute"),
            plan.fit(x, y),
        )
        for found, fit in zip((best, first, ours), fits, strict=True):
            found.append(float(np.mean(np.abs(fit.apply(x) - y))))
    losses = [np.array(found) - np.array(best) for found in (first, ours)]
    (one, error), (other, other_error) = ((float(x.mean()), float(x.std(ddof=1)) / math.sqrt(runs)) for x in losses)
    return Row(
        shape, n, epsilon, runs, float(np.mean(best)), one, error, plan.count, other, other_error, plan.rank_error
    )


def lines(rows: list[Row]) -> Iterator[str]:
    yield from ("# Private monotone medians", "", *(__doc__ or "").splitlines()[2:], "")
    yield "| labels | n | ε | best loss | Algorithm 1: excess | cells | medians of cells: excess | rank error |"
    yield "|---|---|---|---|---|---|---|---|"
    for r in rows:
        one = f"{r.algorithm_1:.3f} ± {r.algorithm_1_error:.3f}"
        other = f"{r.medians:.4f} ± {r.medians_error:.4f}"
        yield f"| {r.labels} | {r.n} | {r.epsilon} | {r.best:.3f} | {one} | {r.cells} | {other} | {r.rank_error:.1f} |"


def run(out: Path, quick: bool) -> None:
    """medians.csv and medians.md."""
    asked = ASKED[:3] if quick else ASKED
    rows = [measured(shape, n, e, 2 if quick else 10 if n < 100_000 else 4) for shape in DOMAINS for n, e in asked]
    with (out / "medians.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(asdict(rows[0])))
        writer.writeheader()
        writer.writerows({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in asdict(r).items()} for r in rows)
    text = "\n".join([*lines(rows), ""])
    (out / "medians.md").write_text(text, encoding="utf-8")
    print(text)
