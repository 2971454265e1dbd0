"""Strict parsers for parts of a model's JSON: each returns the value it names or raises ValueError."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

FLOAT32 = float(np.finfo(np.float32).max)
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


def number(value: Any, low: float = -math.inf, high: float = math.inf) -> float:
    """Parse a finite JSON number from `low` to `high`."""
    if type(value) not in (int, float) or not math.isfinite(value) or not low <= value <= high:
        raise ValueError("a number of the model is none, or out of its range")
    return float(value)


def whole(value: Any, low: int, high: int) -> int:
    """Parse a whole JSON number from `low` to `high`, both included."""
    if type(value) is not int or not low <= value <= high:
        raise ValueError("a whole number of the model is none, or out of its range")
    return value


def text(value: Any) -> str:
    """Return a text. Raises ValueError."""
    if type(value) is not str:
        raise ValueError("a text of the model is none")
    return value


def listed(value: Any, size: int | None = None) -> list[Any]:
    """Return a list, of `size` members if given. Raises ValueError."""
    if type(value) is not list or (size is not None and len(value) != size):
        raise ValueError("a list of the model is none, or has another length")
    return value


def numbers(value: Any, size: int | None = None, most: float = math.inf) -> FloatArray:
    """Parse float64[size] of finite numbers of absolute value at most `most`."""
    if not {type(one) for one in listed(value, size)} <= {int, float}:
        raise ValueError("a list of numbers has something else in it")
    array = np.array(value, np.float64)
    if not np.all(np.isfinite(array)) or np.any(np.abs(array) > most):
        raise ValueError("a number of the model is not finite, or too large")
    return array


def wholes(value: Any, low: int, high: int, size: int | None = None) -> IntArray:
    """Parse int64[size] of whole numbers from `low` to `high`, both included."""
    if not {type(one) for one in listed(value, size)} <= {int}:
        raise ValueError("a list of whole numbers has something else in it")
    if value and not low <= min(value) <= max(value) <= high:
        raise ValueError("a whole number of the model is out of its range")
    return np.array(value, np.int64)
