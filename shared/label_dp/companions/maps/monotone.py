"""A monotone step function over a public domain of whole numbers: the result of a private isotonic regression."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from label_dp.errors import InvalidInput
from label_dp.schemas.json_types import JsonObject

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

MAX_X_SIZE = 1 << 32
MAX_PIECES = 1 << 16
_NUMBER = re.compile(r"-?[0-9]{1,40}(\.[0-9]{1,40})?(e[+-]?[0-9]{1,3})?")


@dataclass(frozen=True, eq=False)
class MonotoneMap:
    """Function f on 0 … x_size − 1, constant on pieces: `values[j]` for breakpoints[j − 1] ≤ x < breakpoints[j].

    `breakpoints` int64[d − 1] rises strictly within 1 … x_size − 1, `values` float64[d] is finite and never falls; at
    most 2¹⁶ pieces, x_size at most 2³². Raises InvalidInput.
    """

    x_size: int
    breakpoints: IntArray
    values: FloatArray

    def __post_init__(self) -> None:
        breakpoints, values = checked_breakpoints(self.breakpoints, self.x_size), np.asarray(self.values, np.float64)
        if values.shape != (breakpoints.size + 1,) or values.size > MAX_PIECES:
            raise InvalidInput(f"A monotone map has one value more than breakpoints, and at most {MAX_PIECES} values.")
        if not np.all(np.isfinite(values)) or np.any(np.diff(values) < 0):
            raise InvalidInput("The values of a monotone map are finite and never fall.")
        for name, array in (("breakpoints", breakpoints), ("values", values)):
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    def apply(self, x: npt.NDArray[np.integer[npt.NBitBase]]) -> FloatArray:
        """Evaluate f(x) for whole numbers x of the domain, float64[n]. Raises InvalidInput."""
        return self.values[piece_of(x, self.breakpoints, self.x_size)]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MonotoneMap) and self.as_json() == other.as_json()

    def __hash__(self) -> int:
        return hash((self.x_size, self.breakpoints.tobytes(), self.values.tobytes()))

    def as_json(self) -> JsonObject:
        """Serialize for canonical JSON: values are the shortest decimals that give back the same 64-bit floats."""
        return {
            "kind": "step",
            "x_size": self.x_size,
            "breakpoints": self.breakpoints.tolist(),
            "values": [repr(v) for v in self.values.tolist()],
        }

    @classmethod
    def from_json(cls, data: object) -> MonotoneMap:
        """Parse the output of `as_json`; anything else, also another spelling of the same map, raises InvalidInput."""
        if not isinstance(data, dict) or set(data) != {"kind", "x_size", "breakpoints", "values"}:
            raise InvalidInput("A monotone map has the members kind, x_size, breakpoints and values.")
        if data["kind"] != "step":
            raise InvalidInput("This reader knows monotone maps of kind 'step' only.")
        values = data["values"]
        if not isinstance(values, list) or len(values) > MAX_PIECES:
            raise InvalidInput(f"A monotone map lists at most {MAX_PIECES} values.")
        return cls(
            data["x_size"], read_breakpoints(data["breakpoints"]), np.array([read_value(v) for v in values], np.float64)
        )


def checked_breakpoints(breakpoints: npt.ArrayLike, x_size: int) -> IntArray:
    """Check breakpoints int64[d − 1], which rise strictly within 1 … x_size − 1. Raises InvalidInput."""
    if type(x_size) is not int or not 1 <= x_size <= MAX_X_SIZE:
        raise InvalidInput("The domain of a monotone map has between 1 and 2³² points.")
    array = np.asarray(breakpoints)
    if array.size and array.dtype.kind not in "iu":
        raise InvalidInput("The breakpoints of a monotone map are whole numbers.")
    array = array.astype(np.int64)
    if array.ndim != 1:
        raise InvalidInput("The breakpoints of a monotone map are a list.")
    if array.size and (not 1 <= array[0] <= array[-1] < x_size or np.any(np.diff(array) < 1)):
        raise InvalidInput("The breakpoints of a monotone map rise strictly within its domain.")
    return array


def piece_of(x: npt.NDArray[np.integer[npt.NBitBase]], breakpoints: IntArray, x_size: int) -> IntArray:
    """Return the number of the piece for whole numbers x of the domain, int64 of the shape of x. Raises
    InvalidInput."""
    x = np.asarray(x)
    if x.size and (x.dtype.kind not in "iu" or int(x.min()) < 0 or int(x.max()) >= x_size):
        raise InvalidInput(f"A monotone map is applied to whole numbers from 0 to {x_size - 1}.")
    return np.searchsorted(breakpoints, x.astype(np.int64), side="right").astype(np.int64)


def read_breakpoints(listed: object) -> IntArray:
    """Read breakpoints from JSON. Raises InvalidInput."""
    if not isinstance(listed, list) or len(listed) >= MAX_PIECES:
        raise InvalidInput(f"A monotone map lists its breakpoints, fewer than {MAX_PIECES}.")
    if any(type(b) is not int or not 0 < b < MAX_X_SIZE for b in listed):
        raise InvalidInput("The breakpoints of a monotone map are whole numbers of its domain.")
    return np.array(listed, np.int64)


def read_value(text: object) -> float:
    """Read a value from JSON, in its one spelling. Raises InvalidInput."""
    if not isinstance(text, str) or _NUMBER.fullmatch(text) is None:
        raise InvalidInput("The values of a monotone map are decimal strings.")
    value = float(text)
    if not math.isfinite(value) or repr(value) != text:
        raise InvalidInput("The values of a monotone map are finite and in their shortest spelling.")
    return value
