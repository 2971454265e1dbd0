"""Pictures as SVG inside a page, made on the server by matplotlib: curves, bars, reliability.

What matplotlib writes as styles becomes attributes, since the pages allow no inline style; so the page's own style
decides of ink and lines, in dark mode too. A picture has a title and a sentence for whoever does not see it.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from markupsafe import Markup, escape

INK, GRID, FIRST, SECOND = "#1b222b", "#d9dfe6", "#2f6fa8", "#c05f1a"
COLOURS = (FIRST, SECOND, "#3d8b5f", "#8a4fa0")
MOST_POINTS = 400
STYLE = re.compile(r' style="([^"]*)"')
FONT = re.compile(r"font: (?:[a-z]+ )*([\d.]+px) ([^;]+)")
HEAD = re.compile(r"^.*?(?=<svg)|<metadata>.*?</metadata>|<style[^>]*>.*?</style>", re.DOTALL)
SIZE = re.compile(r'(<svg[^>]*?) (?:width|height)="[^"]*"')
IDS = re.compile(r'(id="|url\(#|href="#)')


@dataclass(frozen=True)
class Curve:
    """`dots`: single points, not joined by a line."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    dots: bool = False


@cache
def _figure_class() -> Any:
    """Imported once, and only where a picture is made: it takes half a second."""
    import matplotlib
    from matplotlib.figure import Figure

    matplotlib.rcParams.update(
        {"svg.fonttype": "none", "svg.hashsalt": "label-dp", "font.family": "sans-serif", "font.size": 10}
    )
    return Figure


def warm() -> None:
    """Load the library and its fonts, so that the next picture is quick."""
    bars("", "", "", [("", 1.0)])


def _axes(across: str, up: str, height: float = 3.0) -> tuple[Any, Any]:
    figure = _figure_class()(figsize=(7.0, height))
    axes = figure.add_axes((0.115, 0.17, 0.865, 0.77))
    axes.set_xlabel(across[:80], color=INK)
    axes.set_ylabel(up[:60], color=INK)
    axes.grid(True, color=GRID, linewidth=0.7)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(INK)
    axes.tick_params(colors=INK)
    axes.patch.set_visible(False)
    figure.patch.set_visible(False)
    return figure, axes


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
    figure, axes = _axes(across, up)
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
    return _markup(figure, name, told)


def bars(name: str, told: str, across: str, shares: Sequence[tuple[str, float]]) -> Markup:
    """A bar for each named value, the first on top."""
    figure, axes = _axes(across, "", height=max(1.2, 0.28 * len(shares) + 0.7))
    height = figure.get_figheight()
    axes.set_position((0.28, 0.5 / height, 0.69, 1 - 0.62 / height))
    places = range(len(shares), 0, -1)
    axes.barh(list(places), [share for _, share in shares], height=0.66, color=FIRST)
    axes.set_yticks(list(places), [text if len(text) <= 26 else text[:25] + "…" for text, _ in shares])
    axes.grid(False, axis="y")
    axes.set_xlim(left=0)
    return _markup(figure, name, told)


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
    figure, axes = _axes(across, up, height=3.6)
    ends = min([*x, *y]), max([*x, *y])
    axes.plot(ends, ends, color=INK, linewidth=1, linestyle=(0, (4, 3)))
    # an estimate may lie outside of an interval that is cut at the ends of the label
    reach = (
        [max(b - a, 0.0) for a, b in zip(low, y, strict=True)],
        [max(b - a, 0.0) for a, b in zip(y, high, strict=True)],
    )
    axes.errorbar(x, y, yerr=reach, fmt="o-", color=FIRST, markersize=5, linewidth=1.5, capsize=2)
    return _markup(figure, name, told)


def _markup(figure: Any, name: str, told: str) -> Markup:
    out = io.StringIO()
    figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = HEAD.sub("", out.getvalue())
    text = STYLE.sub(lambda found: _attributes(found.group(1)), text)
    for _ in range(2):
        text = SIZE.sub(r"\1", text, count=1)
    key = re.sub(r"[^a-z0-9]", "", name.casefold())[:24]
    text = IDS.sub(rf"\1{key}-", text)  # several pictures share a page
    words = f'<title id="{key}-t">{escape(name)}</title><desc id="{key}-d">{escape(told)}</desc>'
    opened = text.index(">", text.index("<svg"))
    labelled = f' class="picture" role="img" aria-labelledby="{key}-t {key}-d"'
    # matplotlib escapes every text that it draws, and the words here are escaped above
    return Markup(text[:opened] + labelled + ">" + words + text[opened + 1 :])  # noqa: S704 - see the line above


def _attributes(style: str) -> str:
    found = FONT.search(style)
    parts = [p.split(":", 1) for p in style.split(";") if ":" in p and not p.strip().startswith("font:")]
    pairs = [(k.strip(), v.strip()) for k, v in parts if not k.strip().startswith(("font-family", "-"))]
    if found:
        pairs.append(("font-size", found.group(1)))
    return "".join(f' {k}="{escape(v)}"' for k, v in pairs)
