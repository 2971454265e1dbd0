"""A calibration: a map of one score or two that falls nowhere, of the shape that was asked for."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any

from .kind import Answer, Kind
from .median import REPLACE_ONE
from .members import count, listed, matching, members, one_of
from .refusal import refuse

CELLS, LEVELS, VALUES = (1, 1 << 12), (1, 16), (2, 1 << 8)
PIECES = (1, 1 << 10)
KNOTS = {"knots": (2, 1 << 12), "steps": CELLS, "values": VALUES}
# options that are whole numbers, with the least and the most
WHOLE: dict[str, dict[str, tuple[int, int]]] = {
    "bins": {},
    "monotone": {"levels": LEVELS},
    "pieces": {"pieces": PIECES, "cells": CELLS, "values": VALUES},
    "linear": KNOTS | {"pieces": PIECES},
    "lipschitz": KNOTS,
    "convex": KNOTS,
    "concave": KNOTS,
    "grid": {"values": VALUES},
}
TEXTS = {"bins": ("cells",), "grid": ("cells",), "lipschitz": ("lipschitz",)}
NEEDS = {"pieces": "pieces", "linear": "pieces", "lipschitz": "lipschitz"}
SPACED = ("linear", "lipschitz", "convex", "concave")  # these speak of distances between scores
SCORES = {"bins": (1, 2), "grid": (2,)}
GRID = re.compile(r"([1-9][0-9]{0,3})x([1-9][0-9]{0,3})", re.ASCII)
SLOPE = re.compile(r"(0|[1-9][0-9]*)(\.[0-9]*[1-9])?", re.ASCII)
MOST_DIGITS, MOST_OF_GRID, MOST_DOWN_SETS = 60, 1 << 8, 1 << 16
MAX_SIZE, MAX_PIECES = 1 << 32, 1 << 16
FLOATS = 2 * 0x7F7FFFFF + 1  # how many numbers scores have as 32-bit floats, −0 being 0
FLOAT32 = "float32"
STEPS = re.compile(r"([^:]{1,60}):([^:]{1,60}):([1-9][0-9]{0,9})", re.ASCII)
NUMBER = re.compile(r"-?[0-9]{1,40}(\.[0-9]{1,40})?(e[+-]?[0-9]{1,3})?", re.ASCII)


def check_shape(p: Any, *, spaced: bool, pieces: list[int]) -> None:
    """Whether shape, loss and options of the parameters go together, and with the map's `pieces` along each score."""
    shape = one_of(p["shape"], WHOLE, "the shape")
    one_of(p["loss"], ("squared", "absolute"), "the loss")
    options = p["options"]
    if not isinstance(options, dict) or not set(options) <= {*WHOLE[shape], *TEXTS.get(shape, ())}:
        refuse("the options of the shape are not among its own")
    if len(pieces) not in SCORES.get(shape, (1,)) or (shape in SPACED and not spaced):
        refuse("the shape has another number of scores, or needs them in equal steps")
    if shape in NEEDS and NEEDS[shape] not in options:
        refuse("the shape lacks an option that it needs")
    for name, (least, most) in WHOLE[shape].items():
        if name in options:
            count(options[name], least, most, f"the option '{name}'")
    if "lipschitz" in options:
        slope = matching(options["lipschitz"], SLOPE, "the option 'lipschitz'")
        if len(slope) > MOST_DIGITS or not Decimal(slope):
            refuse("the option 'lipschitz' is out of bounds")
    limits = _limits(shape, options, len(pieces))
    if limits is not None and any(have > most for have, most in zip(pieces, limits, strict=True)):
        refuse("the map has more pieces than its shape")


def _limits(shape: str, options: Any, scores: int) -> list[int] | None:
    if shape == "grid":
        grid = GRID.fullmatch(matching(options.get("cells", "8x8"), GRID, "the option 'cells'"))
        a, b = (int(part) for part in grid.groups()) if grid else (0, 0)
        if a * b > MOST_OF_GRID or math.comb(a + b, a) > MOST_DOWN_SETS:
            refuse("the grid is too fine")
        return [a, b]
    if shape == "bins" and "cells" in options:
        cells = options["cells"]
        if type(cells) is int:
            along = [count(cells, 1, 9999, "the option 'cells'")] * scores
        else:
            along = [int(part) for part in matching(cells, GRID, "the option 'cells'").split("x")]
        if len(along) != scores or math.prod(along) > CELLS[1]:
            refuse("the cells of bins are too many, or of another number of scores")
        return along
    return [options["pieces"]] if shape == "pieces" else None


