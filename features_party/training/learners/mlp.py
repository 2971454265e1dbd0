"""The paper's network as a trained model: embeddings of categories, two hidden layers, one output. numpy only.

Training it needs PyTorch (mlp_fit.py); predicting does not: the weights are saved as base64 in JSON.

    category c  -> row of an embedding, EMBEDDING numbers; rare values share one row
    number      -> standardised, missing as the mean, with an indicator if any was missing in training
    x           -> relu(x W1 + b1) -> relu(. W2 + b2) -> . W3 + b3
    score       =  offset + scale * output; a prediction is the score, or e^score through `link`
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from features_party.training import reading
from features_party.training.effects import Effects
from features_party.training.encoding import Float32
from features_party.training.learner import Fit, Graph, Learner, ModelInput, Ports, Sample, Task
from features_party.training.learners.mlp_fit import check_torch, fit_network
from features_party.training.learners.mlp_inputs import CHUNK_ROWS, EMBEDDING, HIDDEN, LARGEST_NUMBER, InputEncoder
from features_party.training.links import Link, read_link
from label_dp.progress import Progress
from label_dp.schemas.json_types import JsonObject

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Network(Learner):
    """Network of float32 weights: `embedding` [rows, 8] and `layers` of ([inputs, outputs], [outputs]), trained for
    `epochs`."""

    inputs: InputEncoder
    embedding: Float32
    layers: tuple[tuple[Float32, Float32], ...]
    offset: float
    scale: float
    link: Link | None
    epochs: int

    own_categories = True

    @classmethod
    def require(cls) -> None:
        check_torch()

    @classmethod
    def fit(cls, sample: Sample, task: Task, progress: Progress) -> Fit:
        network = cls(*fit_network(sample, task, progress))
        return Fit(network, Effects(()), notes=(f"the network was trained for {network.epochs} epochs",))

    def predict(self, inputs: ModelInput, threads: int = 1) -> FloatArray:
        encoded = inputs.encoded
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

    def nodes(self, graph: Graph, ports: Ports) -> str:
        own, ports_used = self.inputs, []
        if ports.numbers:
            standard, missing = graph.standardised(ports.numbers, own.mean, own.scale, LARGEST_NUMBER)
            ports_used.append(graph.single(standard))
            if own.gaps:
                gaps = graph.constant(own.gaps, np.int64)
                ports_used.append(graph.add("Gather", graph.single(missing), gaps, axis=1))
        for index, rows in zip(ports.index, own.rows, strict=True):
            vectors = graph.looked_up(index, self.embedding[rows], np.float32)
            ports_used.append(graph.add("Reshape", vectors, graph.constant([-1, EMBEDDING], np.int64)))
        values = graph.add("Concat", *ports_used, axis=1)
        for at, (weights, bias) in enumerate(self.layers):
            values = values if at == 0 else graph.add("Relu", values)
            product = graph.add("MatMul", values, graph.constant(weights, np.float32))
            values = graph.add("Add", product, graph.constant(bias, np.float32))
        scaled = graph.add("Mul", graph.double(values), graph.constant(self.scale, np.float64))
        return graph.add("Add", scaled, graph.constant(self.offset, np.float64))

    def as_json(self) -> JsonObject:
        link = None if self.link is None else self.link.as_json()
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
    def from_json(cls, data: dict[str, Any], numbers: int, sizes: list[int]) -> Network:
        mean = reading.numbers(data["mean"])
        inputs = InputEncoder(
            mean,
            reading.numbers(data["spread"], len(mean)),
            tuple(reading.wholes(data["gaps"], 0, len(mean) - 1).tolist()),
            tuple(_unpacked(rows, "<i4").reshape(-1) for rows in reading.listed(data["rows"])),
        )
        if len(mean) != numbers or [len(rows) for rows in inputs.rows] != sizes:
            raise ValueError("the network does not fit the features")
        embedding = _unpacked(data["embedding"], "<f4").reshape(-1, EMBEDDING)
        widths = (inputs.width, *HIDDEN, 1)
        layers = tuple(
            (_unpacked(weights, "<f4").reshape(before, after), _unpacked(bias, "<f4").reshape(after))
            for (weights, bias), before, after in zip(
                reading.listed(data["layers"]), widths[:-1], widths[1:], strict=True
            )
        )
        if any(rows.size == 0 or rows.min() < 0 or rows.max() >= len(embedding) for rows in inputs.rows):
            raise ValueError("a category has no embedding")
        if not all(np.all(np.isfinite(weights)) for pair in ((embedding,), *layers) for weights in pair):
            raise ValueError("the network has a weight that is no number")
        link = read_link(data["link"])
        offset, scale = reading.number(data["offset"]), reading.number(data["scale"])
        return cls(inputs, embedding, layers, offset, scale, link, reading.whole(data["epochs"], 0, 1 << 31))


def _packed(values: npt.NDArray[Any], kind: str) -> str:
    return base64.b64encode(np.ascontiguousarray(values, dtype=kind).tobytes()).decode("ascii")


def _unpacked(text: str, kind: str) -> npt.NDArray[Any]:
    return np.frombuffer(base64.b64decode(reading.text(text), validate=True), dtype=kind)


LEARNER = Network
