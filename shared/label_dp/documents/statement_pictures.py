"""Pictures of a release statement: prior and bins, the chance of one bit, noise; drawn by `label_dp.pictures`."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from label_dp.channels.base import Channel
from label_dp.channels.noise import NoiseChannel
from label_dp.channels.one_bit import OneBitChannel
from label_dp.channels.rr import RRChannel
from label_dp.documents.statement_text import number
from label_dp.pictures import COLOURS, INK, SECOND, markup, new_axes

FloatArray = npt.NDArray[np.float64]

PALE = "#b7cce0"  # background
COLUMNS = 80  # most bars of a histogram
RARE = 0.005  # share of unclipped noise left out of the picture on either side
MAX_VALUES = 12  # most output values written out in a picture
MOST_POINTS = 200
SHARE, CHANCE = "share under the private prior", "chance of the output"


def picture(channel: Channel, prior: FloatArray | None) -> Markup:
    """Draw the picture that suits the channel; `prior` is float64[k], already private, or None."""
    if isinstance(channel, RRChannel):
        return _bins(channel, prior)
    if isinstance(channel, OneBitChannel):
        return _one_bit(channel, prior)
    return _noise(channel)


def _bins(channel: RRChannel, prior: FloatArray | None) -> Markup:
    labels, ends = channel.labels, channel.boundaries.tolist()
    figure, axes = _label_axes(labels, SHARE if prior is not None else "")
    if prior is None:
        axes.set_yticks([])
    else:
        _histogram(axes, labels, prior)
    for end in ends[1:-1]:
        axes.axvline((float(labels[end - 1]) + float(labels[end])) / 2, color=INK, linewidth=1, linestyle=(0, (4, 3)))
    _outputs(axes, channel.outputs)
    what = "private prior (bars), " if prior is not None else ""
    text = f"{channel.d} bins of the label domain: {what}bin boundaries (dashed), output values (triangles)"
    return markup(figure, "Bins of the label", text)


def _one_bit(channel: OneBitChannel, prior: FloatArray | None) -> Markup:
    lower, upper = (number(float(v)) for v in channel.outputs)
    figure, axes = _label_axes(channel.labels, f"chance of the output {upper}")
    if prior is not None:  # in the background, on a scale of its own: only its shape matters
        behind = axes.twinx()
        _histogram(behind, channel.labels, prior)
        behind.set_axis_off()
        axes.set_zorder(behind.get_zorder() + 1)
    sample = np.unique(np.linspace(0, channel.k - 1, min(channel.k, MOST_POINTS)).astype(np.int64))
    how = "o-" if channel.k <= MAX_VALUES else "-"
    axes.plot(channel.labels[sample], channel.upper_probability[sample], how, color=SECOND, linewidth=2.5, markersize=6)
    axes.set_ylim(0, 1)
    _in_percent(axes)
    text = f"Chance of the upper output {upper} for every label; otherwise the output is {lower}"
    return markup(figure, "Chance of the upper output", text)


def _noise(channel: Channel) -> Markup:
    labels, outputs = channel.labels, np.asarray(channel.outputs, np.float64)
    places = sorted({0, (channel.k - 1) // 2, channel.k - 1})
    densities = [channel.rows(place, place + 1)[0] for place in places]
    if isinstance(channel, NoiseChannel) and channel.reach > 0:
        # most of the reach has hardly any probability
        start = int(np.searchsorted(np.cumsum(densities[0]), RARE))
        stop = len(outputs) - int(np.searchsorted(np.cumsum(densities[-1][::-1]), RARE))
        outputs, densities = outputs[start:stop], [shares[start:stop] for shares in densities]
    ends = [tuple(_short(float(shares[end])) for end in (0, -1)) for shares in densities]
    rows = [_binned(outputs, shares) for shares in densities]
    inside = [_binned(outputs[1:-1], shares[1:-1]) for shares in densities] if len(outputs) > 3 else rows
    top = max(float(shares.max()) for _, shares in inside)
    # clipped ends would dwarf the rest of the picture, so they are written as numbers
    clipped = max(float(shares[[0, -1]].max()) for shares in densities) > 2 * top
    figure, axes = new_axes("output value", CHANCE if len(outputs) <= COLUMNS else "chance of neighbours")
    for at, (place, (centres, shares)) in enumerate(zip(places, inside if clipped else rows, strict=True)):
        name = f"label {number(float(labels[place]))}" + (f"\nends: {ends[at][0]}, {ends[at][1]}" if clipped else "")
        if _even(outputs):
            axes.plot(centres, shares, "o-" if len(centres) <= 20 else "-", **_look(at, name))
        else:  # no line between outputs: each is drawn by itself, those of other labels beside it
            aside = (at - (len(places) - 1) / 2) * 0.006 * float(outputs[-1] - outputs[0])
            positive = shares > 0
            axes.vlines(centres[positive] + aside, 0, shares[positive], color=COLOURS[at], linewidth=2)
            axes.plot(centres[positive] + aside, shares[positive], "o", **_look(at, name))
    axes.set_ylim(bottom=0)
    _in_percent(axes)
    _room_above(axes)
    tight = {"handlelength": 1.0, "handletextpad": 0.5, "columnspacing": 0.9, "borderaxespad": 0.2}
    axes.legend(frameon=False, labelcolor=INK, loc="lower left", bbox_to_anchor=(0, 1), ncols=3, **tight)
    text = "Chance of every output for the smallest, a middle and the largest label"
    return markup(figure, "Chances of the outputs", text)


def _label_axes(labels: FloatArray, up: str) -> tuple[Any, Any]:
    figure, axes = new_axes("label", up)
    _room_above(axes)
    half = _step(labels) / 2
    axes.set_xlim(float(labels[0]) - half, float(labels[-1]) + half)
    if len(labels) <= MAX_VALUES:
        axes.set_xticks(labels, [number(float(label)) for label in labels])
    return figure, axes


def _room_above(axes: Any) -> None:
    x0, bottom, width, height = axes.get_position().bounds
    axes.set_position((x0, bottom, width, height - 0.1))


def _outputs(axes: Any, outputs: FloatArray) -> None:
    """Draw a triangle above the frame per output value; few values are written out if they fit."""
    low, high = axes.get_xlim()
    above = {"transform": axes.get_xaxis_transform(), "clip_on": False, "color": SECOND}
    places = np.clip(np.asarray(outputs, np.float64), low, high)
    axes.plot(places, np.full(len(places), 1.03), "v", markersize=6, **above)
    last = [-np.inf, -np.inf]  # where the text of either row ends, in shares of the width
    for at, value in zip(places if len(places) <= MAX_VALUES else (), outputs, strict=False):
        text = number(float(value))
        centre, half = (at - low) / (high - low), 0.009 * len(text) + 0.005
        row = 0 if centre - half >= last[0] else 1
        if centre - half >= last[row]:
            last[row] = centre + half
            axes.text(at, 1.075 + 0.075 * row, text, ha="center", fontsize=9, **above)


def _look(at: int, name: str) -> dict[str, object]:
    return {"color": COLOURS[at], "label": name, "linewidth": 2, "markersize": 5}


def _histogram(axes: Any, labels: FloatArray, prior: FloatArray) -> None:
    centres, shares = _binned(labels, prior)
    width = float(centres[1] - centres[0]) if len(centres) > 1 else _step(labels)
    axes.bar(centres, shares, width=width * 0.84, color=PALE)
    axes.set_ylim(0, (float(shares.max()) or 1.0) * 1.1)
    _in_percent(axes)


def _in_percent(axes: Any) -> None:
    axes.yaxis.set_major_formatter(lambda share, _: _short(share))


def _short(share: float) -> str:
    return f"{share * 100:.2g} %" if share < 0.1 else f"{share * 100:.0f} %"


def _step(values: FloatArray) -> float:
    return float(np.median(np.diff(values))) if len(values) > 1 else 1.0


def _even(values: FloatArray) -> bool:
    """Return whether the values are equally spaced."""
    steps = np.diff(values)
    return len(steps) > 0 and bool(np.allclose(steps, steps[0], rtol=1e-6))


def _binned(values: FloatArray, shares: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return centres and sums of at most COLUMNS equal groups of neighbouring values."""
    size = -(-len(values) // COLUMNS)
    starts = np.arange(0, len(values), size)
    counts = np.minimum(starts + size, len(values)) - starts
    return np.add.reduceat(values, starts) / counts, np.add.reduceat(shares, starts) / counts * min(size, len(values))
