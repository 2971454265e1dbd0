"""Pictures inside a page, made on the server: curves, bars, reliability."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from label_dp.documents.statement_text import number
from label_dp.pictures import COLOURS, FIRST, INK, hold, markup, new_axes

MOST_LETTERS = 24  # of the name of a bar: what fits beside it


@dataclass(frozen=True)
class Curve:
    """`dots`: single points, not joined by a line."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    dots: bool = False


@dataclass(frozen=True)
class Bar:
    """A named value with its interval `low` to `high`; `pale`: drawn as an outline."""

    name: str
    value: float
    low: float
    high: float
    pale: bool = False


def warm() -> None:
    """Load the library and its fonts, so that the next picture is quick."""
    bars("", "", "", [("", 1.0)])


def curves(
    name: str,
    told: str,
    across: str,
    up: str,
    drawn: Sequence[Curve],
    *,
    log: bool = False,
    mark: float | None = None,
    from_zero: bool = True,
) -> Markup:
    """Lines and dots over one axis; `log`: ε and sizes by factors; `mark`: a place of the axis that is asked about."""
    figure, axes = new_axes(across, up)
    for curve, colour in zip(drawn, COLOURS, strict=False):
        how = "o" if curve.dots else "-"
        axes.plot(curve.x, curve.y, how, color=colour, linewidth=2, markersize=7 if curve.dots else 0, label=curve.name)
    if log:
        axes.set_xscale("log", base=2)
        axes.minorticks_off()
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    if mark is not None:
        axes.axvline(mark, color=INK, linewidth=1, linestyle=(0, (4, 3)))
    if from_zero:
        axes.set_ylim(bottom=0)
    if len(drawn) > 1:
        axes.legend(frameon=False, labelcolor=INK)
    hold(figure, axes)
    return markup(figure, name, told)


def bars(name: str, told: str, across: str, shares: Sequence[tuple[str, float]]) -> Markup:
    """A bar for each named value, the first on top."""
    figure, axes, places = _bar_axes(across, [text for text, _ in shares])
    axes.barh(places, [share for _, share in shares], height=0.66, color=FIRST)
    axes.set_xlim(left=0)
    hold(figure, axes)
    return markup(figure, name, told)


def intervals(name: str, description: str, across: str, values: Sequence[Bar]) -> Markup:
    """A bar with its interval for each named value, the first on top."""
    figure, axes, places = _bar_axes(across, [bar.name for bar in values])
    for place, bar in zip(places, values, strict=True):
        axes.barh(place, bar.value, height=0.66, color="none" if bar.pale else FIRST, edgecolor=FIRST, alpha=0.6)
    centres = [(bar.low + bar.high) / 2 for bar in values]
    reach = [(bar.high - bar.low) / 2 for bar in values]
    axes.errorbar(centres, places, xerr=reach, fmt="none", ecolor=INK, elinewidth=1.6)
    axes.axvline(0, color=INK, linewidth=1)
    axes.set_ylim(0.4, len(values) + 0.6)
    axes.locator_params(axis="x", nbins=5)
    axes.xaxis.set_major_formatter(lambda value, _: number(value))
    hold(figure, axes)
    return markup(figure, name, description)


def _shortened(text: str) -> str:
    """Cut a name in its middle: names of one kind often differ in their last letters."""
    return text if len(text) <= MOST_LETTERS else f"{text[: MOST_LETTERS // 2]}…{text[-MOST_LETTERS // 2 + 1 :]}"


def _bar_axes(across: str, names: Sequence[str]) -> tuple[Any, Any, list[int]]:
    """Make a figure, axes to `hold` at the end, and the place of each name, the first on top."""
    figure, axes = new_axes(across, "", height=max(1.2, 0.28 * len(names) + 0.7))
    height = figure.get_figheight()
    axes.set_position((0.02, 0.5 / height, 0.95, 1 - 0.62 / height))
    places = list(range(len(names), 0, -1))
    axes.set_yticks(places, [_shortened(text) for text in names])
    axes.grid(False, axis="y")
    return figure, axes, places


def reliability(
    name: str,
    told: str,
    across: str,
    up: str,
    x: Sequence[float],
    y: Sequence[float],
    low: Sequence[float],
    high: Sequence[float],
) -> Markup:
    """Mean label against mean prediction by bin, with its interval, beside the diagonal."""
    figure, axes = new_axes(across, up, height=3.4)
    ends = min([*x, *y]), max([*x, *y])
    axes.plot(ends, ends, color=INK, linewidth=1, linestyle=(0, (4, 3)))
    # an estimate may lie outside of an interval that is cut at the ends of the label
    reach = (
        [max(b - a, 0.0) for a, b in zip(low, y, strict=True)],
        [max(b - a, 0.0) for a, b in zip(y, high, strict=True)],
    )
    axes.errorbar(x, y, yerr=reach, fmt="o-", color=FIRST, markersize=5, linewidth=1.5, capsize=2)
    return markup(figure, name, told)
