"""The shapes of constrained fits, and the options of each: checked before any label is read."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from fractions import Fraction

from label_dp.companions.maps.shapes import FORMS, MAX_DIGITS
from label_dp.errors import InvalidMechanism
from label_dp.numbers import BadSpelling, decimal_of

SHAPES = {
    "pieces": "a step function of at most `pieces` values",
    "linear": "continuous, and straight but for at most `pieces` − 1 breaks",
    "lipschitz": "rising by at most `lipschitz` of the label per point of x",
    "convex": "rising ever faster",
    "concave": "rising ever more slowly",
}
TAKES = {shape: set(FORMS[shape].options) for shape in SHAPES}
CELLS, KNOTS, STEPS = 64, 9, 8


@dataclass(frozen=True)
class ShapeOptions:
    """Options of a shape; None if one does not apply or a public rule decides.

    `pieces`: their largest number. `lipschitz`: label per point of x, a decimal. `cells` of a step function. `knots`
    with `steps` cells from each to the next, of the other shapes. `values` at the knots (or of the steps): 2^T.
    """

    pieces: int | None = None
    lipschitz: str | None = None
    cells: int | None = None
    knots: int | None = None
    steps: int | None = None
    values: int | None = None

    def check(self, shape: str) -> None:
        """Raise InvalidMechanism for an unknown shape, a missing or inapplicable option, or one out of range."""
        if shape not in SHAPES:
            raise InvalidMechanism(f"There is no shape of that name; there are {', '.join(SHAPES)}.")
        options = {name for name, value in asdict(self).items() if value is not None}
        form = FORMS[shape]
        if form.needs is not None and form.needs not in options:
            raise InvalidMechanism(f"The shape '{shape}' needs '{form.needs}'.")
        for name in sorted(options - TAKES[shape]):
            raise InvalidMechanism(f"The shape '{shape}' takes no '{name}'.")
        for name, (least, most) in form.whole.items():
            value = getattr(self, name)
            if value is not None and (type(value) is not int or not least <= value <= most):
                raise InvalidMechanism(f"'{name}' is a whole number from {least} to {most}.")
        if self.lipschitz is not None:
            self.constant()

    def constant(self) -> Fraction:
        """Return the Lipschitz constant, exact. Raises InvalidMechanism."""
        refusal = InvalidMechanism("'lipschitz' is a decimal number greater than zero, such as 0.05.")
        if not isinstance(self.lipschitz, str) or len(self.lipschitz) > MAX_DIGITS:
            raise refusal
        try:
            number = decimal_of(self.lipschitz)
        except BadSpelling:
            raise refusal from None
        if not number.is_finite() or number <= 0 or abs(number.adjusted()) > MAX_DIGITS:
            raise refusal
        return Fraction(number)
