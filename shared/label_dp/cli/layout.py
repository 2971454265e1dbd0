"""Tables for people at any width: no row is cut, and no timestamp, id or number is broken in the middle. Columns that
do not fit are named on a line of their own below the row."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterator
from itertools import count
from unicodedata import east_asian_width

from label_dp.errors import printable

GAP = 2
INDENT = 4
LEAST_PROSE = 24
_NUMBER = re.compile(r"[-−]?[\d,]*\.?\d+(?:e[-+]?\d+)?%?")


def number(value: float | None) -> str:
    """Format a number for any table: thousands by commas, six significant digits, no exponent if avoidable."""
    if value is None:
        return ""
    if not math.isfinite(value):
        return str(value)
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    if 1e-4 <= abs(value) < 1e15:
        whole = len(str(int(abs(value)))) if abs(value) >= 1 else 0
        text = f"{value:,.{max(0, 6 - whole)}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    return f"{value:.6g}"


def lines(title: str, columns: list[str], rows: list[list[str]], width: int) -> Iterator[str]:
    """Yield the table as lines of at most `width` cells, except for longer words. Without a header (all columns
    unnamed) two columns are names and their values, wrapped between words."""
    rows = [[printable(cell) for cell in row] for row in rows]
    if title:
        yield from textwrap.wrap(printable(title), width, break_long_words=False, break_on_hyphens=False)
    if len(columns) == 2 and not any(columns):
        yield from _pairs(rows, width)
        return
    yield from _grid(columns, rows, width)


def cells(text: str) -> int:
    """Return the width on a terminal."""
    return sum(2 if east_asian_width(c) in "WF" else 1 for c in text)


def _pairs(rows: list[list[str]], width: int) -> Iterator[str]:
    widest = max((cells(name) for name, _ in rows), default=0)
    for name, value in rows:
        room = max(LEAST_PROSE, width - widest - GAP - 1)
        parts = textwrap.wrap(value, room, break_long_words=False, break_on_hyphens=False) or [""]
        for label, part in zip([name, *[""] * (len(parts) - 1)], parts, strict=True):
            yield f" {_padded(label, widest)}{' ' * GAP}{part}".rstrip()


def _grid(columns: list[str], rows: list[list[str]], width: int) -> Iterator[str]:
    widths = [max([cells(name), *(cells(row[i]) for row in rows)]) for i, name in enumerate(columns)]
    right = [bool(rows) and all(_NUMBER.fullmatch(row[i]) for row in rows if row[i]) for i in range(len(columns))]
    fitting = 0
    for fitting in count(1):
        if fitting > len(columns) or 1 + sum(widths[:fitting]) + GAP * (fitting - 1) > width:
            break
    visible = max(1, fitting - 1)
    separator = " " * GAP

    def line(row: list[str]) -> str:
        texts = [_padded(row[i], widths[i], right=right[i]) for i in range(visible)]
        return (" " + separator.join(texts)).rstrip()

    if any(columns[:visible]):
        yield line(columns)
        yield " " + "─" * (sum(widths[:visible]) + GAP * (visible - 1))
    for row in rows:
        yield line(row)
        rest = [(columns[i], row[i]) for i in range(visible, len(columns)) if row[i]]
        yield from _below(rest, width)


def _below(rest: list[tuple[str, str]], width: int) -> Iterator[str]:
    current = ""
    for name, value in rest:
        part = f"{name}: {value}" if name else value
        if current and INDENT + cells(current) + 3 + cells(part) > width:
            yield " " * INDENT + current
            current = part
        else:
            current = f"{current}   {part}" if current else part
    if current:
        yield from textwrap.wrap(
            current, width, break_long_words=False, break_on_hyphens=False,
            initial_indent=" " * INDENT, subsequent_indent=" " * INDENT, drop_whitespace=True, replace_whitespace=False,
        )  # fmt: skip


def _padded(text: str, width: int, *, right: bool = False) -> str:
    space = " " * (width - cells(text))
    return space + text if right else text + space
