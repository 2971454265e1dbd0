"""Label domain 𝒴: a public, ordered, finite set of values, and the rule that maps a real label onto it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property

import numpy as np
import numpy.typing as npt

from label_dp.class_names import checked_names, listing, spells_number
from label_dp.errors import InvalidDomain
from label_dp.numbers import DECIMAL, BadSpelling, decimal_of
from label_dp.schemas.json_types import JsonObject

MAX_DOMAIN = 1 << 24
MAX_DIGITS = 340  # enough for the exact decimal of any moderate number that people write
MAX_PLACES = 60
TOO_FINE = "Neighbouring values of the domain are not distinguishable as 64-bit floats; take a larger step."
BINARY = "binary"  # a word for 0:1, which documents spell as any other range
MANIFEST_VALUES = 4096  # explicit values are written out in the manifest, which is bounded

FloatArray = npt.NDArray[np.float64]


def _decimal(value: object, what: str) -> Decimal:
    try:
        number = decimal_of(value)
    except BadSpelling:
        raise InvalidDomain(f"{what} of the domain must be {DECIMAL}, and of moderate size.") from None
    parts = number.as_tuple()
    # wider numbers would make every value a division of huge integers, also for whoever reads a manifest
    if abs(number.adjusted()) > MAX_PLACES or int(parts.exponent) < -MAX_PLACES or len(parts.digits) > MAX_DIGITS:
        raise InvalidDomain(f"{what} of the domain must be finite and of moderate size.")
    return number


@dataclass(frozen=True)
class Domain:
    """k ordered values, either `low:high:step` (both ends included) or listed. Exact decimals; floats are derived.

    `names` says that labels are classes: the i-th name has the code i, and the values are the codes 0 … k − 1. The
    order of more than two names has no meaning (`nominal`); it only fixes the codes.

    A label y is mapped to the largest value that is not above it ("rounded down to the step"); outside
    [first, last] the population's out-of-domain rule decides (`clip` or `refuse`).
    """

    low: Decimal | None = None
    high: Decimal | None = None
    step: Decimal | None = None
    listed: tuple[Decimal, ...] = ()
    names: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Domain:
        """Parse `LO:HI` or `LO:HI:STEP`, step 1 by default; `binary` is 0:1; `NAME,NAME,…` are classes. Raises
        InvalidDomain."""
        # a colon makes it a range, whose numbers may be spelled with a comma by mistake
        if "," in text and ":" not in text and not all(map(spells_number, words := text.split(","))):
            return cls.from_names(words)
        parts = ["0", "1"] if text == BINARY else text.split(":")
        if len(parts) not in (2, 3):
            raise InvalidDomain(
                "A domain is written LO:HI or LO:HI:STEP, for example 0:400 or 0:60:0.5; 'binary' is 0 and 1; classes "
                "are named with commas between them, such as books,garden,toys."
            )
        low, high = _decimal(parts[0], "The lower end"), _decimal(parts[1], "The upper end")
        step = _decimal(parts[2], "The step") if len(parts) == 3 else Decimal(1)
        if step <= 0:
            raise InvalidDomain("The step of a domain must be greater than zero.")
        if high < low:
            raise InvalidDomain("The upper end of a domain must not be below its lower end.")
        # fractions: decimal arithmetic would round to 28 digits
        steps = (Fraction(high) - Fraction(low)) / Fraction(step)
        if steps >= MAX_DOMAIN:
            raise InvalidDomain(f"A domain may have at most {MAX_DOMAIN} values; take a larger step.")
        if steps.denominator != 1:
            raise InvalidDomain("A whole number of steps must lead from the lower to the upper end of the domain.")
        return cls(low=low, high=high, step=step)

    @classmethod
    def from_values(cls, values: Sequence[str | int | float | Decimal]) -> Domain:
        """Make an explicit domain; values must be strictly increasing. Raises InvalidDomain."""
        if not 1 <= len(values) <= MANIFEST_VALUES:
            raise InvalidDomain(
                f"An explicit domain lists between 1 and {MANIFEST_VALUES} values; use LO:HI:STEP for more."
            )
        decimals = tuple(_decimal(v, f"Value {i}") for i, v in enumerate(values))
        if any(a >= b for a, b in itertools.pairwise(decimals)):
            raise InvalidDomain("The values of a domain must be listed in strictly increasing order.")
        return cls(listed=decimals)

    @classmethod
    def from_names(cls, names: Sequence[object]) -> Domain:
        """Make classes of these names, coded 0 … k − 1 in their order. Raises InvalidDomain."""
        checked = checked_names(names)
        return cls(low=Decimal(0), high=Decimal(len(checked) - 1), step=Decimal(1), names=checked)

    @classmethod
    def from_list(cls, entries: Sequence[str | int | float]) -> Domain:
        """Make values if all entries are numbers, names if one is not. Raises InvalidDomain."""
        return cls.from_values(entries) if all(map(spells_number, entries)) else cls.from_names(entries)

    @classmethod
    def from_json(cls, data: object) -> Domain:
        """Parse the output of `as_json`, a string for `parse`, or a plain list of values or of names."""
        if isinstance(data, str):
            return cls.parse(data)
        if isinstance(data, dict) and isinstance(data.get("range"), str):
            return cls.parse(data["range"])
        if isinstance(data, dict) and isinstance(data.get("names"), list):
            return cls.from_names(data["names"])
        values = data.get("values") if isinstance(data, dict) else data
        if isinstance(values, list) and all(
            isinstance(v, str | int | float) and not isinstance(v, bool) for v in values
        ):
            return cls.from_values(values) if isinstance(data, dict) else cls.from_list(values)
        raise InvalidDomain('A domain is "LO:HI[:STEP]", "binary", a list of values or a list of names.')

    def as_json(self) -> JsonObject:
        if self.names:
            return {"names": list(self.names)}
        if self.listed:
            return {"values": [format(v, "f") for v in self.listed]}
        return {"range": str(self)}

    @property
    def nominal(self) -> bool:
        """Whether labels are more than two classes, which have no order. Two classes count as the numbers 0 and 1."""
        return len(self.names) > 2

    @property
    def from_zero(self) -> bool:
        """Whether the labels begin at 0, as sums and counts do."""
        return not self.nominal and float(self.values[0]) == 0.0

    def text(self, position: int) -> str:
        """Format a label for people: its name, or its exact decimal."""
        return self.names[position] if self.names else format(self.value(position), "f")

    @property
    def ends(self) -> tuple[float, float]:
        """First and last of `values`."""
        return float(self.value(0)), float(self.value(self.k - 1))

    def check_spelling(self, data: object) -> None:
        """Raise InvalidDomain if `data` spells this domain unlike `as_json`, or two neighbouring values are one 64-bit
        float."""
        if self.as_json() != data:
            raise InvalidDomain("The domain is not in its one spelling.")
        if not self.distinguishable:
            raise InvalidDomain(TOO_FINE)

    @cached_property
    def distinguishable(self) -> bool:
        """Whether all values are different 64-bit floats; of a range in which a step may be less than the distance of
        two floats, by all of them."""
        if not self.listed and self.step is not None and self.low is not None and self.high is not None:
            largest = max(abs(Fraction(self.low)), abs(Fraction(self.high)))
            if Fraction(self.step) >= Fraction(math.ulp(float(largest))):
                return True
        try:
            return len(self.values) == self.k
        except InvalidDomain:
            return False

    def __str__(self) -> str:
        if self.names:
            return listing(self.names)
        if self.listed:
            return f"{len(self.listed)} listed values"
        return f"{self.low:f}:{self.high:f}:{self.step:f}"

    @cached_property
    def k(self) -> int:
        if self.listed:
            return len(self.listed)
        assert self.low is not None
        assert self.high is not None
        assert self.step is not None
        return int((Fraction(self.high) - Fraction(self.low)) / Fraction(self.step)) + 1

    @cached_property
    def lattice(self) -> tuple[int, list[int] | tuple[int, int]]:
        """(Denominator D, integers): every value is exactly integer / D. Ranges only have (first, step)."""
        decimals = self.listed or (self.low, self.step)
        places = max(0, *(-int(d.as_tuple().exponent) for d in decimals if d is not None))
        scale = 10**places
        ints = [int(Fraction(d) * scale) for d in decimals if d is not None]
        return scale, (ints if self.listed else (ints[0], ints[1]))

    def integers(self) -> list[int]:
        """Return all k values times the common denominator, exact. Only for small k."""
        ints = self.lattice[1]
        if isinstance(ints, list):
            return ints
        first, step = ints
        return [first + step * i for i in range(self.k)]

    def value(self, position: int) -> Decimal:
        """Return the exact value at a position 0 … k − 1."""
        if self.listed:
            return self.listed[position]
        scale, ints = self.lattice
        assert isinstance(ints, tuple)
        whole, places = ints[0] + ints[1] * position, len(str(scale)) - 1
        while places and whole % 10 == 0:
            whole, places = whole // 10, places - 1
        return Decimal((int(whole < 0), tuple(int(digit) for digit in str(abs(whole))), -places))

    def part(self, first: int, last: int) -> Domain:
        """Return the domain of the positions `first` to `last`, both included. Raises InvalidDomain; classes have no
        proper parts."""
        if not 0 <= first <= last < self.k:
            raise InvalidDomain("A part of a domain lies between its ends.")
        if self.names:
            if (first, last) != (0, self.k - 1):
                raise InvalidDomain("A domain of names has no range within it; all of its names count.")
            return self
        if self.listed:
            return Domain(listed=self.listed[first : last + 1])
        return Domain(low=self.value(first), high=self.value(last), step=self.step)

    def place(self, part: Domain) -> tuple[int, int]:
        """Return the positions (first, last) of `part` in this domain. Raises InvalidDomain if it is no part of it."""
        if self.names or part.names:
            if self != part:
                raise InvalidDomain("One domain is no part of the other.")
            return 0, self.k - 1
        if self.listed:
            first = next((i for i, value in enumerate(self.listed) if part.listed[:1] == (value,)), -1)
        else:
            start = (Fraction(part.low or 0) - Fraction(self.low or 0)) / Fraction(self.step or 1)
            first = start.numerator if start.denominator == 1 else -1
        last = first + part.k - 1
        if first < 0 or last >= self.k or self.part(first, last) != part:
            raise InvalidDomain("One domain is no part of the other.")
        return first, last

    @cached_property
    def values(self) -> FloatArray:
        """Values, float64[k], each correctly rounded from its exact decimal."""
        scale, ints = self.lattice
        if isinstance(ints, list):
            exact = np.array([i / scale for i in ints], dtype=np.float64)
        else:
            first, step = ints
            if max(abs(first), abs(first + step * (self.k - 1)), scale) < 1 << 53:
                # both operands are exact doubles, so one division rounds correctly
                exact = (first + step * np.arange(self.k, dtype=np.int64)).astype(np.float64) / float(scale)
            else:
                # one by one: a list of so many numbers would take four times the memory
                exact = np.fromiter(((first + step * i) / scale for i in range(self.k)), np.float64, self.k)
        if self.k > 1 and not np.all(np.diff(exact) > 0):
            raise InvalidDomain(TOO_FINE)
        exact.setflags(write=False)
        return exact

    def index(self, labels: FloatArray, tolerance: float = 0.0) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """Positions of `labels` (float64[n]) in the domain, clipped to its ends, and which lay outside. A label y is
        the value above it where that lies within `tolerance`·|y|; `label_values` chooses the tolerance.

        NaN and infinities are the caller's to refuse; here they count as outside.
        """
        values = self.values
        first, last = values[0], values[-1]
        raised = labels
        if tolerance:
            raised = np.abs(labels)
            raised *= tolerance
            with np.errstate(over="ignore", invalid="ignore"):
                raised += labels
        outside = ~((raised >= first) & (labels <= last))  # also what is no number
        inside = np.fmax(np.fmin(raised, last), first)
        if self._exact:
            return (inside * (1.0 / float(values[1]))).astype(np.int64), outside
        if not self._arithmetic:
            return np.searchsorted(values, inside, side="right").astype(np.int64) - 1, outside
        index = ((inside - first) * ((self.k - 1) / (last - first))).astype(np.int64)
        # at most one off; which it is, the values themselves decide
        index -= values[index] > inside
        above = np.minimum(index + 1, self.k - 1)
        index += (values[above] <= inside) & (index < above)
        return index, outside

    def tells(self, tolerance: float) -> bool:
        """Whether no value reaches an eighth of the way to a neighbour by `tolerance` times itself."""
        values = self.values
        if self.k == 1:
            return True
        if self.listed:
            sizes = np.abs(values)
            return bool(np.all(np.maximum(sizes[1:], sizes[:-1]) * (8 * tolerance) <= np.diff(values)))
        assert self.step is not None
        return max(map(abs, self.ends)) * 8 * tolerance <= float(self.step)

    @cached_property
    def _exact(self) -> bool:
        """Whether a division by the step gives positions without rounding: from 0 on, by a power of two."""
        values = self.values
        return (
            not self.listed
            and self.k > 1
            and values[0] == 0.0
            and math.frexp(float(values[1]))[0] == 0.5
            and float(values[-1]) == float(values[1]) * (self.k - 1) < float(values[1]) * 2.0**52
        )

    @cached_property
    def _arithmetic(self) -> bool:
        """Whether rounding moves a position computed by a division by less than one."""
        if self.listed or self.k == 1:
            return False
        assert self.step is not None
        return max(abs(float(self.values[0])), abs(float(self.values[-1]))) <= float(self.step) * 2.0**40
