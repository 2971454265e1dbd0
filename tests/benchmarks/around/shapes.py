"""Constrained isotonic fits and partial orders beside plain Algorithm 1, the paper's baseline and the bounds.

Losses are squared differences over the squared range of the labels. `excess` is the empirical loss beyond that of the
best function of the method's class and grid (found at an ε of 10⁶); `distance` the mean squared distance to the
function that the labels were drawn around, which a user feels; `bound` what is proved of the excess
(`shape_excess_bound`, `excess_bound`, `poset_excess_bound`, `baseline_excess_bound`).
"""

from __future__ import annotations

import csv
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from label_dp.companions.maps.monotone import MonotoneMap
from label_dp.domain import Domain
from label_dp.privacy import Epsilon
from labels_party.companions.mechanisms.isotonic.antichains import isotonic_poset, poset_grid
from labels_party.companions.mechanisms.isotonic.depth import planned
from labels_party.companions.mechanisms.isotonic.fit import constrained, design
from labels_party.companions.mechanisms.isotonic.grid import loss_grid
from labels_party.companions.mechanisms.isotonic.posets import Poset
from labels_party.companions.mechanisms.isotonic.shape_options import ShapeOptions
from labels_party.companions.mechanisms.isotonic.total_order import isotonic
from tests.support.isotonic_baseline import CELLS, baseline, baseline_excess_bound, baseline_poset
from tests.support.isotonic_bounds import excess_bound, poset_excess_bound, shape_excess_bound

LABELS, SIZE = 100, 1 << 20
DOMAIN = Domain.parse(f"0:{LABELS}")
NOISE = 20
ENOUGH = Epsilon.parse("1000000")
ROWS, EPSILONS = (1_000, 10_000, 100_000), ("0.1", "1", "10")
N, EPSILON = 10_000, "1"
BASELINE_VALUES = 16  # its own rule takes up to 256, and minutes

FloatArray = npt.NDArray[np.float64]
Fitting = Callable[[Any, Any, Epsilon], FloatArray]
Examples = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], FloatArray]
TRUTHS: dict[str, Callable[[FloatArray], FloatArray]] = {
    "four steps": lambda t: 20 + 20 * np.floor(4 * t),
    "three lines": lambda t: np.interp(t, [0, 0.375, 0.625, 1], [22, 28, 72, 78]),
    "sine": lambda t: 50 - 28 * np.cos(np.pi * t),
    "cube": lambda t: 22 + 56 * t**3,
    "mirrored cube": lambda t: 78 - 56 * (1 - t) ** 3,
}
FITTING = {
    "four steps": ("pieces", ShapeOptions(pieces=4)),
    "three lines": ("linear", ShapeOptions(pieces=3)),
    "sine": ("lipschitz", ShapeOptions(lipschitz=f"{100 / SIZE:.12f}")),
    "cube": ("convex", ShapeOptions()),
    "mirrored cube": ("concave", ShapeOptions()),
}
POSETS = ((2, 32), (3, 16), (4, 8), (8, 8))
GRIDS = {
    "pieces": [{"cells": c, "values": v} for c, v in ((16, 16), (64, 16), (256, 16), (64, 64), (1024, 256))],
    "linear": [{"knots": k, "values": v} for k, v in ((5, 16), (9, 16), (9, 64), (17, 32), (33, 32))],
    "lipschitz": [{"knots": k, "values": v} for k, v in ((5, 16), (9, 32), (9, 64), (17, 128), (33, 256))],
    "convex": [{"knots": k, "values": v} for k, v in ((5, 16), (9, 16), (9, 64), (17, 128), (33, 256))],
}


@dataclass(frozen=True)
class Row:
    part: str
    data: str
    method: str
    grid: str
    n: int
    epsilon: str
    runs: int
    excess: float
    distance: float
    bound: float
    seconds: float


