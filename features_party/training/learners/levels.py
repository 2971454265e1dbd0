"""Features as a few levels each: quantile bins of numbers, values of categories. Input of the additive model."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from features_party.training import reading
from features_party.training.encoding import Float32
from features_party.training.learner import Graph, ModelInput, Ports
from label_dp.schemas.json_types import JsonObject

FloatArray = npt.NDArray[np.float64]
Places = npt.NDArray[np.uint8]

BINS = 24  # of a number; one with fewer values has a level for each
MOST_LEVELS = 256  # a level is stored in a byte
MOST = 1 << 31
ONE_BY_ONE = 64  # categories with more values than this enter as numbers: their out-of-fold effects


@dataclass(frozen=True)
class Feature:
    """One input: a number (a column of the encoded numbers, or the effect of a large category) or a small category.

    Level 0 is missing. `edges` float64[bins − 1] of an ordered feature; a category has `values` levels besides.
    """

    source: str  # number, effect or category
    at: int
    edges: tuple[float, ...] = ()
    values: int = 0

    @property
    def ordered(self) -> bool:
        return self.source != "category"

    @property
    def size(self) -> int:
        return len(self.edges) + 2 if self.ordered else self.values + 1

    def places(self, inputs: ModelInput) -> Places:
        """Return the level of each row, uint8[n]."""
        encoded = inputs.encoded
        if not self.ordered:
            return np.asarray(encoded.codes[:, self.at] + 1, dtype=np.uint8)
        column = (encoded.numbers if self.source == "number" else inputs.effects)[:, self.at]
        level = np.searchsorted(np.array(self.edges, dtype=np.float32), column, side="right").astype(
            np.uint8
        ) + np.uint8(1)
        level[np.isnan(column)] = 0
        return level

    def nodes(self, graph: Graph, ports: Ports) -> str:
        """Add the level of each row, int64 [n, 1], as nodes of an ONNX graph."""
        if not self.ordered:
            return ports.index[self.at]
        value = ports.numbers[self.at] if self.source == "number" else ports.effect(graph, self.at)
        missing, nothing = graph.add("IsNaN", value), graph.constant(0, np.int64)
        if not self.edges:
            return graph.add("Where", missing, nothing, graph.constant(1, np.int64))
        above = graph.add("GreaterOrEqual", value, graph.constant([self.edges], np.float32))
        passed = graph.add("ReduceSum", graph.int64(above), graph.constant([1], np.int64), keepdims=1)
        return graph.add("Where", missing, nothing, graph.whole("Add", passed, 1))

    def as_json(self) -> JsonObject:
        return {"source": self.source, "at": self.at, "edges": list(self.edges), "values": self.values}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Feature:
        """Parse the output of `as_json`. Raises KeyError, TypeError or ValueError for anything else."""
        if data["source"] not in ("number", "effect", "category"):
            raise ValueError("a feature has no known source")
        edges = tuple(reading.numbers(data["edges"]).tolist())
        if any(b <= a for a, b in itertools.pairwise(edges)):
            raise ValueError("the edges of a feature do not rise")
        feature = cls(data["source"], reading.whole(data["at"], 0, MOST), edges, reading.whole(data["values"], 0, MOST))
        if feature.size > MOST_LEVELS or (edges and not feature.ordered) or (feature.values and feature.ordered):
            raise ValueError("a feature has other levels than its kind can have")
        return feature

    def check(self, numbers: int, sizes: list[int]) -> None:
        """Raise ValueError unless it fits this number of numbers and categories of these sizes, missing included."""
        if self.at >= (numbers if self.source == "number" else len(sizes)):
            raise ValueError("a feature is of a column that is not there")
        if not self.ordered and self.size != sizes[self.at]:
            raise ValueError("a feature has another number of values than its column")


def learn_features(inputs: ModelInput, numbers: int | None = None, bins: int = BINS) -> list[Feature]:
    """Learn the inputs that vary among these rows; of the encoded numbers the first `numbers` (None: all)."""
    encoded, effects, sizes = inputs.encoded, inputs.effects, inputs.sizes
    columns = [("number", at, encoded.numbers[:, at]) for at in range(encoded.numbers.shape[1])[:numbers]]
    columns += [("effect", at, effects[:, at]) for at, size in enumerate(sizes) if size > ONE_BY_ONE]
    features = [
        Feature(source, at, edges)
        for source, at, column in columns
        if (edges := _edges(column, bins)) or (np.isnan(column).any() and not np.isnan(column).all())
    ]
    features += [Feature("category", at, values=size - 1) for at, size in enumerate(sizes) if 1 < size <= ONE_BY_ONE]
    return features


def _edges(column: Float32, bins: int) -> tuple[float, ...]:
    present = column[~np.isnan(column)]
    values = np.unique(present)
    if len(values) < 2:
        return ()
    if len(values) <= bins:
        # a value belongs to the bin that it starts, so an edge may be a value
        return tuple(float(v) for v in values[1:])
    cuts = np.unique(np.quantile(present, np.linspace(0.0, 1.0, bins + 1)[1:-1]).astype(np.float32))
    return tuple(float(cut) for cut in cuts if cut > values[0])
