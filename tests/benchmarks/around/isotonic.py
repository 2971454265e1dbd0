"""Private isotonic regression on total orders: excess risk against n, ε and |X| beside the bounds, and its speed.

Losses are squared differences over the squared range of the labels, so that 1 is the worst. Excess is over the best
monotone function of the same examples (pooled adjacent violators, without privacy). Bounds: `proved` is what the code
states for itself (`tests/support/isotonic_bounds.py` and the spacing of the outputs; of bins `binned_excess_bound`, and
1/(4·cells) of the squared range, the most that a monotone function loses by being constant on each), `theorem 3` the
paper's rate log|X|·(1 + log²(εn))/(εn) without its constant. `points` and `domain` are Algorithm 1, with that many
levels; `bins` are noisy sums of that many public cells.
"""

from __future__ import annotations

import csv
import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import isotonic_regression

from label_dp.companions.maps.shapes import MAX_LEVELS
from label_dp.domain import Domain
from label_dp.privacy import Epsilon
from labels_party.companions.mechanisms.isotonic.binned import BinnedMeans
from labels_party.companions.mechanisms.isotonic.binning import default_bins
from labels_party.companions.mechanisms.isotonic.depth import Cuts, planned
from labels_party.companions.mechanisms.isotonic.surfaces import axis_cells
from labels_party.companions.mechanisms.isotonic.total_order import isotonic
from tests.support.isotonic_bounds import binned_excess_bound, excess_bound

LABELS = 100
DOMAIN = Domain.parse(f"0:{LABELS}")
WIDE = 1 << 32
ROWS, EPSILONS, SIZES = (
    (1_000, 10_000, 100_000, 1_000_000),
    ("0.1", "0.25", "0.5", "1", "2", "4", "8"),
    (8, 12, 16, 24, 32),
)

N, EPSILON = 10_000, "1"
TIMED = 1_000_000
METHODS = ("points", "domain", "bins", "domain, paper's depth")
SHAPES = ("smooth", "rare")


@dataclass(frozen=True)
class Row:
    swept: str
    shape: str
    n: int
    epsilon: str
    log2_size: int
    method: str
    steps: int
    runs: int
    excess: float
    error: float
    proved: float
    theorem_3: float


