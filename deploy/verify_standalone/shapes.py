"""The shapes that a map may have, and what may be asked of each."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Any

from .members import count, matching, one_of
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


def check_shape(p: Any, *, spaced: bool, pieces: list[int]) -> None:
    """Whether shape, loss and options of the parameters go together, and with the map's `pieces` along each score."""
    shape = one_of(p["shape"], WHOLE, "the shape")
    one_of(p["loss"], ("squared",) if shape == "bins" else ("squared", "absolute"), "the loss")
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
        found = GRID.fullmatch(matching(options.get("cells", "8x8"), GRID, "the option 'cells'"))
        a, b = (int(part) for part in found.groups()) if found else (0, 0)
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
