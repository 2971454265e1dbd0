"""The shapes that a calibration's map may have, and their options: one table for fitting and for reading."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from label_dp.errors import InvalidMechanism
from label_dp.numbers import decimal_of

LOSSES = ("squared", "absolute")
BINS, GRID = "bins", "grid"
MAX_CELLS = 1 << 12
MAX_PIECES = 1 << 10
MAX_LEVELS, MAX_VALUES = 16, 1 << 8
MAX_GRID_CELLS = 1 << 8  # and at most 2¹⁶ down-sets: a fit then takes two seconds at most
MAX_DOWN_SETS = 1 << 16
MAX_DIGITS = 60
GRID_CELLS = "8x8"
_GRID = re.compile(r"(?P<first>[1-9][0-9]{0,3})(x(?P<second>[1-9][0-9]{0,3}))?", re.ASCII)
_LIPSCHITZ = re.compile(r"(0|[1-9][0-9]*)(\.[0-9]*[1-9])?", re.ASCII)


@dataclass(frozen=True)
class ShapeForm:
    """Form of a shape: `whole` are options that are whole numbers, with the least and the most; `texts` those that are
    texts.

    `spaced`: it uses distances, so that scores are numbered in equal steps. `scores`: how many it may have.
    """

    whole: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    texts: tuple[str, ...] = ()
    needs: str | None = None
    spaced: bool = False
    scores: tuple[int, ...] = (1,)

    @property
    def options(self) -> tuple[str, ...]:
        return tuple(sorted((*self.whole, *self.texts)))


_PIECES, _CELLS = {"pieces": (1, MAX_PIECES)}, {"cells": (1, MAX_CELLS)}
_VALUES = {"values": (2, MAX_VALUES)}
_KNOTS = {"knots": (2, MAX_CELLS), "steps": (1, MAX_CELLS)} | _VALUES

FORMS: dict[str, ShapeForm] = {
    BINS: ShapeForm(texts=("cells",), scores=(1, 2)),
    "monotone": ShapeForm({"levels": (1, MAX_LEVELS)}),
    "pieces": ShapeForm(_PIECES | _CELLS | _VALUES, needs="pieces"),
    "linear": ShapeForm(_PIECES | _KNOTS, needs="pieces", spaced=True),
    "lipschitz": ShapeForm(_KNOTS, ("lipschitz",), needs="lipschitz", spaced=True),
    "convex": ShapeForm(_KNOTS, spaced=True),
    "concave": ShapeForm(_KNOTS, spaced=True),
    GRID: ShapeForm(_VALUES, ("cells",), scores=(2,)),
}


def grid_cells(text: str) -> tuple[int, int]:
    """Parse `AxB`, the cells of a grid along its two scores; `A` is `AxA`. Raises InvalidMechanism.

    Refused if the grid has too many monotone maps to choose among (2¹⁶ down-sets).
    """
    match = _GRID.fullmatch(text)
    if match is None:
        raise InvalidMechanism("'cells' of a grid is written AxB, the cells along either score, such as 8x8.")
    a = int(match["first"])
    b = a if match["second"] is None else int(match["second"])
    if a * b > MAX_GRID_CELLS or math.comb(a + b, a) > MAX_DOWN_SETS:
        raise InvalidMechanism(
            f"A grid of {a}x{b} cells is too fine: its monotone maps are too many to choose among. 8x8, 9x9, 7x12, "
            f"5x19, 4x32 and 3x70 are about the largest that are taken, with {MAX_GRID_CELLS} cells at most."
        )
    return a, b


def bins_option(text: str) -> int | str:
    """Parse `cells` of bins: a whole number, or AxB of two scores. Raises InvalidMechanism."""
    match = _GRID.fullmatch(text)
    if match is None:
        raise InvalidMechanism("'cells' of bins is a whole number, or AxB along two scores, such as 16x16.")
    return text if match["second"] else int(text)


def bins_cells(option: int | str, scores: int) -> tuple[int, ...]:
    """Return the number of cells along each score. Raises InvalidMechanism."""
    counts = tuple(int(part) for part in str(option).split("x"))
    if len(counts) > scores:
        raise InvalidMechanism("There is one score, so 'cells' of bins is a whole number.")
    cells = counts * (scores // len(counts))
    if math.prod(cells) > MAX_CELLS:
        raise InvalidMechanism(f"'cells' of bins: at most {MAX_CELLS} in all.")
    return cells


def is_lipschitz(text: object) -> bool:
    """Check for a decimal greater than zero, in its one spelling."""
    well_formed = isinstance(text, str) and len(text) <= MAX_DIGITS and _LIPSCHITZ.fullmatch(text) is not None
    return well_formed and decimal_of(text) > 0


def most_pieces(shape: str, options: Mapping[str, Any], scores: int) -> tuple[int, ...] | None:
    """Return the most pieces that a map of that shape has, along each score; None if its options do not say.

    Raises InvalidMechanism for a shape, or an option, that is unknown, missing or out of range.
    """
    form = FORMS.get(shape)
    if form is None or scores not in form.scores or not set(options) <= set(form.options):
        raise InvalidMechanism("The shape is unknown, or has other scores or options.")
    if form.needs is not None and form.needs not in options:
        raise InvalidMechanism(f"The shape '{shape}' needs the option '{form.needs}'.")
    for name, (least, most) in form.whole.items():
        if name in options and not (type(options[name]) is int and least <= options[name] <= most):
            raise InvalidMechanism(f"'{name}' is a whole number from {least} to {most}.")
    if "lipschitz" in options and not is_lipschitz(options["lipschitz"]):
        raise InvalidMechanism("'lipschitz' is a decimal number greater than zero.")
    if shape == GRID:
        cells = options.get("cells", GRID_CELLS)
        if not isinstance(cells, str) or "x" not in cells:
            raise InvalidMechanism("'cells' of a grid is written AxB.")
        return grid_cells(cells)
    if shape == BINS and "cells" in options:
        cells = options["cells"]
        if type(cells) not in (int, str) or bins_option(str(cells)) != cells:
            raise InvalidMechanism("'cells' of bins is a whole number, or AxB.")
        return bins_cells(cells, scores)
    return (options["pieces"],) if shape == "pieces" else None
