"""A monotone step function over a public domain of whole numbers: what a private isotonic regression answers with."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shared.errors import InvalidInput

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

MAX_X_SIZE = 1 << 32
MAX_PIECES = 1 << 16
_NUMBER = re.compile(r"-?[0-9]{1,40}(\.[0-9]{1,40})?(e[+-]?[0-9]{1,3})?")


@dataclass(frozen=True, eq=False)
class MonotoneMap:
    """f on 0 … x_size − 1, constant on pieces: `values[j]` for breakpoints[j − 1] ≤ x < breakpoints[j].

    `breakpoints` int64[d − 1] rises strictly within 1 … x_size − 1, `values` float64[d] is finite and never falls;
    at most 2¹⁶ pieces, x_size at most 2³². Raises InvalidInput.
    """

    x_size: int
    breakpoints: IntArray
    values: FloatArray

    def __post_init__(self) -> None:
        if type(self.x_size) is not int or not 1 <= self.x_size <= MAX_X_SIZE:
            raise InvalidInput("The domain of a monotone map has between 1 and 2³² points.")
        breakpoints, values = np.asarray(self.breakpoints), np.asarray(self.values)
        if breakpoints.size and breakpoints.dtype.kind not in "iu":
            raise InvalidInput("The breakpoints of a monotone map are whole numbers.")
        breakpoints, values = breakpoints.astype(np.int64), values.astype(np.float64)
        if breakpoints.ndim != 1 or values.shape != (breakpoints.size + 1,) or values.size > MAX_PIECES:
            raise InvalidInput(f"A monotone map has one value more than breakpoints, and at most {MAX_PIECES} values.")
        inside = breakpoints.size == 0 or 1 <= breakpoints[0] <= breakpoints[-1] < self.x_size
        if not inside or np.any(np.diff(breakpoints) < 1):
            raise InvalidInput("The breakpoints of a monotone map rise strictly within its domain.")
        if not np.all(np.isfinite(values)) or np.any(np.diff(values) < 0):
            raise InvalidInput("The values of a monotone map are finite and never fall.")
        for name, array in (("breakpoints", breakpoints), ("values", values)):
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    def apply(self, x: npt.NDArray[np.integer[npt.NBitBase]]) -> FloatArray:
        """float64[n]: f(x) for whole numbers x of the domain. Raises InvalidInput."""
        x = np.asarray(x)
        if x.size == 0:
            return np.empty(x.shape, np.float64)
        if x.dtype.kind not in "iu" or int(x.min()) < 0 or int(x.max()) >= self.x_size:
            raise InvalidInput(f"A monotone map is applied to whole numbers from 0 to {self.x_size - 1}.")
        return self.values[np.searchsorted(self.breakpoints, x.astype(np.int64), side="right")]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MonotoneMap) and self.as_json() == other.as_json()

    def __hash__(self) -> int:
        return hash((self.x_size, self.breakpoints.tobytes(), self.values.tobytes()))

    def as_json(self) -> dict[str, object]:
        """For canonical JSON: values are the shortest decimals that give back the same 64-bit floats."""
        return {
            "kind": "step",
            "x_size": self.x_size,
            "breakpoints": self.breakpoints.tolist(),
            "values": [repr(v) for v in self.values.tolist()],
        }

    @classmethod
    def from_json(cls, data: object) -> MonotoneMap:
        """From `as_json`; anything else, also another spelling of the same map, raises InvalidInput."""
        if not isinstance(data, dict) or set(data) != {"kind", "x_size", "breakpoints", "values"}:
            raise InvalidInput("A monotone map has the members kind, x_size, breakpoints and values.")
        if data["kind"] != "step":
            raise InvalidInput("This reader knows monotone maps of kind 'step' only.")
        breakpoints, values = data["breakpoints"], data["values"]
        if not isinstance(breakpoints, list) or not isinstance(values, list) or len(values) > MAX_PIECES:
            raise InvalidInput(f"A monotone map lists its breakpoints and at most {MAX_PIECES} values.")
        if len(breakpoints) >= MAX_PIECES or any(type(b) is not int or not 0 < b < MAX_X_SIZE for b in breakpoints):
            raise InvalidInput("The breakpoints of a monotone map are whole numbers of its domain.")
        return cls(data["x_size"], np.array(breakpoints, np.int64), np.array([_value(v) for v in values], np.float64))


def _value(text: object) -> float:
    if not isinstance(text, str) or _NUMBER.fullmatch(text) is None:
        raise InvalidInput("The values of a monotone map are decimal strings.")
    value = float(text)
    if not math.isfinite(value) or repr(value) != text:
        raise InvalidInput("The values of a monotone map are finite and in their shortest spelling.")
    return value