def check_calibration(given: Answer) -> str:
    """A line for the map of one score, or of two, where there is a second numbering."""
    p = members(given.parameters, ("loss", "shape", "options", "scores", "scores_2"), "a calibration")
    two = p["scores_2"] is not None
    sizes = [_size(p[name]) for name in ("scores", "scores_2")[: 1 + two]]
    grid = members(given.result, ("map",), "the result of a calibration")["map"]
    edges, values = _grid(grid) if two else _steps(grid)
    if (grid["x_sizes"] if two else [grid["x_size"]]) != sizes:
        refuse("the map is over another domain than that of the scores' numbers")
    for cuts, size in zip(edges, sizes, strict=True):
        if any(not 0 < count(cut, 1, MAX_SIZE, "a breakpoint") < size for cut in cuts):
            refuse("a breakpoint of the map lies outside its domain")
        if any(a >= b for a, b in pairwise(cuts)):
            refuse("the breakpoints of the map do not rise")
    wide = len(edges[1]) + 1 if two else 1
    if len(values) != len(edges[0]) + 1 or any(len(row) != wide for row in values) or len(values) * wide > MAX_PIECES:
        refuse("the map has not one value for every piece")
    check_shape(p, spaced=p["scores"] != FLOAT32, pieces=[len(values), wide][: 1 + two])
    given.check(given.epsilon, Fraction(0), REPLACE_ONE)
    if not given.epsilon:
        refuse("a calibration costs ε")
    _check_values(values, given.domain.ends)
    told = f"{len(values)} x {wide} cells of two scores" if two else f"{len(values)} pieces of one score"
    return f"map: {told}, falls nowhere, from {values[0][0]} to {values[-1][-1]}"


def _steps(found: Any) -> tuple[list[Any], list[list[float]]]:
    """Breakpoints and values of a map of one score."""
    members(found, ("kind", "x_size", "breakpoints", "values"), "a map of one score")
    one_of(found["kind"], ("step",), "the kind of map")
    count(found["x_size"], 1, MAX_SIZE, "the size of the map's domain")
    values = listed(found["values"], 1, MAX_PIECES, "the list of values")
    return [listed(found["breakpoints"], 0, MAX_PIECES - 1, "the list of breakpoints")], [[_value(v)] for v in values]


def _grid(found: Any) -> tuple[list[Any], list[list[float]]]:
    """Breakpoints along either score, and rows of values."""
    members(found, ("kind", "x_sizes", "breakpoints", "values"), "a map of two scores")
    one_of(found["kind"], ("grid",), "the kind of map")
    for size in listed(found["x_sizes"], 2, 2, "the sizes of the map's domain"):
        count(size, 1, MAX_SIZE, "a size of the map's domain")
    edges = listed(found["breakpoints"], 2, 2, "the lists of breakpoints")
    cuts = [listed(one, 0, MAX_PIECES - 1, "a list of breakpoints") for one in edges]
    rows = listed(found["values"], 1, MAX_PIECES, "the rows of values")
    return cuts, [[_value(v) for v in listed(row, 1, MAX_PIECES, "a row of values")] for row in rows]


def _check_values(values: list[list[float]], ends: tuple[float, float]) -> None:
    falls = any(b < a for row in values for a, b in pairwise(row))
    if falls or any(b < a for one, next_ in pairwise(values) for a, b in zip(one, next_, strict=True)):
        refuse("the map falls somewhere")
    if not ends[0] <= values[0][0] <= values[-1][-1] <= ends[1]:
        refuse("a value of the map lies outside the label domain")


def _size(numbers: object) -> int:
    """How many numbers scores have."""
    if numbers == FLOAT32:
        return FLOATS
    grid = STEPS.fullmatch(numbers) if isinstance(numbers, str) else None
    if grid is None or int(grid[3]) > MAX_SIZE:
        refuse("how scores are numbered is neither float32 nor LO:HI:STEPS")
    low, high = Decimal(grid[1]), Decimal(grid[2])
    if [str(low), str(high)] != [grid[1], grid[2]] or not low.is_finite() or not high.is_finite() or low >= high:
        refuse("the ends of the scores' numbers are not two numbers in their one spelling, the lower one first")
    wide = float(high) - float(low)
    if not math.isfinite(wide) or not math.isfinite(int(grid[3]) / wide):
        refuse("the ends of the scores' numbers are too far apart, or too near")
    return int(grid[3])


def _value(text: object) -> float:
    number = float(text) if isinstance(text, str) and NUMBER.fullmatch(text) else math.nan
    if not math.isfinite(number) or repr(number) != text:
        refuse("a value of the map is not a decimal number in its shortest spelling")
    return number


KIND = Kind("calibration", check_calibration)
