"""Strict grammar of a channel in a signed document: every number is text, and has one spelling."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal

import numpy as np
import numpy.typing as npt

from label_dp.channels.base import FloatArray, IntArray, N
from label_dp.errors import MalformedManifest
from label_dp.numbers import decimal_of
from label_dp.privacy import Epsilon

Members = Mapping[str, object]
MAX_OUTPUTS = 1 << 16

_INTEGER = re.compile(r"0|[1-9][0-9]{0,399}", re.ASCII)
_FLOAT = re.compile(r"-?[0-9]{1,30}(\.[0-9]{1,30})?(e[+-]?[0-9]{1,3})?", re.ASCII)
_DECIMAL = re.compile(r"-?(0|[1-9][0-9]{0,39})(\.[0-9]{1,40})?", re.ASCII)


def malformed(what: str) -> MalformedManifest:
    """Return the error of a malformed channel."""
    return MalformedManifest(f"The channel in the manifest is malformed: {what}.")


def integer(value: object) -> int:
    """Parse a canonical decimal integer. Raises MalformedManifest."""
    if not isinstance(value, str) or _INTEGER.fullmatch(value) is None:
        raise malformed("a weight is not a canonical decimal integer")
    return int(value)


def real(value: object) -> float:
    """Parse a finite float in its shortest spelling. Raises MalformedManifest."""
    if not isinstance(value, str) or _FLOAT.fullmatch(value) is None or repr(float(value)) != value:
        raise malformed("a value is not the shortest decimal form of a finite 64-bit float")
    return float(value)


def decimal(value: object) -> Decimal:
    """Parse a decimal number. Raises MalformedManifest."""
    if not isinstance(value, str) or _DECIMAL.fullmatch(value) is None:
        raise malformed("an end of the clipping is not a decimal number")
    return decimal_of(value)


def epsilon(value: object) -> Epsilon:
    """Parse a canonical ε. Raises MalformedManifest."""
    if not isinstance(value, str) or _DECIMAL.fullmatch(value) is None or str(parsed := Epsilon.parse(value)) != value:
        raise malformed("the ε of its noise is not a canonical decimal number")
    return parsed


def items(value: object, least: int, most: int) -> list[object]:
    """Return a list of `least` to `most` members. Raises MalformedManifest."""
    if not isinstance(value, list) or not least <= len(value) <= most:
        raise malformed("a list is missing or has a wrong number of members")
    return value


def reals(value: object, count: int | None = None) -> FloatArray:
    """Parse float64[count], by default of 1 to MAX_OUTPUTS numbers."""
    values = items(value, 1 if count is None else count, MAX_OUTPUTS if count is None else count)
    return np.array([real(v) for v in values])


def positions(value: object, least: int, most: int, end: int) -> IntArray:
    """Parse whole numbers from 0 to `end`, int64."""
    values = [integer(v) for v in items(value, least, most)]
    if max(values) > end:
        raise malformed("a position lies outside the domain")
    return np.array(values, np.int64)


def weight_rows(value: object, rows: int, columns: int, most: int) -> npt.NDArray[np.uint64]:
    """Parse uint64[rows, columns], at most `most` weights."""
    if rows * columns > most:
        raise malformed("it has too many weights")
    weights = [[integer(w) for w in items(row, columns, columns)] for row in items(value, rows, rows)]
    if any(w >= N for row in weights for w in row):
        raise malformed("a weight is not below 2⁶⁴")
    return np.array(weights, dtype=np.uint64)
