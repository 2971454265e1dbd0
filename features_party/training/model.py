"""A trained model: from a feature table to predictions inside the label domain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from features_party.training import reading
from features_party.training.capacity import Capacity
from features_party.training.effects import Effects
from features_party.training.encoding import Encoded, FeatureSchema
from features_party.training.learner import Body, Seen
from features_party.training.learners import learner
from shared.errors import InvalidFile
from shared.maps.score_maps import ScoreMap

if TYPE_CHECKING:
    import pyarrow as pa

FloatArray = npt.NDArray[np.float64]

FORMAT = "label-dp-model"
VERSION = 1


@dataclass(frozen=True)
class TrainedModel:
    """`bounds` are the ends of the label domain (None without one); `mean` is the training mean of the labels.

    Predictions go through `calibration` in the end, where there is one.
    """

    kind: str
    loss: str
    objective: str
    schema: FeatureSchema
    effects: Effects
    body: Body
    bounds: tuple[float, float] | None
    mean: float
    capacity: Capacity
    notes: tuple[str, ...] = ()
    calibration: ScoreMap | None = None

    def predict(self, features: pa.Table, *, threads: int = 1) -> FloatArray:
        """float64[n] inside the domain; unknown categories count as missing. Raises InvalidTable (missing columns),
        InvalidFile where the model's own numbers are too large to add up."""
        return self.predict_encoded(self.schema.encode(features), threads=threads)

    def predict_encoded(self, encoded: Encoded, *, threads: int = 1) -> FloatArray:
        seen = Seen(encoded, self.effects.apply(encoded.codes), self.schema.sizes)
        predictions = self.body.predict(seen, threads)
        if not np.all(np.isfinite(predictions)):
            raise InvalidFile("The model does not predict numbers: its file is damaged; train again.")
        if self.bounds is not None:
            predictions = np.clip(predictions, *self.bounds)
        return predictions if self.calibration is None else self.calibration.apply(predictions)

    def as_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "version": VERSION,
            "kind": self.kind,
            "loss": self.loss,
            "objective": self.objective,
            "bounds": list(self.bounds) if self.bounds is not None else None,
            "mean": self.mean,
            "schema": self.schema.as_json(),
            "effects": [table.tolist() for table in self.effects.tables],
            "capacity": self.capacity.as_json(),
            "notes": list(self.notes),
            "body": self.body.as_json(),
            "calibration": None if self.calibration is None else self.calibration.as_json(),
        }

    @classmethod
    def from_json(cls, data: Any) -> TrainedModel:
        """Inverse of `as_json`, checking that its parts fit together. Raises InvalidFile."""
        try:
            if data["format"] != FORMAT:
                raise InvalidFile("The file is not a model of this software.")
            if type(data["version"]) is not int or data["version"] > VERSION:
                raise InvalidFile("The model was written by a newer version of this software; upgrade it to read it.")
            schema = FeatureSchema.from_json(data["schema"])
            kind, sizes = reading.text(data["kind"]), schema.sizes
            made = learner(kind)
            wanted = [] if made.own_categories else sizes
            tables = reading.listed(data["effects"], len(wanted))
            model = cls(
                kind=kind,
                loss=reading.text(data["loss"]),
                objective=reading.text(data["objective"]),
                schema=schema,
                effects=Effects(
                    tuple(reading.numbers(t, size, reading.FLOAT32) for t, size in zip(tables, wanted, strict=True))
                ),
                body=made.from_json(data["body"], len(schema.number_names), sizes),
                bounds=None if data["bounds"] is None else _bounds(data["bounds"]),
                mean=reading.number(data["mean"]),
                capacity=Capacity.from_json(data["capacity"]),
                notes=tuple(reading.text(note) for note in reading.listed(data["notes"])),
                calibration=None if data["calibration"] is None else ScoreMap.from_json(data["calibration"]),
            )
            model.check()
        except InvalidFile:
            raise
        except Exception:  # whatever a damaged file breaks, the answer is the same
            raise InvalidFile("The model file is damaged; train again or restore its folder.") from None
        return model

    def check(self) -> None:
        """One prediction on a row without values: the parts fit, or something raises."""
        schema = self.schema
        nothing = Encoded(
            np.full((1, len(schema.number_names)), np.nan, dtype=np.float32),
            np.full((1, len(schema.sizes)), -1, dtype=np.int32),
        )
        self.predict_encoded(nothing)


def _bounds(data: Any) -> tuple[float, float]:
    low, high = reading.numbers(data, 2).tolist()
    return low, reading.number(high, low)