def examples(shape: str, n: int, size: int, seed: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Uniform scores. "smooth": counts whose mean is a logistic function, three in ten labels anything. "rare": label
    LABELS with probability 0.02 to 0.2, else 0, as conversions are."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, size, n)
    place = x / size
    if shape == "rare":
        return x, LABELS * (rng.random(n) < 0.02 + 0.18 * place**2)
    y = rng.binomial(LABELS, 0.2 + 0.5 / (1 + np.exp(-8 * (place - 0.5))))
    return x, np.where(rng.random(n) < 0.3, rng.integers(0, LABELS + 1, n), y)


def least(x: npt.NDArray[np.int64], y: npt.NDArray[np.int64]) -> float:
    """The mean squared loss of the best monotone function."""
    order = np.argsort(x, kind="stable")
    starts = np.flatnonzero(np.append(True, np.diff(x[order]) > 0))
    counts = np.diff(np.append(starts, x.size))
    labels = y[order].astype(np.float64)
    fit = isotonic_regression(np.add.reduceat(labels, starts) / counts, weights=counts).x
    return float(np.mean((np.repeat(fit, counts) - labels) ** 2)) / LABELS**2


def measured(swept: str, shape: str, n: int, epsilon: str, bits: int, method: str, runs: int) -> Row:
    size, asked = 1 << bits, Epsilon.parse(epsilon)
    if method == "bins":
        return binned(swept, shape, n, epsilon, bits, runs)
    cuts: Cuts = "points" if method == "points" else "domain"
    levels = min(MAX_LEVELS, max(1, math.ceil(math.log2(n * float(asked))))) if "paper" in method else None
    found = []
    for seed in range(runs):
        x, y = examples(shape, n, size, seed)
        fitted = isotonic(x, y, DOMAIN, size, asked, levels=levels, cuts=cuts)
        found.append(float(np.mean((fitted.apply(x) - y) ** 2)) / LABELS**2 - least(x, y))
    distinct = int(np.unique(x).size)
    grid = planned(DOMAIN, n, distinct, size, asked, levels=levels, cuts=cuts)
    places = distinct + 1 if cuts == "points" else size + 1
    proved = excess_bound(grid, places, asked) / LABELS**2 / n + (1 / (grid.size - 1)) ** 2 / 4
    return row(swept, shape, n, epsilon, bits, method, (grid.size - 1).bit_length(), found, proved)


def binned(swept: str, shape: str, n: int, epsilon: str, bits: int, runs: int) -> Row:
    size, asked, found = 1 << bits, Epsilon.parse(epsilon), []
    for seed in range(runs):
        x, y = examples(shape, n, size, seed)
        plan = BinnedMeans(DOMAIN, (axis_cells(x, size, default_bins(n, asked)),), n, asked)
        found.append(float(np.mean((plan.fit(x, y).apply(x) - y) ** 2)) / LABELS**2 - least(x, y))
    proved = binned_excess_bound(plan, plan.sums(x, y)[1]) / LABELS**2 / n + 1 / (4 * plan.count)
    return row(swept, shape, n, epsilon, bits, "bins", plan.count, found, proved)


def row(
    swept: str, shape: str, n: int, epsilon: str, bits: int, method: str, steps: int, found: list[float], proved: float
) -> Row:
    scale, runs = float(epsilon) * n, len(found)
    rate = bits * math.log(2) * (1 + math.log(scale) ** 2) / scale
    error = float(np.std(found)) / math.sqrt(runs)
    return Row(swept, shape, n, epsilon, bits, method, steps, runs, float(np.mean(found)), error, proved, rate)


def sweeps(quick: bool) -> Iterator[Row]:
    rows, epsilons, sizes = (ROWS[:2], EPSILONS[::3], SIZES[::2]) if quick else (ROWS, EPSILONS, SIZES)
    runs = 3 if quick else 10
    for shape in SHAPES:
        for method in METHODS:
            own = {"points": rows, "bins": rows, "domain": rows[:3]}.get(method, rows[:2])
            for n in own:
                yield measured("n", shape, n, EPSILON, 32, method, max(2, min(runs, 300_000 // n)))
        for method in METHODS[:3]:
            for epsilon in epsilons:
                yield measured("ε", shape, N, epsilon, 32, method, runs)
            for bits in sizes:
                yield measured("|X|", shape, N, EPSILON, bits, method, runs)


def timed(n: int) -> Iterator[dict[str, Any]]:
    """Processor seconds of one call in a warm process, all threads together."""
    x, y = examples("smooth", n, WIDE, 0)
    few, asked = n // 4, Epsilon.parse(EPSILON)
    for loss in ("squared", "absolute"):
        isotonic(x[:few], y[:few], DOMAIN, WIDE, asked, loss, levels=7)  # what is compiled is compiled now
        for cuts in ("points", "domain"):
            began = time.process_time()
            isotonic(x, y, DOMAIN, WIDE, asked, loss, cuts=cuts)
            yield {"n": n, "loss": loss, "cuts": cuts, "seconds": round(time.process_time() - began, 2)}


def draw(rows: list[Row], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import NullFormatter

    colours = {"points": "#0072B2", "domain": "#E69F00", "bins": "#009E73", "domain, paper's depth": "#8C8C8C"}
    axis_of = {"n": lambda row: row.n, "ε": lambda row: float(row.epsilon), "|X|": lambda row: 2.0**row.log2_size}
    figure, axes = plt.subplots(len(SHAPES), 3, figsize=(11, 6.4), sharey="row", layout="constrained")
    for line, shape in zip(axes, SHAPES, strict=True):
        for axis, (swept, along) in zip(line, axis_of.items(), strict=True):
            own = [row for row in rows if row.swept == swept and row.shape == shape]
            for method, colour in colours.items():
                of = [row for row in own if row.method == method]
                at = [along(row) for row in of]
                axis.errorbar(
                    at, [r.excess for r in of], [2 * r.error for r in of], color=colour, marker="o", ms=3, label=method
                )
                if method != METHODS[3]:
                    axis.plot(at, [row.proved for row in of], color=colour, linestyle="--", label=f"proved, {method}")
            of = [row for row in own if row.method == "domain"]
            axis.plot(
                [along(r) for r in of], [r.theorem_3 for r in of], color="k", linestyle=":", label="rate of theorem 3"
            )
            axis.set(xscale="log", yscale="log", xlabel=swept, title=f"{shape}, by {swept}")
            axis.xaxis.set_minor_formatter(NullFormatter())
            axis.grid(alpha=0.3)
        line[0].set_ylabel("excess of the squared loss (range 1)")
    handles, names = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def table(rows: list[Row], swept: str) -> Iterator[str]:
    yield f"By {swept}:"
    yield ""
    yield "| labels | n | ε | log₂ X | method | levels, cells | runs | excess | ± | proved | theorem 3 |"
    yield "|---|---|---|---|---|---|---|---|---|---|---|"
    for row in rows:
        if row.swept == swept:
            figures = " | ".join(f"{v:.2g}" for v in (row.excess, row.error, row.proved, row.theorem_3))
            kind = f"{row.shape} | {row.n} | {row.epsilon} | {row.log2_size} | {row.method} | {row.steps} | {row.runs}"
            yield f"| {kind} | {figures} |"
    yield ""


def run(out: Path, quick: bool) -> None:
    """isotonic.csv, isotonic.png and isotonic.md."""
    rows = list(sweeps(quick))
    times = list(timed(TIMED // 20 if quick else TIMED))
    with (out / "isotonic.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(asdict(rows[0])))
        writer.writeheader()
        writer.writerows({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in asdict(row).items()} for row in rows)
    draw(rows, out / "isotonic.png")
    lines = ["# Private isotonic regression, total orders", "", *(__doc__ or "").splitlines()[2:], ""]
    lines += [f"Labels 0:{LABELS}; n = {N}, ε = {EPSILON} and |X| = 2³² unless swept; ± is one standard error.", ""]
    lines += ["![excess risk](isotonic.png)", ""]
    for swept in ("n", "ε", "|X|"):
        lines += table(rows, swept)
    lines += [
        "Processor seconds of one call (warm, one core):",
        "",
        "| n | loss | cuts | seconds |",
        "|---|---|---|---|",
    ]
    lines += [f"| {t['n']} | {t['loss']} | {t['cuts']} | {t['seconds']} |" for t in times]
    text = "\n".join(lines) + "\n"
    (out / "isotonic.md").write_text(text, encoding="utf-8")
    print(text)
