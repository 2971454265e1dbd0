"""The paper's Figures 2, 3, 4 and 6 from stored cells, and the methods of others. One colour and marker per mechanism
in all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.benchmarks.utility import table_peers
from tests.benchmarks.utility.cells import INFINITE, Cell
from tests.benchmarks.utility.grid import (
    AUTO,
    COLUMNS,
    EXPONENTIAL,
    LAPLACE,
    RR_ON_BINS,
    STAIRCASE,
    UNCLIPPED,
    Column,
    Settings,
    cell_of,
    seeds_of,
)
from tests.benchmarks.utility.peers.cell import BLOCK_RR, RP_WITH_PRIOR
from tests.benchmarks.utility.results import Results, number
from tests.benchmarks.utility.table_errors import member_of

FloatArray = npt.NDArray[np.float64]

# Okabe and Ito's palette, told apart by colour-blind readers; markers tell them apart in print
LOOKS = {
    "RR-on-Bins": ("#0072B2", "o"),
    "Laplace": ("#E69F00", "s"),
    "staircase": ("#009E73", "^"),
    "exponential": ("#CC79A7", "D"),
    "RR": ("#8C8C8C", "x"),
    "RRWithPrior": ("#5A3E1B", "+"),
    "one bit": ("#D55E00", "v"),
    "unbiased": ("#56B4E9", "P"),
    "balanced": ("#A6A100", "*"),
    "auto": ("#000000", "."),
    "RPWithPrior": ("#009E73", "^"),
    "BlockRR": ("#CC79A7", "D"),
    "LightGBM": ("#D55E00", "v"),
    "XGBoost": ("#E69F00", "s"),
}
CORRECTED_STYLE, CLIPPED_STYLE = "--", "-"
DENSITY_EPSILON, DENSITY_DATA = "3", ("retail", "criteo")
DENSITY_COLUMNS = (RR_ON_BINS, LAPLACE, AUTO)
OURS = replace(AUTO, title="auto, default model")  # the others are trees of the rule's size, on the same rows
LINEAR_BELOW = 0.01
RELATIVE_TICKS = (-0.01, 0, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30)
SMOOTHING = 1.2  # labels: standard deviation of the kernel, as a density plot needs one
TITLES = ("one bit, clipped", "unbiased", "balanced", "RR-on-Bins, corrected")
COMPARED = (RR_ON_BINS, LAPLACE, STAIRCASE, EXPONENTIAL, *(c for c in COLUMNS if c.title in TITLES), AUTO, OURS)
DISCRETE = (
    RR_ON_BINS,
    *(c for c in COLUMNS if c.title in ("discrete Laplace", "discrete staircase")),
    *COMPARED[3:],
)  # whole-number labels, as in the paper
FIGURE_3 = ("retail", "bike", "criteo")
FIGURE_4 = ("census", "claims", "census1940")
FIELD = "retail"  # what the README shows: real sales
IN_FIELD = {
    "rr-on-bins": "RR-on-Bins",
    "rr-with-prior": "RRWithPrior",
    "unbiased": "unbiased",
    RP_WITH_PRIOR: "RPWithPrior",
    BLOCK_RR: "BlockRR",
    "lightgbm": "LightGBM",
    "xgboost": "XGBoost",
    "ours": "auto",
}  # the families of the peers of one message
LABEL_GAP = 0.05  # of the axis, between the middles of two labels of lines


def cells(settings: Settings, parts: Iterable[str]) -> Iterator[Cell]:
    """What the figures need besides the cells of the tables."""
    if "peers" in parts and FIELD in settings.data:
        yield from seeds_of(table_peers.none(FIELD, settings), settings)
    if "table1" in parts:
        for data in (one for one in settings.data if one in (*FIGURE_3, *FIGURE_4)):
            for epsilon in (one for one in settings.grid(data) if one != INFINITE):
                yield from seeds_of(_cell(OURS, data, epsilon, settings), settings)
        for data in DENSITY_DATA:
            if data in settings.data:
                yield from (_density_cell(column, data, settings) for column in DENSITY_COLUMNS if column.known)


def draw(results: Results, parts: Iterable[str], folder: Path) -> Iterator[tuple[str, str]]:
    """Write what can be drawn; yields (file name, caption)."""
    makers: list[tuple[str, Callable[[Results, Path], str | None]]] = []
    if "table1" in parts:
        makers += [(f"figure2-{data}.png", _bound(_figure_2, data)) for data in DENSITY_DATA]
        makers += [(f"figure3-{data}.png", _bound(_figure_3, data)) for data in FIGURE_3]
        makers += [(f"figure4-{data}.png", _bound(_figure_4, data)) for data in FIGURE_4]
        makers += [(f"figure6-{data}.png", _bound(_figure_6, data)) for data in DENSITY_DATA]
    if "peers" in parts:
        makers += [(f"peers-{FIELD}.png", _bound(_field, FIELD))]
    if not makers:
        return
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams.update(
        {"font.size": 9, "axes.grid": True, "grid.alpha": 0.3, "legend.frameon": False, "savefig.dpi": 130}
        | {"axes.spines.top": False, "axes.spines.right": False, "figure.constrained_layout.use": True}
    )
    for name, make in makers:
        caption = make(results, folder / name)
        if caption is not None:
            yield name, caption


def _bound(figure: Callable[[Results, str, Path], str | None], data: str) -> Callable[[Results, Path], str | None]:
    return lambda results, path: figure(results, data, path) if data in results.settings.data else None


def _cell(column: Column, data: str, epsilon: str, settings: Settings) -> Cell:
    cell = cell_of(column, data, epsilon, settings)
    return replace(cell, learner=settings.learner("full", data)) if column is OURS else cell


def _density_cell(column: Column, data: str, settings: Settings) -> Cell:
    return cell_of(column, data, DENSITY_EPSILON, settings, kind="joint", learner="quick")


def _figure_2(results: Results, data: str, path: Path) -> str | None:
    from matplotlib import pyplot as plt
    from matplotlib.lines import Line2D
    from scipy.ndimage import gaussian_filter

    found = [(column, results.of(_density_cell(column, data, results.settings))) for column in DENSITY_COLUMNS]
    if not all(results_of for _, results_of in found):
        return None
    figure, axes = plt.subplots(1, len(found), figsize=(4 * len(found), 4), sharex=True)
    panels = []
    for column, (result, *_) in found:
        edges, labels = np.array(result["edges"]), np.array(result["labels"])
        step, width = float(labels[1] - labels[0]), float(edges[1] - edges[0])
        density = np.array(result["density"]) / (step * width)
        smooth = gaussian_filter(density, (SMOOTHING, SMOOTHING * step / width), mode="constant")
        panels.append((column, result, labels, edges, smooth))
    top = max(float(smooth.max()) for *_, smooth in panels)
    levels = np.geomspace(top / 3000, top, 11)
    for axis, (column, result, labels, edges, smooth) in zip(axes, panels, strict=True):
        outputs = (edges[:-1] + edges[1:]) / 2
        colour = LOOKS[column.family][0]
        axis.contourf(labels, outputs, smooth.T, levels=levels, norm="log", cmap="Blues", alpha=0.9)
        axis.contour(labels, outputs, smooth.T, levels=levels, norm="log", colors="0.25", linewidths=0.4)
        axis.grid(visible=False)
        axis.plot(labels, labels, color="0.4", linewidth=0.8, linestyle=":")
        axis.set(title=column.title, xlabel="true label", xlim=(labels[0], labels[-1]))
        axis.set(ylim=(edges[0], edges[-1]))  # of auto beyond the labels: its outputs are nearly unbiased
        axis.legend(
            handles=[Line2D([], [], color=colour, label=f"MSE {number(result['label_mse'])}")],
            loc="upper left",
            frameon=True,
        )
    axes[0].set_ylabel("randomized label")
    figure.savefig(path)
    plt.close(figure)
    what = f"joint density of true and randomized labels at ε = {DENSITY_EPSILON}"
    what += "; contours in log scale, the same levels everywhere"
    return f"Figure 2, {data}: {what}. {AUTO.title} is made for models: its labels are right on average, not near."


def _figure_3(results: Results, data: str, path: Path) -> str | None:
    panels = [("label_mse", "MSE of the labels", "(a) mechanism"), ("mse", "test MSE", "(b) generalization")]
    if not _lines(results, data, path, _compared(data), panels):
        return None
    return f"Figure 3, {data}: error that the mechanism brings into the labels, and test error of models on them."


def _figure_4(results: Results, data: str, path: Path) -> str | None:
    if member_of(data) == "poisson":
        base = results.mean(cell_of(RR_ON_BINS, data, INFINITE, results.settings), "poisson")
        if not base:
            return None
        panels = [("poisson", "relative Poisson loss (E − E₀)/E₀", "relative to no privacy")]
        if not _lines(results, data, path, _compared(data), panels, relative_to=base.mean):
            return None
        return f"Figure 4, {data}: test Poisson loss relative to that without privacy."
    if not _lines(results, data, path, _compared(data), [("mse", "test MSE", "generalization")]):
        return None
    return f"Figure 4, {data}: test MSE by ε."


def _figure_6(results: Results, data: str, path: Path) -> str | None:
    columns = (RR_ON_BINS, LAPLACE, STAIRCASE, *UNCLIPPED, EXPONENTIAL, AUTO, OURS)
    panels = [("label_mse", "MSE of the labels", "(a) mechanism"), ("mse", "test MSE", "(b) generalization")]
    if not _lines(results, data, path, columns, panels):
        return None
    return f"Figure 6, {data}: additive noise with (solid) and without (dotted) clipping to the domain."


def _field(results: Results, data: str, path: Path) -> str | None:
    """One line per method of one message, with its name at its right end; dotted what knows nothing or everything."""
    from matplotlib import pyplot as plt

    settings = results.settings
    grid = settings.at(table_peers.EPSILONS)
    means = {
        peer: [table_peers.figure(results, peer, data, epsilon, "mse") for epsilon in grid]
        for peer in table_peers.PEERS
        if peer in IN_FIELD
    }
    if not grid or not all(means["ours"]):
        return None
    figure, axis = plt.subplots(figsize=(8.4, 4.6))
    names: list[tuple[float, str, str]] = []  # where a line ends, its name, its colour
    for peer, family in IN_FIELD.items():
        at = [i for i, mean in enumerate(means[peer]) if mean]
        if not at:
            continue
        (colour, marker), ours = LOOKS[family], peer == "ours"
        x, y = [float(grid[i]) for i in at], np.array([means[peer][i].mean for i in at])
        spread = np.nan_to_num(np.array([means[peer][i].std for i in at]))  # none of one seed
        width, marker, order = (3.0, "o", 4) if ours else (1.4, marker, 3)
        axis.plot(x, y, color=colour, marker=marker, markersize=5, linewidth=width, zorder=order, clip_on=False)
        axis.fill_between(x, y - spread, y + spread, color=colour, alpha=0.15, linewidth=0)
        names.append((float(y[-1]), "this service" if ours else table_peers.PEERS[peer].title, colour))
    ours = table_peers.cells_of("ours", data, grid[0], settings)[0]
    dotted = [("mean for everybody", results.mean(ours, "constant_mse"))]
    dotted += [("no privacy", results.mean(table_peers.none(data, settings), "mse"))]
    for name, mean in dotted:
        if mean:
            axis.axhline(mean.mean, color="0.35", linewidth=1.2, linestyle=(0, (1, 1.5)), zorder=1)
            names.append((mean.mean, name, "0.35"))
    axis.set(title=f"Test error on real sales ({data}): lower is better", xlabel="ε", ylabel="test MSE", xscale="log")
    axis.minorticks_off()
    _readable(axis, grid, relative=False)
    axis.tick_params(axis="x", labelsize=9)
    axis.set_xlim(0.95 * float(grid[0]), float(grid[-1]))
    _name(axis, names)
    figure.savefig(path)
    plt.close(figure)
    return (
        f"Methods of one message on {data} by ε: test MSE, mean and standard deviation over seeds. This service takes "
        "every default; each other method takes the best of its settings by test labels. Dotted: the mean label as the "
        "prediction of every row, and this service's model of true labels."
    )


def _name(axis: Any, names: list[tuple[float, str, str]]) -> None:
    """Names to the right of the axis, as near to their lines as they fit without overlapping."""
    low, high = np.log(axis.get_ylim())
    ordered = sorted(names)
    wanted = np.array([(np.log(y) - low) / (high - low) for y, _, _ in ordered])
    places = places_of(wanted)
    for place, at, (_, name, colour) in zip(places, wanted, ordered, strict=True):
        weight = "bold" if name == "this service" else "normal"
        axis.plot([1.0, 1.06], [at, place], color=colour, linewidth=0.7, transform=axis.transAxes, clip_on=False)
        axis.text(1.07, place, name, color=colour, va="center", fontweight=weight, transform=axis.transAxes)


def places_of(wanted: FloatArray) -> FloatArray:
    """Rising places at least `LABEL_GAP` apart, nearest to the rising ones wanted: least squares, which is isotonic
    regression of what is left after the gaps."""
    from scipy.optimize import isotonic_regression

    gaps = LABEL_GAP * np.arange(len(wanted))
    return np.asarray(isotonic_regression(wanted - gaps).x + gaps, np.float64)


def _compared(data: str) -> Sequence[Column]:
    return COMPARED if data in DENSITY_DATA else DISCRETE


def _lines(
    results: Results,
    data: str,
    path: Path,
    columns: Sequence[Column],
    panels: Sequence[tuple[str, str, str]],
    relative_to: float | None = None,
) -> bool:
    """One panel per figure of merit, one line per column; False where there is nothing to draw."""
    from matplotlib import pyplot as plt

    settings = results.settings
    grid = [epsilon for epsilon in settings.grid(data) if epsilon != INFINITE]
    figure, axes = plt.subplots(1, len(panels), figsize=(4.3 * len(panels) + 1.6, 4), squeeze=False)
    handles: dict[str, Any] = {}
    for axis, (member, ylabel, title) in zip(axes[0], panels, strict=True):
        for column in columns:
            means = [results.mean(_cell(column, data, e, settings), member) for e in grid] if column.known else []
            if column is OURS and _cell(OURS, data, grid[0], settings) == _cell(AUTO, data, grid[0], settings):
                continue  # quick runs, and the paper's network, have one model for all
            at = [i for i, mean in enumerate(means) if mean]
            if not at or (member == "label_mse" and column.correction != "none"):
                continue  # what will be corrected is not made for a small error of the labels as sent
            colour, marker = LOOKS[column.family]
            y = np.array([means[i].mean for i in at])
            spread = np.nan_to_num(np.array([means[i].std for i in at]))
            if relative_to is not None:
                y, spread = (y - relative_to) / relative_to, spread / relative_to
            x = [float(grid[i]) for i in at]
            (line,) = axis.plot(
                x,
                y,
                color=colour,
                marker=marker,
                linestyle=_style(column),
                label=column.title,
                markersize=5,
                linewidth=2.0 if column is OURS else 1.3,
                zorder=3 if column.family == AUTO.family else 2,
            )
            axis.fill_between(x, y - spread, y + spread, color=colour, alpha=0.12, linewidth=0)
            handles.setdefault(column.title, line)
        base = results.mean(cell_of(RR_ON_BINS, data, INFINITE, settings), member)
        if base and member != "label_mse" and relative_to is None:
            handles.setdefault(
                "no privacy, trees",
                axis.axhline(base.mean, color="0.3", linewidth=1, linestyle=(0, (1, 1)), label="no privacy, trees"),
            )
        axis.set(title=f"{title}, {data}", xlabel="ε", ylabel=ylabel, xscale="log")
        _readable(axis, grid, relative_to is not None)
    if handles:
        figure.legend(handles=list(handles.values()), loc="outside right center")
        figure.savefig(path)
    plt.close(figure)
    return bool(handles)


def _style(column: Column) -> str:
    if column.options.get("unclipped"):
        return ":"
    if column is AUTO:
        return "-."
    return CORRECTED_STYLE if column.title.endswith("corrected") else CLIPPED_STYLE


def _readable(axis: Any, grid: Sequence[str], relative: bool) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_xticks([float(e) for e in grid], grid)
    axis.tick_params(axis="x", labelsize=7)
    axis.xaxis.set_minor_formatter(NullFormatter())
    if relative:  # may be below 0 by chance
        drawn = np.concatenate([np.asarray(line.get_ydata(), np.float64) for line in axis.lines])
        axis.set_yscale("symlog", linthresh=LINEAR_BELOW)
        axis.set_ylim(min(1.5 * float(drawn.min()), 0.0), 1.5 * float(drawn.max()))
        axis.set_yticks([tick for tick in RELATIVE_TICKS if axis.get_ylim()[0] <= tick <= axis.get_ylim()[1]])
        axis.yaxis.set_major_formatter(FuncFormatter(lambda y, _at: f"{100 * y:g}%"))
        return
    axis.set_yscale("log")
    low, high = axis.get_ylim()
    subs = (1.0, 2.0, 5.0) if high / low < 300 else (1.0,)
    axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 1.5, 2.0, 3.0, 5.0, 7.0) if high / low < 12 else subs))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda y, _at: f"{y:,.0f}" if y >= 10 else f"{y:g}"))
    axis.yaxis.set_minor_formatter(NullFormatter())
