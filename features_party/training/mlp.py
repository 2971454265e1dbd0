"""The paper's network as a trained model: embeddings of categories, two hidden layers, one output. numpy only.

Training it needs PyTorch (training/mlp_fit.py); predicting does not: the weights are saved as base64 in JSON.

    category c  -> row of an embedding, EMBEDDING numbers; rare values share one row
    number      -> standardised, missing as the mean, with an indicator where it was missing in training
    x           -> relu(x W1 + b1) -> relu(. W2 + b2) -> . W3 + b3
    score       =  offset + scale * output; a prediction is the score, or e^score through `link`
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from features_party.training.encoding import Codes, Encoded, Float32
from features_party.training.objectives import PoissonScore

FloatArray = npt.NDArray[np.float64]
Int32 = npt.NDArray[np.int32]

EMBEDDING = 8
HIDDEN = (128, 64)
CHUNK_ROWS = 1 << 14
SMALLEST_SPREAD = 1e-12
LARGEST_NUMBER = 10.0  # standard deviations: a value far outside of the training range must not decide on its own


@dataclass(frozen=True)
class Inputs:
    """From encoded rows to what the network sees.

    `mean`, `spread` float64[p] of the numbers, spread 0 where one does not vary; `gaps` the numbers with an indicator;
    `rows[c]` int32[values + 1] is the embedding row of missing, then of each value of category c.
    """

    mean: FloatArray
    spread: FloatArray
    gaps: tuple[int, ...]
    rows: tuple[Int32, ...]

    @classmethod
    def learn(cls, encoded: Encoded, sizes: list[int], smallest_count: int) -> tuple[Inputs, int]:
        """And the number of embedding rows. `sizes[c]` counts the values of category c, missing included.

        Row c is the out-of-vocabulary item of category c: values, or missing, in fewer than `smallest_count` rows.
        """
        numbers = encoded.numbers
        present = np.isfinite(numbers)
        count = np.maximum(present.sum(axis=0), 1)
        mean = np.sum(numbers, axis=0, where=present, dtype=np.float64) / count
        spread = np.zeros(len(mean))
        for at in range(len(mean)):
            centred = numbers[present[:, at], at].astype(np.float64) - mean[at]
            spread[at] = np.sqrt(centred @ centred / count[at])
        spread[spread <= SMALLEST_SPREAD * (1.0 + np.abs(mean))] = 0.0
        gaps = tuple(int(at) for at in np.flatnonzero(~present.all(axis=0) & present.any(axis=0)))
        rows, used = [], len(sizes)
        for at, size in enumerate(sizes):
            frequent = np.bincount(encoded.codes[:, at] + 1, minlength=size) >= smallest_count
            rows.append(np.where(frequent, used + np.cumsum(frequent) - 1, at).astype(np.int32))
            used += int(frequent.sum())
        return cls(mean, spread, gaps, tuple(rows)), used

    @property
    def width(self) -> int:
        return len(self.mean) + len(self.gaps) + EMBEDDING * len(self.rows)

    def numbers(self, numbers: Float32) -> Float32:
        """float32[n, p + gaps]."""
        width = len(self.mean)
        scale = np.where(self.spread > 0.0, self.spread, np.inf)
        out = np.empty((len(numbers), width + len(self.gaps)), dtype=np.float32)
        for start in range(0, len(numbers), CHUNK_ROWS):
            part = slice(start, start + CHUNK_ROWS)
            present = np.isfinite(numbers[part])
            standard = np.where(present, (numbers[part] - self.mean) / scale, 0.0)
            out[part, :width] = np.clip(standard, -LARGEST_NUMBER, LARGEST_NUMBER)
            out[part, width:] = ~present[:, self.gaps]
        return out

    def looked_up(self, codes: Codes) -> Int32:
        """int32[n, c]: embedding rows of codes with -1 for missing."""
        out = np.empty(codes.shape, dtype=np.int32)
        for at, rows in enumerate(self.rows):
            out[:, at] = rows[codes[:, at] + 1]
        return out


@dataclass(frozen=True)
class Network:
    """float32 weights: `embedding` [rows, 8] and `layers` of ([inputs, outputs], [outputs]), trained for `epochs`."""

    inputs: Inputs
    embedding: Float32
    layers: tuple[tuple[Float32, Float32], ...]
    offset: float
    scale: float
    link: PoissonScore | None
    epochs: int

    def predict(self, encoded: Encoded) -> FloatArray:
        """float64[n], unclipped."""
        out = np.empty(len(encoded))
        for start in range(0, len(encoded), CHUNK_ROWS):
            part = slice(start, start + CHUNK_ROWS)
            vectors = self.embedding[self.inputs.looked_up(encoded.codes[part])]
            values = np.hstack(
                [
                    self.inputs.numbers(encoded.numbers[part]),
                    vectors.reshape(len(vectors), EMBEDDING * vectors.shape[1]),
                ]
            )
            for weights, bias in self.layers[:-1]:
                values = np.maximum(values @ weights + bias, np.float32(0.0))
            weights, bias = self.layers[-1]
            score = self.offset + self.scale * (values @ weights + bias)[:, 0].astype(np.float64)
            out[part] = score if self.link is None else self.link.predictions(score)
        return out

    def check(self, numbers: int, sizes: list[int]) -> None:
        """Raises ValueError where the network is not one of so many numbers and categories of these sizes."""
        if len(self.inputs.mean) != numbers or [len(rows) for rows in self.inputs.rows] != sizes:
            raise ValueError("the network does not fit the features")

    def as_json(self) -> dict[str, Any]:
        link = None if self.link is None else {"low": self.link.low, "high": self.link.high, "scale": self.link.scale}
        return {
            "mean": self.inputs.mean.tolist(),
            "spread": self.inputs.spread.tolist(),
            "gaps": list(self.inputs.gaps),
            "rows": [_packed(rows, "<i4") for rows in self.inputs.rows],
            "embedding": _packed(self.embedding, "<f4"),
            "layers": [[_packed(weights, "<f4"), _packed(bias, "<f4")] for weights, bias in self.layers],
            "offset": self.offset,
            "scale": self.scale,
            "link": link,
            "epochs": self.epochs,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Network:
        """Inverse of `as_json`; raises KeyError, TypeError or ValueError for what is not one."""
        inputs = Inputs(
            np.array(data["mean"], dtype=np.float64),
            np.array(data["spread"], dtype=np.float64),
            tuple(int(at) for at in data["gaps"]),
            tuple(_unpacked(rows, "<i4").reshape(-1) for rows in data["rows"]),
        )
        embedding = _unpacked(data["embedding"], "<f4").reshape(-1, EMBEDDING)
        widths = (inputs.width, *HIDDEN, 1)
        layers = tuple(
            (_unpacked(weights, "<f4").reshape(before, after), _unpacked(bias, "<f4").reshape(after))
            for (weights, bias), before, after in zip(data["layers"], widths[:-1], widths[1:], strict=True)
        )
        if any(rows.size == 0 or rows.min() < 0 or rows.max() >= len(embedding) for rows in inputs.rows):
            raise ValueError("a category has no embedding")
        if inputs.spread.shape != inputs.mean.shape or any(not 0 <= at < len(inputs.mean) for at in inputs.gaps):
            raise ValueError("the numbers of the network do not fit each other")
        if not all(np.all(np.isfinite(weights)) for pair in ((embedding,), *layers) for weights in pair):
            raise ValueError("the network has a weight that is no number")
        link = PoissonScore(**data["link"]) if data["link"] is not None else None
        return cls(inputs, embedding, layers, float(data["offset"]), float(data["scale"]), link, int(data["epochs"]))


def _packed(values: npt.NDArray[Any], kind: str) -> str:
    return base64.b64encode(np.ascontiguousarray(values, dtype=kind).tobytes()).decode("ascii")


def _unpacked(text: str, kind: str) -> npt.NDArray[Any]:
    return np.frombuffer(base64.b64decode(text, validate=True), dtype=kind)
