"""Channels whose weights are written out: a row for every label, or for some labels, the knots."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

from .domains import Domain
from .exact import N, exp_lower, shortest, whole
from .members import listed
from .refusal import refuse

MOST_OUTPUTS, MOST_DENSE, MOST_KNOTS = 1 << 16, 1 << 20, 1 << 15


def floats(value: Any, least: int, most: int) -> list[float]:
    """Parse a list of floats in shortest spelling, or refuse."""
    return [shortest(text, "a value of the channel") for text in listed(value, least, most, "a list of the channel")]


def rising(values: Sequence[float]) -> bool:
    """Return whether the values rise strictly."""
    return all(x < y for x, y in pairwise(values))


def check_dense(channel: Any, domain: Domain, nano: int) -> str:
    """A row for every label; a sentence, or a refusal."""
    outputs = floats(channel["outputs"], 2, MOST_OUTPUTS)
    if domain.k * len(outputs) > MOST_DENSE:
        refuse("the channel has too many weights")
    _rows(channel["weights"], domain.k, outputs, nano)
    return f"{domain.k} × {len(outputs)} weights: every column's largest ≤ e^ε · smallest"


def check_knots(channel: Any, domain: Domain, nano: int) -> str:
    """Rows of integer weights at some labels; labels between two of them have mixtures of their rows."""
    outputs = floats(channel["outputs"], 2, MOST_OUTPUTS)
    knots = [whole(i) for i in listed(channel["knots"], 2, MOST_KNOTS, "the list of knots")]
    if knots[0] != 0 or knots[-1] != domain.k - 1 or not rising(knots):
        refuse("the knots of the channel do not rise from the first to the last label")
    if len(knots) * len(outputs) > MOST_KNOTS:
        refuse("the channel has too many weights")
    rows = _rows(channel["weights"], len(knots), outputs, nano)
    if shortest(channel["residual_bias"], "the residual bias") != _bias(rows, knots, outputs, domain):
        refuse("the residual bias of the channel is not that of its weights")
    said = f"{len(rows)} × {len(outputs)} weights at knots: every column's largest ≤ e^ε · smallest"
    return said + "; others are mixtures"


def _rows(weights: Any, count: int, outputs: list[float], nano: int) -> list[list[int]]:
    """`count` rows of weights, one weight per output; outputs rise."""
    m, bound = len(outputs), exp_lower(nano)
    if not rising(outputs):
        refuse("the outputs of the channel do not rise")
    found = listed(weights, count, count, "the rows of the channel")
    rows = [[whole(w) for w in listed(row, m, m, "a row of the channel")] for row in found]
    if any(sum(row) != N or min(row) < 1 for row in rows):
        refuse("a row of the channel does not sum to 2^64, or an output is impossible")
    if any(max(column) > bound * min(column) for column in zip(*rows, strict=True)):
        refuse("the channel does not keep the stated ε")
    return rows


def _bias(rows: list[list[int]], knots: list[int], outputs: list[float], domain: Domain) -> float:
    """The largest |E[output] − label| at a knot, and 2^-64 of the outputs' span more, as the next larger float."""
    exact = [Fraction(v) for v in outputs]
    scale = math.lcm(*(v.denominator for v in exact))
    numbers = [int(v * scale) for v in exact]
    worst = Fraction(0)
    for position, row in zip(knots, rows, strict=True):
        mean = Fraction(sum(w * v for w, v in zip(row, numbers, strict=True)), N * scale)
        worst = max(worst, abs(mean - domain.at(position)))
    return math.nextafter(float(worst + (exact[-1] - exact[0]) / N), math.inf)
