"""Numbers as people and programs write them: one grammar for whatever is charged, or bounds what is charged.

A number is written as JSON writes it: ASCII digits without leading zeros, a point between digits, an exponent of at
most three digits, a minus where it is negative. Blanks, underscores, a plus, separators and other digits are refused,
and so is what is no number: Python's own readers take `1_0` for ten, and Arabic digits. Every refusal is a ValueError
(`BadSpelling`), which the doors turn into a sentence of theirs.
"""

from __future__ import annotations

import math
import re
from decimal import ROUND_CEILING, Context, Decimal

MOST_LETTERS = 420  # 340 digits of a wide domain, and what goes around them
WHOLE_DIGITS = 18
_DECIMAL = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3})?", re.ASCII)
_WHOLE = re.compile(rf"0|-?[1-9][0-9]{{0,{WHOLE_DIGITS - 1}}}", re.ASCII)


# as other programs write what they measured, in columns of text: a sign, leading zeros and a bare point are usual there
MEASURED_TEXT = r"^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$|^[+-]?(?i:nan|inf|infinity)$"


# behind "must be", or another verb
SPELLING = "in plain digits: no plus sign, no leading zeros, no blanks or separators"
DECIMAL = f"a decimal number such as 0.5, {SPELLING}"
WHOLE = f"a whole number such as 10, {SPELLING}"


class BadSpelling(ValueError):
    """Value that is not spelled as a number; the text is the expected form."""


def decimal_of(value: object) -> Decimal:
    """Parse the exact, finite value of a text, a whole number, a Decimal, or a float. A float counts as the shortest
    decimal that prints it: 0.1 is one tenth, not its binary neighbour. Raises BadSpelling."""
    if isinstance(value, str):
        if len(value) > MOST_LETTERS or _DECIMAL.fullmatch(value) is None:
            raise BadSpelling(DECIMAL)
        return Decimal(value)
    if isinstance(value, float) and math.isfinite(value):
        return Decimal(float.__repr__(value))
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**MOST_LETTERS:
        return Decimal(value)
    if isinstance(value, Decimal) and value.is_finite():
        parts = value.as_tuple()
        if len(parts.digits) <= MOST_LETTERS and abs(int(parts.exponent)) < 1000:
            return value
    raise BadSpelling(DECIMAL)


def real_of(value: object) -> float:
    """Parse the nearest finite float. Raises BadSpelling."""
    number = float(decimal_of(value))
    if not math.isfinite(number):
        raise BadSpelling("a number that is not too large for a float")
    return number


def rounded_up(value: float, digits: int = 6) -> float:
    """Round up to `digits` significant digits: the text of an upper bound."""
    if not math.isfinite(value):
        return value
    return float(Context(prec=digits, rounding=ROUND_CEILING).plus(decimal_of(value)))


def whole_of(value: object) -> int:
    """Parse a whole number: an int, or a text of at most 18 digits. Raises BadSpelling."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and _WHOLE.fullmatch(value) is not None:
        return int(value)
    raise BadSpelling(WHOLE)


def within(value: float, width: float) -> float:
    """Round an estimate to the digits that an interval of this width leaves: to a thousandth of it or less."""
    if not width > 0.0:
        return value
    return round(value, 3 - math.floor(math.log10(width))) + 0.0  # no −0
