"""Label domains: `{"range": "LO:HI:STEP"}` or `{"values": [...]}`, every number in its one spelling and exact; or
`{"names": [...]}`, whose labels are the places 0, 1, … of the names."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any

from .refusal import refuse

VALUE = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?", re.ASCII)
MOST_PLACES, MOST_LABELS, MOST_LISTED = 60, 1 << 24, 4096
MOST_NAMES, MOST_LETTERS = 100, 100


class Domain:
    """k labels: those of a range are `low` + i·`step`; `texts` are those that are listed, `names` those of classes."""

    def __init__(self, data: Any) -> None:
        self.texts: list[str] = []
        self.names: list[str] = []
        self.values: list[Fraction] = []
        if isinstance(data, dict) and set(data) == {"range"} and isinstance(data["range"], str):
            self._range(data["range"])
        elif isinstance(data, dict) and set(data) == {"values"} and isinstance(data["values"], list):
            self._listed(data["values"])
        elif isinstance(data, dict) and set(data) == {"names"} and isinstance(data["names"], list):
            self._named(data["names"])
        else:
            refuse("the label domain cannot be read")
        self._distinct()

    def _range(self, text: str) -> None:
        parts = text.split(":")
        if len(parts) != 3:
            refuse("the label domain is not LO:HI:STEP")
        self.low, self.high, self.step = map(value, parts)
        steps = (self.high - self.low) / self.step if self.step > 0 else Fraction(-1)
        if steps < 0 or steps.denominator != 1 or steps >= MOST_LABELS:
            refuse("the label domain is not a range of at most 2^24 labels")
        self.k = int(steps) + 1

    def _listed(self, texts: list[Any]) -> None:
        self.texts, self.values, self.k = texts, [value(text) for text in texts], len(texts)
        if not 1 <= self.k <= MOST_LISTED or any(a >= b for a, b in pairwise(self.values)):
            refuse("the values of the label domain do not rise")
        self.low, self.high, self.step = self.values[0], self.values[-1], Fraction(0)

    def _named(self, names: list[Any]) -> None:
        if not 2 <= len(names) <= MOST_NAMES or not all(isinstance(name, str) and _is_name(name) for name in names):
            refuse("the names of the label domain are not 2 to 100 names of classes")
        if len(set(names)) != len(names):
            refuse("a name of the label domain occurs twice")
        self.names, self.k = names, len(names)
        self.low, self.high, self.step = Fraction(0), Fraction(self.k - 1), Fraction(1)

    def _distinct(self) -> None:
        """Floats are rounded in order, so that neighbours are different ones where they are all farther apart than two
        floats can be; otherwise all are looked at."""
        if not self.texts and self.step > Fraction(math.ulp(float(max(abs(self.low), abs(self.high))))):
            return
        scale = math.lcm(*(number.denominator for number in self.values or (self.low, self.step)))
        first, step = int(self.low * scale), int(self.step * scale)
        whole = (int(v * scale) for v in self.values) if self.texts else (first + i * step for i in range(self.k))
        if any(a >= b for a, b in pairwise(number / scale for number in whole)):  # each division rounds once
            refuse("two values of the label domain are the same 64-bit float")

    def at(self, position: int) -> Fraction:
        return self.values[position] if self.texts else self.low + position * self.step

    def number(self, position: int) -> float:
        """The label as the nearest 64-bit float."""
        return float(self.at(position))

    @property
    def ends(self) -> tuple[float, float]:
        return float(self.low), float(self.high)

    def text(self, position: int) -> str:
        """The label's one spelling: as it is listed, or without needless zeros; that of a class is its number."""
        return self.texts[position] if self.texts else plain_text(self.at(position))

    def holds(self, text: str) -> bool:
        """Whether it is the one spelling of a label."""
        if self.texts:
            return text in self.texts
        number = value(text)
        place = (number - self.low) / self.step
        return place.denominator == 1 and 0 <= place < self.k and plain_text(number) == text


def _is_name(name: str) -> bool:
    """1 to 100 printable characters, no blanks at the ends, and nothing that reads as a number."""
    if not 1 <= len(name) <= MOST_LETTERS or name != name.strip() or not name.isprintable():
        return False
    try:
        float(name)
    except ValueError:
        return True
    return False


def value(text: object) -> Fraction:
    """A value of a label domain, exact."""
    if not isinstance(text, str) or len(text) > MOST_PLACES * 3 or VALUE.fullmatch(text) is None:
        refuse("a value of the label domain is not a decimal number")
    number = Decimal(text)
    if abs(number.adjusted()) > MOST_PLACES or -int(number.as_tuple().exponent) > MOST_PLACES:
        refuse("a value of the label domain has too many digits")
    return Fraction(number)


def plain_text(number: Fraction) -> str:
    """The decimal spelling of a number that has one, without needless zeros."""
    places = 0
    while (number * 10**places).denominator != 1:
        places += 1
    digits = str(abs(int(number * 10**places))).rjust(places + 1, "0")
    sign = "-" if number < 0 else ""
    return sign + (f"{digits[:-places]}.{digits[-places:]}" if places else digits)
