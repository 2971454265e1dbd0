"""Monotone maps of raw scores: the numbering of a score, or two, and the map of the numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from label_dp.companions.maps.monotone import MonotoneMap
from label_dp.companions.maps.monotone_grid import MonotoneGrid
from label_dp.companions.maps.scores import ScoreGrid
from label_dp.errors import MalformedAnswer
from label_dp.schemas.json_types import JsonObject

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ScoreMap:
    """Map f(score) = map(number of the score): never falls, and stays within the label domain.

    With `interpolate` the steps become straight lines, which is post-processing: a cut between two values is placed at
    the fit's crossing of the middle of them, so the line goes through the middles at the cuts; outside of the outer
    cuts it is constant, halfway from there to the outer value.
    """

    grid: ScoreGrid
    map: MonotoneMap
    interpolate: bool = False

    def apply(self, scores: FloatArray) -> FloatArray:
        """Map finite scores float64[n] to float64[n]. Raises InvalidInput."""
        numbers: Any = self.grid.index(scores)  # the kinds of whole numbers differ in name alone
        if not self.interpolate:
            return self.map.apply(numbers)
        return straight(cuts_of(self.grid, self.map.breakpoints), self.map.values, scores)

    def as_json(self) -> JsonObject:
        members: JsonObject = {"scores": str(self.grid), "map": self.map.as_json()}
        return members | {"interpolate": True} if self.interpolate else members

    @classmethod
    def from_json(cls, data: Any) -> ScoreMap:
        """Parse the output of `as_json`. Raises InvalidInput, KeyError or TypeError."""
        grid, monotone_map = ScoreGrid.parse(data["scores"]), MonotoneMap.from_json(data["map"])
        if monotone_map.x_size != grid.size:
            raise MalformedAnswer("The map is over another domain than that of the scores' numbers.")
        return cls(grid, monotone_map, data.get("interpolate") is True)


@dataclass(frozen=True)
class PairMap:
    """Map f(score, second score) = map(numbers of both): falls in neither, and stays within the label domain.

    With `interpolate` every cell's value counts by the product of the weights that straight lines (`ScoreMap`) give it
    along either score, which keeps both promises.
    """

    grids: tuple[ScoreGrid, ScoreGrid]
    map: MonotoneGrid
    interpolate: bool = False

    def apply(self, first: FloatArray, second: FloatArray) -> FloatArray:
        """Map finite scores float64[n] each to float64[n]. Raises InvalidInput."""
        numbers: Any = [grid.index(scores) for grid, scores in zip(self.grids, (first, second), strict=True)]
        steps = self.map.apply(*numbers)
        if not self.interpolate:
            return steps
        cuts = [cuts_of(grid, b) for grid, b in zip(self.grids, self.map.breakpoints, strict=True)]
        values, total = self.map.values, np.zeros(steps.shape)
        for i, one in enumerate(np.eye(len(values))):
            total += straight(cuts[0], one, first) * straight(cuts[1], values[i], second)
        return np.clip(total, values[0, 0], values[-1, -1])  # rounding may exceed it slightly


def cuts_of(grid: ScoreGrid, breakpoints: npt.NDArray[np.int64]) -> FloatArray:
    """Return the smallest scores at which pieces begin, except the first, float64[d − 1]."""
    return np.array([grid.score(int(b)) for b in breakpoints], np.float64)


def straight(cuts: FloatArray, values: FloatArray, scores: FloatArray) -> FloatArray:
    """Interpolate steps of `values` float64[d] at `cuts` by straight lines, see `ScoreMap`: float64[n]."""
    if not cuts.size:
        return np.full(np.shape(scores), values[0])
    middles = values[:-1] + np.diff(values) / 2
    inside = np.interp(scores, cuts, middles)
    ends = values[0] + (middles[0] - values[0]) / 2, middles[-1] + (values[-1] - middles[-1]) / 2
    return np.where(scores < cuts[0], ends[0], np.where(scores >= cuts[-1], ends[1], inside))
