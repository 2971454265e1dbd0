"""A histogram of labels by cells that are public; what leaves a task is one count a cell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from label_dp.spark.task import SparkTask
from labels_party.spark.executor.slices import SlicedLabels


@dataclass(frozen=True, eq=False)
class Counting(SparkTask):
    """`starts` int64[g] rise from 0: the first position of each cell of the k positions."""

    columns: ClassVar[dict[str, str]] = {"number": "long", "counts": "binary"}
    labels: SlicedLabels
    starts: npt.NDArray[np.int64]
    k: int

    def one(self, number: int) -> dict[str, Any]:
        """`counts`: int64[g], little-endian."""
        cells, g = np.diff(self.starts, append=self.k), self.starts.size
        cell_of = np.repeat(np.arange(g), cells)
        counts = np.zeros(g, np.int64)
        for index in self.labels.positions(number):
            counts += np.bincount(cell_of[index], minlength=g)
        return {"number": number, "counts": counts.astype("<i8").tobytes()}
