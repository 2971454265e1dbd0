"""The shapes of constrained fits, and what may be asked of each: checked before any label is read."""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction

from labels_party.mechanisms.isotonic.cells import MAX_CELLS
from labels_party.mechanisms.isotonic.constrained import MAX_LEVELS
from labels_party.mechanisms.isotonic.posets import MAX_DOWN_SETS
from shared.errors import InvalidMechanism

SHAPES = {
    "pieces": "a step function of at most `pieces` values",
    "linear": "continuous, and straight but for at most `pieces` − 1 breaks",
    "lipschitz": "rising by at most `lipschitz` of the label per point of x",
    "convex": "rising ever faster",
    "concave": "rising ever more slowly",
}
TAKES = {
    "pieces": {"pieces", "cells", "values"},
    "linear": {"pieces", "knots", "steps", "values"},
    "lipschitz": {"lipschitz", "knots", "steps", "values"},
    "convex": {"knots", "steps", "values"},
    "concave": {"knots", "steps", "values"},
}
NEEDS = {"pieces": "pieces", "linear": "pieces", "lipschitz": "lipschitz"}
CELLS, KNOTS, STEPS = 64, 9, 8
GRID_CELLS = "8x8"
MAX_GRID_CELLS = 1 << 8  # and at most 2¹⁶ down-sets: a fit then takes two seconds at most
MAX_PIECES = 1 << 10
MAX_DIGITS = 60
_GRID = re.compile(r"(?P<first>[1-9][0-9]{0,3})(x(?P<second>[1-9][0-9]{0,3}))?", re.ASCII)


def grid_cells(text: str) -> tuple[int, int]:
    """`AxB`, the cells of a grid along its two scores; `A` is `AxA`. Raises InvalidMechanism.

    Refused where all monotone maps of the grid are too many to choose among (2¹⁶ down-sets, see `posets`).
    """
    found = _GRID.fullmatch(text)
    if found is None:
        raise InvalidMechanism("'cells' of a grid is written AxB, the cells along either score, such as 8x8.")
    a = int(found["first"])
    b = a if found["second"] is None else int(found["second"])
    if a * b > MAX_GRID_CELLS or math.comb(a + b, a) > MAX_DOWN_SETS:
        raise InvalidMechanism(
            f"A grid of {a}x{b} cells is too fine: its monotone maps are too many to choose among. 8x8, 9x9, 7x12, "
            f"5x19, 4x32 and 3x70 are about the largest that are taken, with {MAX_GRID_CELLS} cells at most."
        )
    return a, b


def bins_option(text: str) -> int | str:
    """`cells` of bins: a whole number, or AxB of two scores. Raises InvalidMechanism."""
    found = _GRID.fullmatch(text)
    if found is None:
        raise InvalidMechanism("'cells' of bins is a whole number, or AxB along two scores, such as 16x16.")
    return text if found["second"] else int(text)


def bins_cells(option: int | str, scores: int) -> tuple[int, ...]:
    """How many cells along each score. Raises InvalidMechanism."""
    counts = tuple(int(part) for part in str(option).split("x"))
    if len(counts) > scores:
        raise InvalidMechanism("There is one score, so 'cells' of bins is a whole number.")
    found = counts * (scores // len(counts))
    if math.prod(found) > MAX_CELLS:
        raise InvalidMechanism(f"'cells' of bins: at most {MAX_CELLS} in all.")
    return found


@dataclass(frozen=True)
class ShapeOptions:
    """What a shape takes besides its name; None where it does not apply or a public rule decides.

    `pieces`: at most so many. `lipschitz`: label per point of x, a decimal. `cells` of a step function. `knots` with
    `steps` cells from each to the next, of the other shapes. `values` at the knots (or of the steps): 2^T.
    """

    pieces: int | None = None
    lipschitz: str | None = None
    cells: int | None = None
    knots: int | None = None
    steps: int | None = None
    values: int | None = None

    def check(self, shape: str) -> None:
        """Raises InvalidMechanism: an unknown shape, an option that it lacks or does not take, or one out of range."""
        if shape not in SHAPES:
            raise InvalidMechanism(f"There is no shape of that name; there are {', '.join(SHAPES)}.")
        given = {name for name, value in asdict(self).items() if value is not None}
        if shape in NEEDS and NEEDS[shape] not in given:
            raise InvalidMechanism(f"The shape '{shape}' needs '{NEEDS[shape]}'.")
        for name in sorted(given - TAKES[shape]):
            raise InvalidMechanism(f"The shape '{shape}' takes no '{name}'.")
        limits = {
            "pieces": (1, MAX_PIECES),
            "cells": (1, MAX_CELLS),
            "knots": (2, MAX_CELLS),
            "steps": (1, MAX_CELLS),
            "values": (2, 1 << MAX_LEVELS),
        }
        for name, (least, most) in limits.items():
            value = getattr(self, name)
            if value is not None and (type(value) is not int or not least <= value <= most):
                raise InvalidMechanism(f"'{name}' is a whole number from {least} to {most}.")
        if self.lipschitz is not None:
            self.constant()

    def constant(self) -> Fraction:
        """The Lipschitz constant, exact. Raises InvalidMechanism."""
        refusal = InvalidMechanism("'lipschitz' is a decimal number greater than zero, such as 0.05.")
        if not isinstance(self.lipschitz, str) or len(self.lipschitz) > MAX_DIGITS:
            raise refusal
        try:
            number = Decimal(self.lipschitz)
        except InvalidOperation:
            raise refusal from None
        if not number.is_finite() or number <= 0 or abs(number.adjusted()) > MAX_DIGITS:
            raise refusal
        return Fraction(number)
