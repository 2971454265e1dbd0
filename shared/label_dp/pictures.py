"""The base of every picture of a page or document: matplotlib's axes, and its SVG made fit for HTML.

What matplotlib writes as styles becomes attributes, since the pages allow no inline style; so the page's own style
decides of ink and lines, in dark mode too. A picture has a title and a sentence for whoever does not see it.
"""

from __future__ import annotations

import io
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from markupsafe import Markup, escape

INK, GRID, FIRST, SECOND = "#1b222b", "#d9dfe6", "#2f6fa8", "#c05f1a"
COLOURS = (FIRST, SECOND, "#3d8b5f", "#8a4fa0")
WIDTH = 5.6  # inches: narrow, so that its letters are still read on a telephone
MARGIN = 0.01  # of the width, left of what the axes say
FOLDER = "MPLCONFIGDIR"
STYLE = re.compile(r' style="([^"]*)"')
FONT = re.compile(r"font: (?:[a-z]+ )*([\d.]+px) ([^;]+)")
HEAD = re.compile(r"^.*?(?=<svg)|<metadata>.*?</metadata>|<style[^>]*>.*?</style>", re.DOTALL)
SIZE = re.compile(r'(<svg[^>]*?) (?:width|height)="[^"]*"')
NAMESPACES = re.compile(r' xmlns(?::xlink)?="[^"]*"')
IDS = re.compile(r'(id="|url\(#|href="#)')


@cache
def figure_class() -> Any:
    """Import matplotlib's `Figure`, once and on demand: it takes half a second."""
    with tempfile.TemporaryDirectory() as folder, _its_own_folder(folder):
        import matplotlib
        from matplotlib.figure import Figure

    named: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": "label-dp", "text.parse_math": False}
    matplotlib.rcParams.update(named | {"font.family": "sans-serif", "font.size": 10, "legend.fontsize": 9})
    return Figure


@contextmanager
def _its_own_folder(folder: str) -> Iterator[None]:
    """Have matplotlib write its list of fonts to `folder` while it is imported, not to the user's home."""
    if FOLDER in os.environ:
        yield
        return
    os.environ[FOLDER] = folder
    try:
        yield
    finally:
        del os.environ[FOLDER]


def new_axes(across: str, up: str, height: float = 2.8) -> tuple[Any, Any]:
    """Make a figure and its axes with their names."""
    figure = figure_class()(figsize=(WIDTH, height))
    axes = figure.add_axes((0.135, 0.48 / height, 0.845, 1 - 0.66 / height))
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


def hold(figure: Any, axes: Any) -> None:
    """Move the axes to the right so that their numbers and name fit."""
    figure.draw_without_rendering()
    beyond = MARGIN - axes.get_tightbbox().x0 / figure.bbox.width
    if beyond > 0:
        place = axes.get_position()
        axes.set_position((place.x0 + beyond, place.y0, place.width - beyond, place.height))


def markup(figure: Any, name: str, description: str) -> Markup:
    """Render the figure as an element of a page, with a title and a sentence."""
    out = io.StringIO()
    figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = HEAD.sub("", out.getvalue())
    text = STYLE.sub(lambda match: _attributes(match.group(1)), text)
    for _ in range(2):
        text = SIZE.sub(r"\1", text, count=1)
    text = NAMESPACES.sub("", text)  # elements of a page have theirs already
    key = re.sub(r"[^a-z0-9]", "", name.casefold())[:24]
    text = IDS.sub(rf"\1{key}-", text)  # several pictures share a page
    words = f'<title id="{key}-t">{escape(name)}</title><desc id="{key}-d">{escape(description)}</desc>'
    opened = text.index(">", text.index("<svg"))
    labelled = f' class="picture" role="img" aria-labelledby="{key}-t {key}-d"'
    # matplotlib escapes every text that it draws, and the words here are escaped above
    return Markup(text[:opened] + labelled + ">" + words + text[opened + 1 :])  # noqa: S704 - see the line above


def _attributes(style: str) -> str:
    match = FONT.search(style)
    parts = [p.split(":", 1) for p in style.split(";") if ":" in p and not p.strip().startswith("font:")]
    pairs = [(k.strip(), v.strip()) for k, v in parts if not k.strip().startswith(("font-family", "-"))]
    if match:
        pairs.append(("font-size", match.group(1)))
    return "".join(f' {k}="{escape(v)}"' for k, v in pairs)
