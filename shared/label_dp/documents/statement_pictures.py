"""Pictures of a release statement as inline SVG without scripts or styles: prior and bins, one bit, noise."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from label_dp.channels.base import Channel
from label_dp.channels.noise import NoiseChannel
from label_dp.channels.one_bit import OneBitChannel
from label_dp.channels.rr import RRChannel
from label_dp.documents.statement_text import number, percent

FloatArray = npt.NDArray[np.float64]
Scale = Callable[[float], float]

WIDTH, HEIGHT = 720, 250
LEFT, RIGHT, TOP, BOTTOM = 46, 14, 40, 46
INK, GREY, BLUE, PALE, RED = "#1a1a1a", "#5b6570", "#7fa6c9", "#eaf1f7", "#a61e1e"
COLUMNS = 80  # bars that a histogram has at most
RARE = 0.005  # of the noise on either side, left out of a picture of noise that is not clipped to the domain
MAX_VALUES = 12  # output values that are written out in a picture
ASIDE = 3.0  # between the lines of different labels at one output
CURVES = ("#1f4e79", "#a61e1e", "#2e7d4f")


def picture(channel: Channel, prior: FloatArray | None) -> Markup:
    """The one picture that suits the channel; `prior` is float64[k], private already, or None if there is none."""
    if isinstance(channel, RRChannel):
        return _bins(channel, prior)
    if isinstance(channel, OneBitChannel):
        return _one_bit(channel, prior)
    return _noise(channel)


def split_bar(parts: list[tuple[str, float]]) -> Markup:
    """One stacked bar of named shares that sum to 1."""
    colours, x, drawn = ("#1f4e79", "#7fa6c9", "#c9d9e8"), 0.0, []
    for (_, share), colour in zip(parts, colours, strict=False):
        drawn.append(_tag("rect", x=x, y=0, width=WIDTH * share, height=16, fill=colour))
        x += WIDTH * share
    title = ", ".join(f"{name} {percent(share)}" for name, share in parts)
    return _svg(title, drawn, 16, preserveAspectRatio="none", class_="bar")


# --- one picture per kind of channel ------------------------------------------------------------------------


def _bins(channel: RRChannel, prior: FloatArray | None) -> Markup:
    labels, ends = channel.labels, channel.boundaries.tolist()
    step = _step(labels)
    low, high = float(labels[0]) - step / 2, float(labels[-1]) + step / 2
    x = _scale(low, high)
    edges = [x((float(labels[e - 1]) + float(labels[e])) / 2) for e in ends[1:-1]]
    edges = [x(low), *edges, x(high)]
    body: list[Markup] = []
    for j, (a, b) in enumerate(itertools.pairwise(edges)):
        body.append(_box(a, b, PALE if j % 2 == 0 else "#ffffff"))
    body += _histogram(labels, prior, x, step)
    for at in edges[1:-1]:
        body.append(_line(at, TOP - 6, at, HEIGHT - BOTTOM, INK, stroke_dasharray="3 3"))
    body += _outputs([float(v) for v in channel.outputs], x, low, high)
    what = "private prior (bars), " if prior is not None else ""
    name = f"{channel.d} bins of the label domain: {what}bin boundaries (dashed), output values (triangles)"
    return _svg(name, [*body, *_axis(x, labels), *_ylabel("share under the private prior", prior)])


def _one_bit(channel: OneBitChannel, prior: FloatArray | None) -> Markup:
    labels = channel.labels
    step = _step(labels)
    low, high = float(labels[0]) - step / 2, float(labels[-1]) + step / 2
    x = _scale(low, high)
    chosen = np.unique(np.linspace(0, channel.k - 1, min(channel.k, 200)).astype(np.int64))
    upper = channel.upper_probability[chosen]
    points = [(x(float(labels[i])), _y(float(p))) for i, p in zip(chosen, upper, strict=True)]
    body = [_box(LEFT, WIDTH - RIGHT, PALE)]
    body += _histogram(labels, prior, x, step)
    for share in (0.0, 0.5, 1.0):
        body.append(_line(LEFT, _y(share), WIDTH - RIGHT, _y(share), "#c3ccd4"))
        body.append(_text(LEFT - 6, _y(share) + 4, f"{share * 100:.0f} %", anchor="end"))
    if channel.k <= 12:
        body += [_tag("circle", cx=a, cy=b, r=3.5, fill=RED) for a, b in points]
    body.append(_curve(points, RED, 2.5))
    lower_value, upper_value = (number(float(v)) for v in channel.outputs)
    body.append(
        _text(LEFT, 16, f"red line: chance of the upper value {upper_value} (otherwise {lower_value})", size=13)
    )
    name = f"Chance of the upper output {upper_value} for every label; otherwise the output is {lower_value}"
    return _svg(name, [*body, *_axis(x, labels)])


def _noise(channel: Channel) -> Markup:
    labels, outputs = channel.labels, np.asarray(channel.outputs, np.float64)
    places = sorted({0, (channel.k - 1) // 2, channel.k - 1})
    drawn = [channel.rows(place, place + 1)[0] for place in places]
    if isinstance(channel, NoiseChannel) and channel.reach > 0:
        # nearly all of a reach is nearly never reached
        start = int(np.searchsorted(np.cumsum(drawn[0]), RARE))
        stop = len(outputs) - int(np.searchsorted(np.cumsum(drawn[-1][::-1]), RARE))
        outputs, drawn = outputs[start:stop], [shares[start:stop] for shares in drawn]
    step = _step(outputs)
    low, high = float(outputs[0]) - step / 2, float(outputs[-1]) + step / 2
    x = _scale(low, high)
    rows = [_binned(outputs, shares) for shares in drawn]
    inside = [_binned(outputs[1:-1], shares[1:-1]) for shares in drawn] if len(outputs) > 3 else rows
    top = max(float(shares.max()) for _, shares in inside)
    # what is clipped to the ends would dwarf the rest of the picture, so it is told in numbers
    clipped = max(float(shares[[0, -1]].max()) for shares in drawn) > 2 * top
    rows, top = (inside, top) if clipped else (rows, max(float(shares.max()) for _, shares in rows))
    body = [_box(LEFT, WIDTH - RIGHT, PALE)]
    legend = float(LEFT)
    joined = _even(outputs)
    for place, (centres, shares), colour in zip(places, rows, CURVES, strict=False):
        points = [(x(float(c)), _y(float(s) / top)) for c, s in zip(centres, shares, strict=True)]
        if joined:
            body.append(_curve(points, colour, 2))
        else:  # no line leads where no output is: each stands by itself, those of other labels beside it
            points = [(at + ASIDE * (places.index(place) - 1), up) for at, up in points]
            body += [_line(at, _y(0.0), at, up, colour, stroke_width="2") for at, up in points if up < _y(0.0)]
        if len(points) <= 20 or not joined:
            body += [_tag("circle", cx=a, cy=b, r=3, fill=colour) for a, b in points if b < _y(0.0)]
        told = f"label {number(float(labels[place]))}"
        if clipped:
            first, last = (_short_percent(float(channel.rows(place, place + 1)[0][end])) for end in (0, -1))
            told += f" (ends: {first}, {last})"
        body.append(_tag("rect", x=legend, y=8, width=14, height=4, fill=colour))
        body.append(_text(legend + 20, 16, told, size=13))
        legend += 40 + 6.6 * len(told)
    for share in (0.0, top):
        body.append(_line(LEFT, _y(share / top), WIDTH - RIGHT, _y(share / top), "#c3ccd4"))
        body.append(_text(LEFT - 6, _y(share / top) + 4, _short_percent(share), anchor="end"))
    name = "Chance of every output for the smallest, a middle and the largest label"
    return _svg(name, [*body, *_axis(x, outputs, "output value")])


# --- parts --------------------------------------------------------------------------------------------------


def _tag(name: str, inner: str = "", **attributes: float | str) -> Markup:
    """An element with its text and attributes escaped; lengths to a hundredth, `_` in a name is a dash."""
    named = {k.rstrip("_").replace("_", "-"): v for k, v in attributes.items()}
    words = Markup("").join(
        Markup(' {}="{}"').format(k, v if isinstance(v, str) else f"{v:.2f}".rstrip("0").rstrip("."))
        for k, v in named.items()
    )
    return Markup("<{}{}>{}</{}>").format(name, words, inner, name) if inner else Markup("<{}{}/>").format(name, words)


def _svg(name: str, body: list[Markup], height: int = HEIGHT, **attributes: str) -> Markup:
    inner = _tag("title", name) + Markup("").join(body)
    font = "Helvetica, sans-serif"
    return _tag(
        "svg", inner, viewBox=f"0 0 {WIDTH} {height}", role="img", aria_label=name, font_family=font, **attributes
    )


def _scale(low: float, high: float) -> Scale:
    width = WIDTH - LEFT - RIGHT
    return lambda v: LEFT + width * (v - low) / (high - low)


def _y(share: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * share


def _step(values: FloatArray) -> float:
    return float(np.median(np.diff(values))) if len(values) > 1 else 1.0


def _even(values: FloatArray) -> bool:
    """Whether values lie on a lattice without gaps."""
    steps = np.diff(values)
    return len(steps) > 0 and bool(np.allclose(steps, steps[0], rtol=1e-6))


def _binned(values: FloatArray, shares: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Centres and sums of at most COLUMNS equal groups of neighbouring values."""
    size = -(-len(values) // COLUMNS)
    starts = np.arange(0, len(values), size)
    counts = np.minimum(starts + size, len(values)) - starts
    return np.add.reduceat(values, starts) / counts, np.add.reduceat(shares, starts) / counts * min(size, len(values))


def _histogram(labels: FloatArray, prior: FloatArray | None, x: Scale, step: float) -> list[Markup]:
    if prior is None:
        return []
    centres, shares = _binned(labels, prior)
    most = float(shares.max()) or 1.0
    half = (float(centres[1] - centres[0]) if len(centres) > 1 else step) / 2
    drawn = []
    for centre, share in zip(centres, shares, strict=True):
        a, b = max(x(float(centre) - half), LEFT), min(x(float(centre) + half), WIDTH - RIGHT)
        gap, width = (b - a) * 0.08, b - a
        if width > 120:  # a few wide bars look better slim
            gap = (width - 120) / 2
        height = 0.86 * (HEIGHT - BOTTOM - TOP) * float(share) / most
        top = HEIGHT - BOTTOM - height
        drawn.append(_tag("rect", x=a + gap, y=top, width=width - 2 * gap, height=height, fill=BLUE))
    return drawn


def _outputs(values: list[float], x: Scale, low: float, high: float) -> list[Markup]:
    """A triangle above the frame per output value; values are written out while there are few, on two rows."""
    drawn, last, row = list[Markup](), [-1e9, -1e9], 0
    for value in values:
        at = x(min(max(value, low), high))
        drawn.append(_tag("path", d=f"M{at - 5:.1f} {TOP - 9} h10 l-5 9 z", fill=RED))
        if len(values) <= MAX_VALUES:
            told = number(value)
            half = 3.6 * len(told) + 4
            centre = min(max(at, half), WIDTH - half)
            row = 0 if centre - half >= last[0] else 1
            if centre - half >= last[row]:
                last[row] = centre + half
                drawn.append(_text(centre, TOP - 14 - 13 * row, told, anchor="middle", colour=RED))
    return drawn


def _axis(x: Scale, labels: FloatArray, what: str = "label") -> list[Markup]:
    ticks = labels if len(labels) <= 8 else _round_ticks(float(labels[0]), float(labels[-1]))
    base = HEIGHT - BOTTOM
    drawn = [_line(LEFT, base, WIDTH - RIGHT, base, INK)]
    for tick in ticks:
        at = x(float(tick))
        drawn.append(_line(at, base, at, base + 5, INK))
        drawn.append(_text(min(max(at, 20.0), WIDTH - 20.0), base + 19, number(float(tick)), anchor="middle"))
    drawn.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, what, anchor="middle", colour=GREY))
    return drawn


