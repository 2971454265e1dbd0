"""A trained model: from a feature table to predictions inside the label domain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from features_party.training.capacity import Capacity
from features_party.training.effects import Effects
from features_party.training.encoding import Encoded, FeatureSchema
from features_party.training.ensemble import Ensemble
from features_party.training.gbdt import TreeInput, Trees, importance
from features_party.training.linear import Linear
from features_party.training.mlp import Network
from shared.errors import InvalidFile
from shared.message.calibration import ScoreMap

if TYPE_CHECKING:
    import pyarrow as pa

FloatArray = npt.NDArray[np.float64]

FORMAT = "label-dp-model"
VERSION = 3  # 3: with a calibration; a model without one is written as version 2, which says all of it
UNCALIBRATED = 2
BODIES: dict[str, type[Trees] | type[Linear] | type[Network]] = {
    "gbdt": Trees,
    "trees": Trees,
    "linear": Linear,
    "mlp": Network,
}


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
    body: Trees | Linear | Network | Ensemble
    bounds: tuple[float, float] | None
    mean: float
    capacity: Capacity
    notes: tuple[str, ...] = ()
    calibration: ScoreMap | None = None

    def predict(self, features: pa.Table, *, threads: int = 1) -> FloatArray:
        """float64[n] inside the domain; unknown categories count as missing. Raises InvalidTable (missing columns)."""
        return self.predict_encoded(self.schema.encode(features), threads=threads)

    def predict_encoded(self, encoded: Encoded, *, threads: int = 1) -> FloatArray:
        if isinstance(self.body, Network):
            predictions = self.body.predict(encoded)
        elif isinstance(self.body, Ensemble):
            effects = self.effects.apply(encoded.codes)
            predictions = self.body.predict(encoded, effects, category_sizes(self.schema), threads)
        elif isinstance(self.body, Trees):
            effects = self.effects.apply(encoded.codes)
            predictions = self.body.predict(TreeInput.of(encoded, effects, category_sizes(self.schema)), threads)
        else:
            predictions = self.body.predict(encoded, self.effects.apply(encoded.codes))
        if self.bounds is not None:
            predictions = np.clip(predictions, *self.bounds)
        return predictions if self.calibration is None else self.calibration.apply(predictions)

    @property
    def trees(self) -> int | None:
        """How many trees the model has, all members together; None where it has none."""
        if isinstance(self.body, Trees):
            return self.body.count
        counts = [member["trees"] for member in self.members() if member["trees"] is not None]
        return sum(counts) if counts else None

    def members(self) -> list[dict[str, Any]]:
        """What an ensemble sums, as name, weight and number of trees (None without any); empty for other models."""
        if not isinstance(self.body, Ensemble):
            return []
        return [
            {"name": m.name, "weight": m.weight, "trees": m.body.count if isinstance(m.body, Trees) else None}
            for m in self.body.members
        ]

    def importance(self) -> dict[str, float]:
        """Share by feature, largest first: of the trees' total gain, and of the spread of additive models in an
        ensemble; empty for other models."""
        if isinstance(self.body, Trees):
            return importance(self.body, self.schema)
        return self.body.importance(self.schema) if isinstance(self.body, Ensemble) else {}

    def as_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "version": UNCALIBRATED if self.calibration is None else VERSION,
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
            **({} if self.calibration is None else {"calibration": self.calibration.as_json()}),
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
            tables = tuple(np.array(table, dtype=np.float64) for table in data["effects"])
            kind, sizes = data["kind"], category_sizes(schema)
            # a network has embeddings instead of effects
            if [t.shape for t in tables] != ([] if kind == "mlp" else [(size,) for size in sizes]):
                raise ValueError("the effects do not fit the vocabularies")
            several = kind == "gbdt" and "members" in data["body"]
            body = Ensemble.from_json(data["body"]) if several else BODIES[kind].from_json(data["body"])
            bounds = data["bounds"]
            model = cls(
                kind=kind,
                loss=data["loss"],
                objective=data["objective"],
                schema=schema,
                effects=Effects(tables),
                body=body,
                bounds=(float(bounds[0]), float(bounds[1])) if bounds is not None else None,
                mean=float(data["mean"]),
                capacity=Capacity(**{k: v for k, v in data["capacity"].items() if k != "why"}),
                notes=tuple(data["notes"]),
                calibration=ScoreMap.from_json(data["calibration"]) if "calibration" in data else None,
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
            np.full((1, len(schema.categories)), -1, dtype=np.int32),
        )
        if isinstance(self.body, Trees) and self.body.booster.num_features() != nothing.numbers.shape[1] + len(
            schema.categories
        ):
            raise ValueError("the trees do not fit the features")
        if isinstance(self.body, Network):
            self.body.check(nothing.numbers.shape[1], category_sizes(schema))
        if not np.all(np.isfinite(self.predict_encoded(nothing))):
            raise ValueError("the model does not predict a number")


def category_sizes(schema: FeatureSchema) -> list[int]:
    """Per category column its values and missing."""
    return [len(column.vocabulary) + 1 for column in schema.categories]
