"""A step function of two whole numbers that falls in neither: the result of a private isotonic regression on a grid."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from label_dp.companions.maps import monotone
from label_dp.errors import InvalidInput
from label_dp.schemas.json_types import JsonObject

FloatArray = npt.NDArray[np.float64]
Sizes = tuple[int, int]
Breakpoints = tuple[monotone.IntArray, monotone.IntArray]


@dataclass(frozen=True, eq=False)
class MonotoneGrid:
    """Function f on pairs of 0 … x_sizes[0] − 1 and 0 … x_sizes[1] − 1, constant on a × b cells.

    It is `values[i, j]` if the first is in piece i of breakpoints[0], the second in piece j of breakpoints[1], cut as
    `MonotoneMap` is. `breakpoints` int64[a − 1] and int64[b − 1] rise strictly within their domains, `values`
    float64[a, b] is finite and falls along neither axis; at most 2¹⁶ cells. Raises InvalidInput.
    """

    x_sizes: Sizes
    breakpoints: Breakpoints
    values: FloatArray

    def __post_init__(self) -> None:
        first, second = (
            monotone.checked_breakpoints(b, size) for b, size in zip(self.breakpoints, self.x_sizes, strict=True)
        )
        values = np.array(self.values, np.float64)
        if values.shape != (first.size + 1, second.size + 1) or values.size > monotone.MAX_PIECES:
            raise InvalidInput(
                f"A monotone grid has one value for every cell, and at most {monotone.MAX_PIECES} cells."
            )
        finite = bool(np.all(np.isfinite(values)))
        if not finite or np.any(np.diff(values, axis=0) < 0) or np.any(np.diff(values, axis=1) < 0):
            raise InvalidInput("The values of a monotone grid are finite and fall along neither axis.")
        for array in (first, second, values):
            array.setflags(write=False)
        object.__setattr__(self, "breakpoints", (first, second))
        object.__setattr__(self, "values", values)

    def apply(
        self, first: npt.NDArray[np.integer[npt.NBitBase]], second: npt.NDArray[np.integer[npt.NBitBase]]
    ) -> FloatArray:
        """Evaluate f at pairs of whole numbers of the domains, two columns of one length: float64[n]. Raises
        InvalidInput."""
        if np.shape(first) != np.shape(second):
            raise InvalidInput("A monotone grid is applied to two columns of one length.")
        i, j = (
            monotone.piece_of(x, b, size)
            for x, b, size in zip((first, second), self.breakpoints, self.x_sizes, strict=True)
        )
        return self.values[i, j]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MonotoneGrid) and self.as_json() == other.as_json()

    def __hash__(self) -> int:
        return hash((self.x_sizes, *(b.tobytes() for b in self.breakpoints), self.values.tobytes()))

    def as_json(self) -> JsonObject:
        """Serialize for canonical JSON: values by rows of the first axis, in the spelling of `MonotoneMap`."""
        return {
            "kind": "grid",
            "x_sizes": list(self.x_sizes),
            "breakpoints": [b.tolist() for b in self.breakpoints],
            "values": [[repr(v) for v in row] for row in self.values.tolist()],
        }

    @classmethod
    def from_json(cls, data: object) -> MonotoneGrid:
        """Parse the output of `as_json`; anything else, also another spelling of the same map, raises InvalidInput."""
        if not isinstance(data, dict) or set(data) != {"kind", "x_sizes", "breakpoints", "values"}:
            raise InvalidInput("A monotone grid has the members kind, x_sizes, breakpoints and values.")
        if data["kind"] != "grid":
            raise InvalidInput("A monotone map of two numbers is of kind 'grid'.")
        sizes, breakpoints, rows = data["x_sizes"], data["breakpoints"], data["values"]
        if any(not isinstance(pair, list) or len(pair) != 2 for pair in (sizes, breakpoints)):
            raise InvalidInput("A monotone grid has two domains, and a list of breakpoints for each.")
        if not isinstance(rows, list) or not rows or any(not isinstance(row, list) for row in rows):
            raise InvalidInput("The values of a monotone grid are a list of rows.")
        wide = len(rows[0])
        if len(rows) * wide > monotone.MAX_PIECES or any(len(row) != wide for row in rows):
            raise InvalidInput(
                f"The rows of a monotone grid are of one length, and have at most {monotone.MAX_PIECES} values."
            )
        values = np.array([[monotone.read_value(v) for v in row] for row in rows], np.float64)
        first, second = (monotone.read_breakpoints(b) for b in breakpoints)
        return cls((sizes[0], sizes[1]), (first, second), values)
