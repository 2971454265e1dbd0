"""A calibration's map as ONNX nodes: the number of a score, the piece it lies in, and the piece's value or line."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import TensorProto

from label_dp.companions.maps.score_maps import ScoreMap, cuts_of
from label_dp.companions.maps.scores import ScoreGrid

FloatArray = npt.NDArray[np.float64]
AT_ONCE = 256  # a score is compared with so many cuts in one step


def mapped(graph: Any, score: str, found: ScoreMap) -> str:
    """float64 [n, 1] of float64 [n, 1], as `ScoreMap.apply`."""
    values, breakpoints = found.map.values, found.map.breakpoints
    if not breakpoints.size:
        return str(graph.add("Expand", graph.constant([[values[0]]], np.float64), graph.add("Shape", score)))
    if found.interpolate:
        return _lines(graph, score, cuts_of(found.grid, breakpoints), values)
    if found.grid.steps is None:  # numbers of 32-bit floats are in their order, so these are compared themselves
        number, cuts = _rounded(graph, score), cuts_of(found.grid, breakpoints)
    else:
        number, cuts = _place(graph, score, found.grid), breakpoints.astype(np.float64)
    return str(graph.add("Gather", graph.constant(values, np.float64), _pieces(graph, number, cuts)))


def _lines(graph: Any, score: str, cuts: FloatArray, values: FloatArray) -> str:
    """Through the middles between values at the cuts; constant outside (`label_dp.companions.kinds.calibration`)."""
    middles = values[:-1] + np.diff(values) / 2
    ends = values[0] + (middles[0] - values[0]) / 2, middles[-1] + (values[-1] - middles[-1]) / 2
    gaps = np.diff(cuts)
    slope = np.divide(
        np.diff(middles), gaps, out=np.zeros(len(gaps)), where=gaps > 0
    )  # between equal cuts lies nothing
    piece = _pieces(graph, score, cuts)

    def of_piece(first: float, inside: FloatArray, last: float) -> str:
        return str(graph.add("Gather", graph.constant([first, *inside, last], np.float64), piece))

    beyond = graph.add("Sub", score, of_piece(0.0, cuts[:-1], 0.0))
    rise = graph.add("Mul", of_piece(0.0, slope, 0.0), beyond)
    return str(graph.add("Add", rise, of_piece(ends[0], middles[:-1], ends[1])))


def _rounded(graph: Any, score: str) -> str:
    most = float(np.finfo(np.float32).max)
    return str(graph.cast(graph.cast(graph.clip(score, -most, most), TensorProto.FLOAT), TensorProto.DOUBLE))


def _place(graph: Any, score: str, grid: ScoreGrid) -> str:
    low, high, steps = float(str(grid.low)), float(str(grid.high)), int(grid.steps or 1)
    above = graph.add("Sub", graph.clip(score, low, high), graph.constant(low, np.float64))
    place = graph.add("Floor", graph.add("Mul", above, graph.constant(steps / (high - low), np.float64)))
    return str(graph.clip(place, 0.0, float(steps - 1)))


def _pieces(graph: Any, value: str, cuts: FloatArray) -> str:
    """int64 [n, 1]: how many of the rising `cuts` are at most `value`. Many are searched in two steps, so that a row
    takes memory for about twice the square root of their number."""
    if len(cuts) <= AT_ONCE:
        return _reached(graph, value, graph.constant([cuts], np.float64))
    width = math.isqrt(len(cuts) - 1) + 1
    rows = -(-len(cuts) // width)
    blocks = np.append(cuts, np.full(rows * width - len(cuts), np.inf)).reshape(rows, width)
    before = graph.whole("Sub", _reached(graph, value, graph.constant([blocks[:, 0]], np.float64)), 1)
    row = graph.add("Max", before, graph.constant(0, np.int64))
    found = graph.add("Gather", graph.constant(blocks, np.float64), row)
    inside = _reached(graph, value, graph.add("Squeeze", found, graph.constant([1], np.int64)))
    return str(graph.add("Add", graph.whole("Mul", row, width), inside))


def _reached(graph: Any, value: str, cuts: str) -> str:
    reached = graph.cast(graph.add("GreaterOrEqual", value, cuts), TensorProto.INT64)
    return str(graph.add("ReduceSum", reached, graph.constant([1], np.int64), keepdims=1))
