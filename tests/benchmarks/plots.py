"""Growth over rows, over values of the domain and over earlier batches, as PNG beside the kept lines."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

from tests.benchmarks.lines import Line

# Okabe and Ito's palette, told apart by colour-blind readers; markers tell them apart in print
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "os^Dv*P"


def _plot(found: list[Line], end: str, ylabel: str, xlabel: str, title: str, path: Path) -> None:
    series: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for line in found:
        if line.size and line.name.endswith(end):
            series[line.name.removesuffix(", CPU")].append((line.size, line.figure))
    figure, axes = pyplot.subplots(figsize=(7, 4.5), layout="constrained")
    for i, (name, points) in enumerate(series.items()):
        style = {"color": COLOURS[i % len(COLOURS)], "marker": MARKERS[i % len(MARKERS)]}
        axes.plot(*zip(*sorted(points), strict=True), label=name, linestyle="--" if "DuckDB" in name else "-", **style)
    axes.set(xscale="log", yscale="log", xlabel=xlabel, ylabel=ylabel, title=title)
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _draw_growth(found: list[Line], folder: Path) -> None:
    """growth-n.png and growth-k.png of the lines of `bench_growth`."""
    over_n = [line for line in found if not line.name.startswith("solver")]
    over_k = [line for line in found if line.name.startswith("solver")]
    _plot(over_n, ", CPU", "seconds of CPU", "rows", "A stage's CPU, process start included", folder / "growth-n.png")
    _plot(over_k, "", "milliseconds", "values of the domain", "The solver at ε = 1", folder / "growth-k.png")


def _draw_history(found: list[Line], folder: Path) -> None:
    """growth-history.png of the lines of `bench_history`."""
    title = "Comparing a batch of 20,000 ids with all before"
    _plot(found, ", CPU", "milliseconds of CPU", "batches sealed before", title, folder / "growth-history.png")


draw = {"growth": _draw_growth, "history": _draw_history}
