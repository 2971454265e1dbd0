"""The value of a domain that a label is: one rule for files, requests, checks, priors and true labels alike (invariant
values-keep).

A label that prints as a value of the domain is that value, and every other label is rounded down to the next one:

- whole numbers and decimals are compared exactly;
- a float y of 64, 32 or 16 bits is the value just above it where that lies within 2⁻⁵⁰·|y|, 2⁻²¹·|y| or 2⁻⁸·|y| (4 to
  8 units in the last place of its type), so that 4.99 as float32, ten times 0.1 and 4.35·100 are what they print as;
- where these bounds exceed an eighth of a step, a float of 32 or 16 bits is the value that rounds to it; of several,
  which its type cannot tell from each other, the one that its shortest decimal spells, if any;
- text is the 64-bit float nearest to what it spells, as programs write floats.

No value of the domain lies outside of it, whatever its type: the last one rounded up to a narrow float is the last one.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from label_dp.domain import Domain

if TYPE_CHECKING:
    import pyarrow as pa

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

DOUBLE, SINGLE, HALF = 2.0**-50, 2.0**-21, 2.0**-8  # by precision: 53, 24 and 11 bits
NARROW: dict[float, type[np.floating[Any]]] = {SINGLE: np.float32, HALF: np.float16}
WHOLE_FLOATS = 1 << 53  # whole numbers up to it are floats
SAFE = 1 << 62  # whole numbers below it add up to int64


def positions(column: Any, numbers: FloatArray, domain: Domain) -> tuple[IntArray, BoolArray]:
    """Positions int64[n] in the domain, clipped to its ends, and which labels lay outside. `column` holds them without
    nulls, as they came; `numbers` are the floats nearest to them, finite."""
    exact = _decimals(column, domain)
    if exact is not None:
        return _exact_positions(exact, domain)[:2]
    tolerance = _tolerance(_kind(column))
    if tolerance == 0.0 or domain.tells(tolerance):
        index, outside = domain.index(numbers, tolerance)
        if tolerance in NARROW:
            outside &= ~_rounds_to(domain.values[-1:], numbers, tolerance)
        return index, outside
    index, outside = domain.index(numbers)
    if tolerance == DOUBLE:  # each rounds to itself
        return index, outside
    at, same = _rounded(column, numbers, domain)
    return np.where(same, at, index), outside & ~same


def value_positions(column: Any, numbers: FloatArray, domain: Domain) -> IntArray:
    """As `positions`, but −1 for a label that is no value of the domain."""
    exact = _decimals(column, domain)
    if exact is not None:
        index, _, equal = _exact_positions(exact, domain)
        return np.where(equal, index, -1)
    index, _ = positions(column, numbers, domain)
    tolerance, values = _tolerance(_kind(column)), domain.values
    near = tolerance if domain.tells(tolerance) else 0.0
    equal = np.abs(numbers - values[index]) <= np.abs(numbers) * near
    if near < tolerance < DOUBLE:
        equal |= _rounded(column, numbers, domain)[1]
    return np.where(equal, index, -1)


def spelled(column: Any) -> list[Any]:
    """The cells of a column as Python values, narrow floats as the floats that their shortest decimals spell."""
    narrow = NARROW.get(_tolerance(_kind(column)))
    cells = column.to_pylist()
    return cells if narrow is None else [None if cell is None else float(str(narrow(cell))) for cell in cells]


def shortest(column: Any, numbers: FloatArray) -> FloatArray:
    """`numbers`, which came as those of `column`, as the floats that their shortest decimals spell."""
    import pyarrow as pa
    import pyarrow.compute as pc

    tolerance = _tolerance(_kind(column))
    if tolerance == HALF:
        return _half_decimals()[numbers.astype(np.float16).view(np.uint16)]
    if tolerance != SINGLE:
        return numbers
    texts = pc.cast(pa.array(numbers.astype(np.float32)), pa.large_string())
    return np.asarray(pc.cast(texts, pa.float64()))


def _kind(column: Any) -> pa.DataType:
    import pyarrow as pa

    return column.type.value_type if pa.types.is_dictionary(column.type) else column.type


# --- floats -------------------------------------------------------------------------------------------------------


def _tolerance(kind: pa.DataType) -> float:
    """Relative; 0 for whole numbers."""
    import pyarrow as pa

    if pa.types.is_integer(kind):
        return 0.0
    return HALF if pa.types.is_float16(kind) else SINGLE if pa.types.is_float32(kind) else DOUBLE


def _rounded(column: Any, numbers: FloatArray, domain: Domain) -> tuple[IntArray, BoolArray]:
    """Positions of the values that round to narrow floats, and whether there is one."""
    tolerance, values = _tolerance(_kind(column)), domain.values
    if domain.tells(tolerance / 16):  # a step is two units in the last place or more: no two values round to one float
        index, _ = domain.index(numbers)
        above = np.minimum(index + 1, domain.k - 1)
        up = _rounds_to(values[above], numbers, tolerance)
        return np.where(up, above, index), up | _rounds_to(values[index], numbers, tolerance)
    spelt = shortest(column, numbers)
    index, _ = domain.index(spelt)
    same = values[index] == spelt
    with np.errstate(over="ignore"):
        narrow = values.astype(NARROW[tolerance]).astype(np.float64)
    first = np.searchsorted(narrow, numbers)
    alone = np.searchsorted(narrow, numbers, side="right") - first == 1
    return np.where(same, index, np.minimum(first, domain.k - 1)), same | alone


def _rounds_to(values: FloatArray, numbers: FloatArray, tolerance: float) -> BoolArray:
    with np.errstate(over="ignore"):
        return np.asarray(values.astype(NARROW[tolerance]) == numbers, bool)


@cache
def _half_decimals() -> FloatArray:
    """float64[2¹⁶]: the shortest decimal of each float16, by its bits."""
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    return np.array([float(str(one)) for one in every], np.float64)


# --- decimals -----------------------------------------------------------------------------------------------------


def _decimals(column: Any, domain: Domain) -> pa.Array | None:
    """The column where it is to be read in whole numbers: decimals, and whole numbers that are no floats."""
    import pyarrow as pa

    decimal = pa.types.is_decimal(_kind(column))
    if not decimal and not (pa.types.is_integer(_kind(column)) and max(map(abs, domain.ends)) > WHOLE_FLOATS):
        return None
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    array = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
    return array if decimal else array.cast(pa.decimal128(20, 0))


def _exact_positions(column: pa.Array, domain: Domain) -> tuple[IntArray, BoolArray, BoolArray]:
    """Positions, which labels lay outside, and which are values of the domain."""
    denominator, lattice = domain.lattice
    whole, rest = _scaled(column, len(str(denominator)) - 1)
    ends = (lattice[0], lattice[-1]) if isinstance(lattice, list) else (lattice[0], lattice[0] + lattice[1] * domain.k)
    if max(map(abs, ends)) >= SAFE:
        whole = whole.astype(object)
    last = domain.k - 1
    if isinstance(lattice, list):
        listed = np.array(lattice, whole.dtype)
        index = np.clip(np.searchsorted(listed, whole, side="right") - 1, 0, last)
        values = listed[index]
    else:
        first, step = lattice
        index = np.minimum(np.maximum((whole - first) // step, 0), last)
        values = first + step * index
    equal = (whole == values).astype(bool) & ~rest
    outside = (whole < values).astype(bool) | ((index == last).astype(bool) & (whole >= values).astype(bool) & ~equal)
    return index.astype(np.int64), outside, equal


def _scaled(column: pa.Array, places: int) -> tuple[npt.NDArray[Any], BoolArray]:
    """(⌊value·10^places⌋ int64[n], or whole numbers of Python where that is too narrow; whether some is left)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    try:
        wide = column.cast(pa.decimal128(38, kind.scale) if kind.precision < 38 else pa.decimal256(76, kind.scale))
        floor = pc.round(wide, ndigits=places, round_mode="down") if kind.scale > places else wide
        narrow = floor.cast(pa.decimal128(18, places))
    except pa.ArrowInvalid:
        exact = [Fraction(value) * 10**places for value in column.to_pylist()]
        whole = np.array([math.floor(value) for value in exact], object)
        return whole, np.array([value.denominator != 1 for value in exact], bool)
    if not len(narrow):
        return np.zeros(0, np.int64), np.zeros(0, bool)
    words = np.frombuffer(narrow.buffers()[1], np.int64)[2 * narrow.offset : 2 * (narrow.offset + len(narrow)) : 2]
    return words, np.asarray(pc.not_equal(floor, wide), bool)
