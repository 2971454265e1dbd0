"""Loss curves of a training while it runs: what its learners say of themselves, one curve for each thing fitted.

Losses are those of corrected labels, noise and all: they show whether a training goes on, not how good its model is.
"""

from __future__ import annotations

import re
from typing import Any

MOST_CURVES = 4
MOST_POINTS = 120
COUNTED = re.compile(r"(?:(?:^|, )(?:tree|epoch) \d+ of \d+)?(?:, about [\w ]+ left)?$")


class Losses:
    """`heard` what is being fitted, `watch` its loss after so many trees or epochs; the last MOST_CURVES are kept."""

    def __init__(self) -> None:
        self._what = ""
        self._curves: dict[str, list[list[float]]] = {}
        self._every: dict[str, int] = {}

    def heard(self, step: str) -> None:
        self._what = COUNTED.sub("", step) or "model"

    def watch(self, place: int, loss: float) -> None:
        points = self._curves.setdefault(self._what, [])
        if points and place <= points[-1][0]:  # another one of the same name begins
            points.clear()
            self._every[self._what] = 1
        if place % self._every.setdefault(self._what, 1) and place > 1:
            return
        points.append([place, float(f"{loss:.6g}")])
        if len(points) > MOST_POINTS:
            del points[1::2]
            self._every[self._what] *= 2
        while len(self._curves) > MOST_CURVES:
            del self._curves[next(iter(self._curves))]

    def as_json(self) -> list[dict[str, Any]]:
        return [{"name": name, "points": [*points]} for name, points in self._curves.items() if points]
