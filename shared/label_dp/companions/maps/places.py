"""Features with public ranges or values as whole places, in one arithmetic for fitting and for applying."""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from label_dp.errors import InvalidInput

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    IntArray = npt.NDArray[np.int64]

MISSING = -1  # the place of a missing value
MOST_TEXT = 200


def number_places(values: npt.NDArray[np.float64], low: float, high: float, levels: int) -> IntArray:
    """Map float64[n] between `low` and `high` to places int64[n] in 0 … `levels`; values outside go to the ends, NaN to
    MISSING."""
    import numpy as np

    missing = np.isnan(values)
    share = (np.clip(np.where(missing, low, values), low, high) - low) / (high - low)
    return np.where(missing, MISSING, np.floor(np.clip(share, 0.0, 1.0) * levels + 0.5)).astype(np.int64)


def number_text(value: float | Fraction) -> str:
    """Format `value` as a plain decimal of 64-bit float precision."""
    return format(Decimal(repr(float(value))).normalize() + 0, "f")


def place_text(place: int, low: str, high: str, levels: int) -> str:
    """Format the number at a place, as a decimal."""
    return number_text(float(low) + (float(high) - float(low)) * (place / levels))


def category_text(value: Any, name: str) -> str | None:
    """Return the one spelling of a category: 3, 3.0 and "3" are the same; None is missing. Raises InvalidInput."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, str) and len(value) <= MOST_TEXT:
        return value
    if type(value) is int and abs(value) < 1 << 64:
        return str(value)
    if isinstance(value, float) and math.isfinite(value):
        return str(int(value)) if value == int(value) else repr(value)
    raise InvalidInput(f"The feature '{name}' must be a text of at most {MOST_TEXT} characters or a number, or null.")


def feature_places(feature: Mapping[str, Any], columns: Mapping[str, Any], levels: int) -> IntArray:
    """Map a declared feature's column to places int64[m] in the range, or among the values. Raises InvalidInput."""
    import numpy as np

    name = feature["name"]
    if name not in columns:
        raise InvalidInput(f"The table has no column '{name}'.")
    cells = list(columns[name])
    if "values" in feature:
        of = {value: place for place, value in enumerate(feature["values"])}
        texts = (category_text(value, name) for value in cells)
        return np.array([MISSING if text is None else of.get(text, MISSING) for text in texts], np.int64)
    try:
        numbers = np.array([math.nan if value is None else float(value) for value in cells], np.float64)
    except (TypeError, ValueError):
        raise InvalidInput(f"The column '{name}' must hold numbers.") from None
    low, high = (float(end) for end in feature["range"])
    return number_places(numbers, low, high, levels)
