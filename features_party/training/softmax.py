"""The softmax from class scores to probabilities, as data that is saved, read strictly and exported."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from features_party.training import reading
from features_party.training.links import MOST_LOGIT, Nodes
from label_dp.schemas.json_types import JsonObject

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Softmax:
    """Softmax p_c = e^(x_c) / Σ e^x with x_c = slope·f_c + shift_c, and scores f cut to ±30; a shift for each of k
    classes."""

    slope: float
    shifts: tuple[float, ...]

    def shares(self, score: npt.NDArray[np.floating]) -> FloatArray:
        """Map scores [n, k] to float64[n, k]; each row sums to 1."""
        cut = np.clip(score.astype(np.float64), -MOST_LOGIT, MOST_LOGIT)
        return np.asarray(softmax(self.slope * cut + np.array(self.shifts)), np.float64)

    def nodes(self, graph: Nodes, score: str) -> str:
        """Add float64 [n, k] of a score to an ONNX graph."""
        scaled = graph.add("Mul", graph.clip(score, -MOST_LOGIT, MOST_LOGIT), graph.constant(self.slope, np.float64))
        return graph.add("Softmax", graph.add("Add", scaled, graph.constant([self.shifts], np.float64)))

    def as_json(self) -> JsonObject:
        return {"slope": self.slope, "shifts": list(self.shifts)}

    @classmethod
    def from_json(cls, data: Any, classes: int) -> Softmax:
        """Parse the output of `as_json`. Raises KeyError, TypeError or ValueError."""
        shifts = reading.numbers(data["shifts"], classes, reading.FLOAT32)
        return cls(reading.number(data["slope"], 0.0, MOST_LOGIT), tuple(shifts.tolist()))


def softmax(logits: npt.NDArray[np.floating]) -> Any:
    """Apply the softmax to each row of [n, k], in the type of `logits`."""
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    powers /= powers.sum(axis=1, keepdims=True)
    return powers
