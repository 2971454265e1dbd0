"""Features of an example: names with public ranges or values, and their one form as numbers.

A query and a row of the owner's table become the same whole numbers, their *codes*: queries with equal codes are the
same query, however they are spelled. A number is clipped to its range and rounded to one of `levels` + 1 places, a
category is its place among the listed values; -1 is a missing one (null, NaN, an unlisted value).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from label_dp.companions.maps.places import MISSING, MOST_TEXT, category_text, number_places, place_text
from label_dp.errors import InvalidInput, InvalidRows, InvalidTable, RowProblem
from label_dp.numbers import BadSpelling, decimal_of
from label_dp.schemas.json_types import JsonObject
from labels_party.companions.mechanisms.private_prediction import UNIT

if TYPE_CHECKING:
    import pyarrow as pa

IntArray = npt.NDArray[np.int64]
COARSE = 2 * UNIT  # levels of a number that a learner sees as −UNIT … UNIT
FINE = 1 << 32  # of the one number along which a walk goes
MOST_VALUES, MOST_COLUMNS = 100, 256
FEW = 20  # at least one number in so many is listed, if a list cannot hold all
LARGEST = 10.0**100
NUMBER, FINITE = "must be a number or missing", "must be finite"
_DIGITS = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?\s*", re.ASCII)


@dataclass(frozen=True)
class NumericFeature:
    """Number with a public range; `low` and `high` are decimals as written by the owner."""

    name: str
    low: str
    high: str

    @property
    def columns(self) -> int:
        return 1

    def as_json(self) -> JsonObject:
        return {"name": self.name, "range": [self.low, self.high]}

    def codes(self, values: npt.NDArray[np.float64], levels: int) -> IntArray:
        """Encode float64[n], NaN being missing, as int64[n]."""
        return number_places(values, float(self.low), float(self.high), levels)


@dataclass(frozen=True)
class CategoricalFeature:
    """One of the listed texts; whole numbers are texts in canonical decimal."""

    name: str
    values: tuple[str, ...]

    @property
    def columns(self) -> int:
        return len(self.values)

    def as_json(self) -> JsonObject:
        return {"name": self.name, "values": list(self.values)}


Feature = NumericFeature | CategoricalFeature


@dataclass(frozen=True)
class Schema:
    """Features in their order, and the number of levels of a number."""

    features: tuple[Feature, ...]
    levels: int = COARSE

    # --- declaration --------------------------------------------------------------------------------------

    @classmethod
    def from_json(cls, data: Sequence[Mapping[str, Any]], levels: int = COARSE) -> Schema:
        """Parse {"name", "range": [low, high]} or {"name", "values": [...]}, in the form of
        `label_dp.schemas.features`.

        Raises InvalidInput.
        """
        features = tuple(_feature(item) for item in data)
        names = [feature.name for feature in features]
        if len(set(names)) != len(names):
            raise InvalidInput("Every feature has a name of its own.")
        schema = cls(features, levels)
        if schema.width > MOST_COLUMNS:
            raise InvalidInput(
                f"Numbers count once and categories once per value: together at most {MOST_COLUMNS - 1}."
            )
        return schema

    def as_json(self) -> list[dict[str, Any]]:
        return [feature.as_json() for feature in self.features]

    @property
    def names(self) -> list[str]:
        return [feature.name for feature in self.features]

    @property
    def width(self) -> int:
        """Number D of coordinates of an example, the constant one included."""
        return 1 + sum(feature.columns for feature in self.features)

    @property
    def squared_norm(self) -> int:
        """Bound B² of the squared length of any example's coordinates, in units of UNIT²."""
        return 1 + len(self.features)

    # --- encoding -----------------------------------------------------------------------------------------

    def coordinates(self, codes: IntArray) -> IntArray:
        """Compute coordinates int64[n, D] within ±UNIT of codes int64[n, p].

        Numbers are centred on the middle of their range, which also replaces a missing one; the value of a category has
        a UNIT; the last coordinate is a UNIT for all.
        """
        parts: list[IntArray] = []
        for j, feature in enumerate(self.features):
            column = codes[:, j]
            if isinstance(feature, NumericFeature):
                centred = column * (2 * UNIT) // self.levels - UNIT
                parts.append(np.where(column == MISSING, 0, centred)[:, None])
            else:
                parts.append(UNIT * (column[:, None] == np.arange(len(feature.values))))
        parts.append(np.full((len(codes), 1), UNIT, np.int64))
        return np.concatenate(parts, axis=1).astype(np.int64)

    def query(self, given: Mapping[str, Any]) -> tuple[int, ...]:
        """Encode one query: a member that is absent, null or NaN is missing. Raises InvalidInput."""
        unknown = [name for name in given if name not in self.names]
        if unknown:
            names = ", ".join(f"'{name}'" for name in self.names[:20])
            raise InvalidInput(f"The predictor has no feature '{ascii(str(unknown[0])[:60])[1:-1]}'; it has {names}.")
        return tuple(self._code(feature, given.get(feature.name)) for feature in self.features)

    def _code(self, feature: Feature, value: Any) -> int:
        if isinstance(feature, CategoricalFeature):
            text = category_text(value, feature.name)
            return feature.values.index(text) if text in feature.values else MISSING
        number = _number(value)
        if number is None or math.isinf(number):
            what = "a number, or null where it is missing" if number is None else "finite"
            raise InvalidInput(f"The feature '{feature.name}' must be {what}.")
        return int(feature.codes(np.array([number]), self.levels)[0])

    def shown(self, codes: Sequence[int]) -> dict[str, str | None]:
        """Format a canonical query for people and for the signed answer: places as decimals, categories as texts."""
        members: dict[str, str | None] = {}
        for feature, code in zip(self.features, codes, strict=True):
            if code == MISSING:
                members[feature.name] = None
            elif isinstance(feature, CategoricalFeature):
                members[feature.name] = feature.values[code]
            else:
                members[feature.name] = place_text(code, feature.low, feature.high, self.levels)
        return members

    def table_codes(self, table: pa.Table) -> IntArray:
        """Encode a table with a column for each feature, int64[n, p]. Raises InvalidTable, InvalidRows."""
        columns = [self._column(feature, table[feature.name]) for feature in self.features]
        return np.stack(columns, axis=1) if columns else np.zeros((table.num_rows, 0), np.int64)

    def check(self, table: pa.Table) -> None:
        """Check a table. Raises as `table_codes`, and InvalidTable if values are listed for what must have been meant
        as a range.

        That is a column of numbers with none of the values, or with more distinct ones than a list holds and few
        listed.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        codes = self.table_codes(table)
        for j, feature in enumerate(self.features):
            column = table[feature.name]
            if isinstance(feature, NumericFeature) or not (
                pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
            ):
                continue
            numbers = pc.drop_null(pc.cast(column, pa.float64(), safe=False))
            numbers = numbers.filter(pc.invert(pc.is_nan(numbers)))
            different, listed = pc.count_distinct(numbers).as_py(), int((codes[:, j] != MISSING).sum())
            if different and (not listed or (different > MOST_VALUES and listed * FEW < len(numbers))):
                raise InvalidTable(
                    f"The column '{feature.name}' holds numbers, {'few' if listed else 'none'} of them among the "
                    f"feature's listed values. A number has a range instead: --feature {feature.name}=LO:HI on the "
                    'command line, "range": [LO, HI] in JSON. Codes that are no quantities may be listed, or sent as '
                    "texts."
                )

    def _column(self, feature: Feature, column: Any) -> IntArray:
        if isinstance(feature, NumericFeature):
            return feature.codes(_numbers(column, feature.name), self.levels)
        places = {value: i for i, value in enumerate(feature.values)}
        coded = column.combine_chunks().dictionary_encode()
        if hasattr(coded, "chunks"):
            coded = coded.combine_chunks()
        texts = [category_text(value, feature.name) for value in coded.dictionary.to_pylist()]
        of = np.array([*(places.get(text, MISSING) if text is not None else MISSING for text in texts), MISSING])
        indices = coded.indices.fill_null(len(texts)).to_numpy(zero_copy_only=False)
        return np.asarray(of[indices], np.int64)


def _feature(item: Mapping[str, Any]) -> Feature:
    name = item["name"]
    if not name.isprintable():
        raise InvalidInput("The name of a feature is printable characters.")
    if "range" in item:
        low, high = (_end(end, name) for end in item["range"])
        if not float(low) < float(high):
            raise InvalidInput(f"The lower end of feature '{name}' must lie below its upper end.")
        return NumericFeature(name, low, high)
    texts = [category_text(value, name) for value in item["values"]]
    if len(set(texts)) != len(texts):
        raise InvalidInput(f"The values of feature '{name}' are different texts or whole numbers.")
    return CategoricalFeature(name, tuple(text for text in texts if text is not None))


def _end(value: object, name: str) -> str:
    try:
        number = decimal_of(value)
    except BadSpelling:
        number = Decimal("NaN")
    if not number.is_finite() or abs(number) > Decimal(LARGEST):
        raise InvalidInput(f"The ends of feature '{name}' are decimal numbers, at most 10^100.")
    text = format(number.normalize() + 0, "f")  # without an exponent, and no negative zero
    if len(text) > MOST_TEXT:
        raise InvalidInput(f"The ends of feature '{name}' have too many digits.")
    return text


def _number(value: Any) -> float | None:
    """Parse a float, NaN for a missing value, None if it is not a number. -0 is 0 by the rounding to levels."""
    if value is None:
        return math.nan
    if isinstance(value, str):
        text = value.strip()
        if text.lower() == "nan":
            return math.nan
        return float(text) if len(value) <= MOST_TEXT and _DIGITS.fullmatch(text) else None
    if type(value) not in (int, float):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _numbers(column: Any, name: str) -> npt.NDArray[np.float64]:
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        values = np.asarray(pc.fill_null(pc.cast(column, pa.float64(), safe=False), float("nan")), np.float64)
        bad = np.zeros(len(values), bool)
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        numbers = [_number(None if text is None or not text.strip() else text) for text in column.to_pylist()]
        bad = np.array([number is None for number in numbers], bool)
        values = np.array([math.nan if number is None else number for number in numbers], np.float64)
    elif pa.types.is_null(kind):
        return np.full(len(column), np.nan)
    else:
        raise InvalidTable(f"The column '{name}' of features must hold numbers; it holds {kind}.")
    if bad.any():
        rows = np.flatnonzero(bad)
        raise InvalidRows([RowProblem(int(i), name, NUMBER) for i in rows[: InvalidRows.shown]], len(rows))
    if np.isinf(values).any():
        rows = np.flatnonzero(np.isinf(values))
        raise InvalidRows([RowProblem(int(i), name, FINITE) for i in rows[: InvalidRows.shown]], len(rows))
    return values