@dataclass(frozen=True)
class Method:
    """`fit(x, y, ε)` gives predictions float64[n]; `bound(n, ε)` that of the excess, per example of range 1. `best`, at
    much ε, the best of the same class and grid, where `fit` itself would take too long."""

    name: str
    grid: str
    fit: Fitting
    bound: Callable[[int, Epsilon], float]
    best: Fitting | None = None


def examples(truth: str, n: int, seed: int) -> Examples:
    """Uniform scores; labels uniform within ±NOISE around the truth, so that none is clipped."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, SIZE, n)
    mean = TRUTHS[truth](x / SIZE)
    return x, np.rint(mean + rng.uniform(-NOISE, NOISE, n)).astype(np.int64), mean


def grid_examples(width: int, height: int, n: int, seed: int) -> Examples:
    """Elements of a grid, uniform; the truth rises in both coordinates."""
    rng = np.random.default_rng(seed)
    i, j = rng.integers(0, width, n), rng.integers(0, height, n)
    mean = 22 + 56 * np.sqrt((i + 0.5) / width * (j + 0.5) / height)
    return i * height + j, np.rint(mean + rng.uniform(-NOISE, NOISE, n)).astype(np.int64), mean


def applied(fit: Callable[..., MonotoneMap], **options: Any) -> Fitting:
    return lambda x, y, epsilon: fit(x, y, DOMAIN, SIZE, epsilon, **options).apply(x)


def plain() -> Method:
    return Method("algorithm 1", "", applied(isotonic), lambda n, e: _scaled(excess_bound(*_planned(n, e), e), n))


def _planned(n: int, epsilon: Epsilon) -> tuple[Any, int]:
    return planned(DOMAIN, n, n, SIZE, epsilon), n + 1


def _scaled(bound: float, n: int) -> float:
    return bound / LABELS**2 / n


def exponential() -> Method:
    cells, values = CELLS // 2, BASELINE_VALUES
    grid, functions = loss_grid(DOMAIN, "squared", values), math.comb(cells + values - 1, values - 1)
    return Method(
        "baseline (appendix A)",
        f"{cells} cells, {values} values",
        applied(baseline, cells=cells, values=values),
        lambda n, e: _scaled(baseline_excess_bound(functions, grid, e), n),
        applied(constrained, shape="pieces", options=ShapeOptions(pieces=cells, cells=cells, values=values)),
    )


def of_shape(shape: str, options: ShapeOptions, n: int, epsilon: Epsilon) -> Method:
    """The values are those of the public rule for these n and ε, for the reference too."""
    made = design(shape, DOMAIN, SIZE, n, epsilon, options=options)
    own = ShapeOptions(**{**asdict(options), "values": made.values})
    grid = f"{made.cells} cells" if shape == "pieces" else f"{made.knots} knots, {made.steps} steps"

    def fit(x: Any, y: Any, asked: Epsilon) -> FloatArray:
        return design(shape, DOMAIN, SIZE, n, asked, options=own).fit(x, y).apply(x)

    return Method(shape, f"{grid}, {made.values} values", fit, lambda n, e: _scaled(shape_excess_bound(made), n))


def measured(part: str, data: str, method: Method, make: Callable[[int], Examples], epsilon: Epsilon, runs: int) -> Row:
    excess, distance, seconds, n = [], [], 0.0, 0
    for seed in range(runs):
        x, y, mean = make(seed)
        n = x.size
        began = time.process_time()
        found = method.fit(x, y, epsilon)
        seconds += time.process_time() - began
        least = (method.best or method.fit)(x, y, ENOUGH)
        excess.append(float(np.mean((found - y) ** 2 - (least - y) ** 2)) / LABELS**2)
        distance.append(float(np.mean((found - mean) ** 2)) / LABELS**2)
    means = float(np.mean(excess)), float(np.mean(distance))
    return Row(
        part, data, method.name, method.grid, n, str(epsilon), runs, *means, method.bound(n, epsilon), seconds / runs
    )


def on_lines(quick: bool) -> Iterator[Row]:
    """Each truth with the shape that it has, beside plain Algorithm 1 and the baseline."""
    settings = [(n, EPSILON) for n in ROWS] + [(N, e) for e in EPSILONS if e != EPSILON]
    for truth, (shape, options) in FITTING.items():
        for n, text in settings[:2] if quick else settings:
            epsilon, make = Epsilon.parse(text), lambda seed, truth=truth, n=n: examples(truth, n, seed)
            for method in (of_shape(shape, options, n, epsilon), plain(), exponential()):
                runs = 2 if quick else 3 if method.best or n > N else 8
                yield measured("line", truth, method, make, epsilon, runs)


def of_grids(quick: bool) -> Iterator[Row]:
    """What finer grids cost and give."""
    truths = {shape: truth for truth, (shape, _) in FITTING.items()}
    epsilon = Epsilon.parse(EPSILON)
    for shape, sizes in GRIDS.items():
        truth = truths[shape]
        make = lambda seed, truth=truth: examples(truth, N, seed)  # noqa: E731 - a name says what it is
        for size in sizes[:3] if quick else sizes:
            options = ShapeOptions(**{**asdict(FITTING[truth][1]), **size})
            yield measured("grid", truth, of_shape(shape, options, N, epsilon), make, epsilon, 2 if quick else 4)


def on_orders(quick: bool) -> Iterator[Row]:
    for width, height in POSETS[1:3] if quick else POSETS:
        poset, name = Poset.grid(width, height), f"{width} × {height}"
        for n, text in [(N, EPSILON)] if quick else [(n, EPSILON) for n in ROWS] + [(N, "0.1"), (N, "10")]:
            epsilon, shape = Epsilon.parse(text), (width, height)
            make = lambda seed, shape=shape, n=n: grid_examples(*shape, n, seed)  # noqa: E731 - a name says what it is
            yield measured("order", name, of_order(poset, n, epsilon), make, epsilon, 2 if quick else 6)
            if float(epsilon) * n * poset.down_sets.count <= 2e7:  # else minutes
                yield measured("order", name, exponential_on(poset), make, epsilon, 2)


def of_order(poset: Poset, n: int, epsilon: Epsilon) -> Method:
    grid = poset_grid(DOMAIN, poset, n, epsilon, "squared")
    return Method(
        "algorithm 3",
        f"{poset.down_sets.count} down-sets, {grid.size} values",
        lambda x, y, e: isotonic_poset(x, y, DOMAIN, poset, e, values=grid.size)[x],
        lambda n, e: _scaled(poset_excess_bound(grid, poset, e), n),
    )


def exponential_on(poset: Poset) -> Method:
    values = BASELINE_VALUES // 2
    grid = loss_grid(DOMAIN, "squared", values)
    functions = poset.down_sets.count ** (values - 1)  # at most: chains of V − 1 down-sets
    return Method(
        "baseline (appendix A)",
        f"{values} values",
        lambda x, y, e: baseline_poset(x, y, DOMAIN, poset, e, values=values)[x],
        lambda n, e: _scaled(baseline_excess_bound(functions, grid, e), n),
        lambda x, y, e: isotonic_poset(x, y, DOMAIN, poset, e, values=values)[x],
    )


# --- tables and figures -------------------------------------------------------------------------------------


def table(rows: list[Row]) -> str:
    lines = [
        "| data | method | grid | n | ε | excess | bound | distance | s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        lines.append(
            f"| {row.data} | {row.method} | {row.grid} | {row.n:,} | {row.epsilon} | {row.excess:.5f} "
            f"| {row.bound:.4f} | {row.distance:.5f} | {row.seconds:.2f} |"
        )
    return "\n".join(lines)


def draw(rows: list[Row], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    colours = ("#0072B2", "#8C8C8C", "#E69F00")
    figure, axes = plt.subplots(2, 5, figsize=(14, 5.6), sharex=True, sharey="row", layout="constrained")
    for column, truth in enumerate(TRUTHS):
        own = [row for row in rows if row.part == "line" and row.data == truth and row.epsilon == EPSILON]
        for colour, method in zip(colours, dict.fromkeys(row.method for row in own), strict=False):
            of = [row for row in own if row.method == method]
            at = [row.n for row in of]
            label = FITTING[truth][0] if method == FITTING[truth][0] else method
            axes[0][column].plot(at, [row.distance for row in of], color=colour, marker="o", ms=3, label=label)
            axes[1][column].plot(at, [max(row.excess, 1e-6) for row in of], color=colour, marker="o", ms=3)
            axes[1][column].plot(at, [row.bound for row in of], color=colour, linestyle="--")
        axes[0][column].set(title=truth, xscale="log", yscale="log")
        axes[1][column].set(xlabel="n", xscale="log", yscale="log")
        axes[0][column].legend(fontsize=7)
    axes[0][0].set(ylabel="squared distance to the truth")
    axes[1][0].set(ylabel="excess (dashed: bound)")
    figure.suptitle(f"ε = {EPSILON}, squared loss over the squared range of the labels")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def draw_orders(rows: list[Row], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    own = [row for row in rows if row.part == "order" and row.epsilon == EPSILON]
    names = list(dict.fromkeys(row.data for row in own))
    figure, axes = plt.subplots(1, len(names), figsize=(3.2 * len(names), 3.2), sharey=True, squeeze=False)
    for axis, name in zip(axes[0], names, strict=True):
        for method, colour in (("algorithm 3", "#0072B2"), ("baseline (appendix A)", "#E69F00")):
            of = [row for row in own if row.data == name and row.method == method]
            axis.plot([row.n for row in of], [row.distance for row in of], color=colour, marker="o", ms=3, label=method)
            if method == "algorithm 3":
                at = [row.n for row in of]
                axis.plot(
                    at, [max(r.excess, 1e-6) for r in of], color=colour, marker="s", ms=3, ls=":", label="its excess"
                )
                axis.plot(at, [r.bound for r in of], color=colour, linestyle="--", label="its bound")
        axis.set(title=name, xlabel="n", xscale="log", yscale="log")
        axis.legend(fontsize=7)
    axes[0][0].set(ylabel="squared distance to the truth")
    figure.suptitle(f"monotone in two coordinates, ε = {EPSILON}")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def run(out: Path, quick: bool) -> None:
    """`shapes.csv`, `shapes.md`, `shapes.png`, `orders.png`."""
    write([*on_lines(quick), *of_grids(quick), *on_orders(quick)], out)


def write(rows: list[Row], out: Path) -> None:
    with (out / "shapes.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Row)])
        writer.writeheader()
        for row in rows:
            writer.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in asdict(row).items()})
    parts = {
        "line": "Data of each shape: the fit of that shape, plain Algorithm 1, all monotone functions at once",
        "grid": f"What finer grids give and cost (n = {N:,}, ε = {EPSILON})",
        "order": "Monotone in two coordinates: grids of width × height",
    }
    text = [
        "# Constrained isotonic regression and partial orders\n",
        "Squared loss over the squared range of the labels; labels uniform within ±20 % of the range around the truth.",
        "`excess`: beyond the best function of the same class and grid; `bound`: what is proved of it; `distance`:",
        "squared, to the truth; `s`: processor seconds. Made by `make around ARGS=shapes`.\n",
    ]
    for part, title in parts.items():
        text += [f"## {title}\n", table([row for row in rows if row.part == part]) + "\n"]
    (out / "shapes.md").write_text("\n".join(text), encoding="utf-8")
    draw(rows, out / "shapes.png")
    draw_orders(rows, out / "orders.png")
    print("\n".join(text))