def _round_ticks(low: float, high: float) -> list[float]:
    """About six round numbers within the domain."""
    rough = (high - low) / 6
    size = 10.0 ** np.floor(np.log10(rough))
    size = float(next(size * f for f in (1, 2, 2.5, 5, 10) if size * f >= rough))
    first = int(np.ceil(low / size - 1e-9))
    return [i * size for i in range(first, first + 12) if i * size <= high + 1e-9 * abs(high)]


def _ylabel(told: str, prior: FloatArray | None) -> list[Markup]:
    middle = (TOP + HEIGHT - BOTTOM) / 2
    turned = f"rotate(-90 16 {middle:.0f})"
    return [] if prior is None else [_text(16, middle, told, anchor="middle", colour=GREY, size=11, transform=turned)]


def _short_percent(share: float) -> str:
    return f"{share * 100:.2g} %" if share < 0.1 else f"{share * 100:.0f} %"


def _text(
    x: float, y: float, told: str, *, anchor: str = "start", colour: str = INK, size: int = 12, **more: str
) -> Markup:
    return _tag("text", told, x=x, y=y, font_size=size, fill=colour, text_anchor=anchor, **more)


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, **more: str) -> Markup:
    return _tag("line", x1=x1, y1=y1, x2=x2, y2=y2, stroke=colour, **more)


def _box(left: float, right: float, colour: str) -> Markup:
    return _tag("rect", x=left, y=TOP, width=right - left, height=HEIGHT - TOP - BOTTOM, fill=colour)


def _curve(points: list[tuple[float, float]], colour: str, width: float) -> Markup:
    joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return _tag("polyline", points=joined, fill="none", stroke=colour, stroke_width=width)
