"""A trained model: from a feature table to predictions inside the label domain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from features_party.training import reading
from features_party.training.capacity import Capacity
from features_party.training.classes import are_classes
from features_party.training.effects import Effects
from features_party.training.encoding import Encoded, FeatureSchema
from features_party.training.learner import FittedModel, ModelInput
from features_party.training.learners import learner
from features_party.training.learners.class_trees import ClassTrees
from label_dp.domain import Domain
from label_dp.errors import InvalidFile, InvalidInput
from label_dp.named_modules import installed
from label_dp.schemas.json_types import JsonObject
from label_dp.schemas.training import model_name

if TYPE_CHECKING:
    import pyarrow as pa

FloatArray = npt.NDArray[np.float64]

FORMAT = "label-dp-model"
VERSION = 1
MOST_QUANTILES = 99
NO_QUANTILES = (
    "This model knows no quantiles of the label: they come with the model ensemble and the squared loss, from messages "
    "that tell more of a label than its mean (not from one bit), and not with a calibration."
)


def ends_of(level: float) -> tuple[float, float]:
    """Return the quantiles at the ends of an interval that holds the label with probability `level`."""
    return (1.0 - level) / 2.0, (1.0 + level) / 2.0


class OutputMap(Protocol):
    """Calibration map: predictions float64[n] in, predictions float64[n] out."""

    def apply(self, scores: FloatArray, /) -> FloatArray: ...

    def as_json(self) -> Any: ...


@dataclass(frozen=True)
class TrainedModel:
    """Trained model. `bounds` are the ends of the label domain (None without one); `mean` is the training mean of the
    labels.

    Predictions pass through `calibration` last, if there is one. A model of `classes` predicts probabilities of the k
    values of that domain.
    """

    kind: str
    loss: str
    objective: str
    schema: FeatureSchema
    effects: Effects
    body: FittedModel
    bounds: tuple[float, float] | None
    mean: float
    capacity: Capacity
    notes: tuple[str, ...] = ()
    calibration: OutputMap | None = None
    classes: Domain | None = None

    def predict(self, features: pa.Table, *, threads: int = 1) -> FloatArray:
        """Predict float64[n] inside the domain, or float64[n, k] of classes; unknown categories count as missing.

        Raises InvalidTable (missing columns), and InvalidFile if the model's own numbers are too large to add up.
        """
        return self.predict_encoded(self.schema.encode(features), threads=threads)

    def predict_encoded(self, encoded: Encoded, *, threads: int = 1) -> FloatArray:
        model_input = ModelInput(encoded, self.effects.apply(encoded.codes), self.schema.sizes)
        predictions = self.body.predict(model_input, threads)
        if not np.all(np.isfinite(predictions)):
            raise InvalidFile("The model does not predict numbers: its file is damaged; train again.")
        if self.classes is not None:
            return predictions
        if self.bounds is not None:
            predictions = np.clip(predictions, *self.bounds)
        return predictions if self.calibration is None else self.calibration.apply(predictions)

    def predict_quantiles(self, features: pa.Table, quantiles: Sequence[float], *, threads: int = 1) -> FloatArray:
        """Predict float64[n, q]: labels that the true label is at most with probabilities `quantiles`, each above 0 and
        below 1.

        They are labels of the domain (means of neighbouring ones, if it has more than 256). The probabilities hold over
        many rows; they are not conditional on each row. Raises InvalidInput for other probabilities, and for a model
        without quantiles.
        """
        return self.quantiles_encoded(self.schema.encode(features), quantiles, threads=threads)

    def quantiles_encoded(self, encoded: Encoded, quantiles: Sequence[float], *, threads: int = 1) -> FloatArray:
        shares, spread = np.array(quantiles, np.float64), self.body.spread
        if spread is None or self.calibration is not None:
            raise InvalidInput(NO_QUANTILES)
        if shares.ndim != 1 or not 0 < shares.size <= MOST_QUANTILES or not np.all((shares > 0.0) & (shares < 1.0)):
            raise InvalidInput(f"Quantiles are 1 to {MOST_QUANTILES} probabilities above 0 and below 1.")
        return spread.quantiles(self.predict_encoded(encoded, threads=threads), shares)

    def predict_interval(self, features: pa.Table, level: float = 0.9, *, threads: int = 1) -> FloatArray:
        """Predict float64[n, 2]: from the (1 − level)/2 quantile to that of (1 + level)/2. Raises as
        predict_quantiles."""
        return self.predict_quantiles(features, ends_of(level), threads=threads)

    @property
    def constant(self) -> float | FloatArray:
        """Prediction before anything is learned: the mean, or the class shares float64[k]."""
        return self.body.shares if isinstance(self.body, ClassTrees) else self.mean

    def require_number(self, what: str) -> None:
        """Raise InvalidInput for a model of classes; `what` needs one number a row."""
        if self.classes is not None:
            raise InvalidInput(
                f"This model predicts probabilities of {self.classes.k} classes, and {what} needs one number for each "
                "row; train a model with another loss."
            )

    def as_json(self) -> JsonObject:
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
            "classes": None if self.classes is None else self.classes.as_json(),
        }

    @classmethod
    def from_json(cls, data: Any) -> TrainedModel:
        """Parse the output of `as_json`, checking that its parts fit together. Raises InvalidFile."""
        try:
            if data["format"] != FORMAT:
                raise InvalidFile("The file is not a model of this software.")
            if type(data["version"]) is not int or data["version"] > VERSION:
                raise InvalidFile("The model was written by a newer version of this software; upgrade it to read it.")
            schema = FeatureSchema.from_json(data["schema"])
            kind, sizes = model_name(reading.text(data["kind"])), schema.sizes
            kind_class = learner(kind)
            effect_sizes = [] if kind_class.own_categories else sizes
            tables = reading.listed(data["effects"], len(effect_sizes))
            classes = None if data["classes"] is None else _classes(data["classes"])
            body = (kind_class if classes is None else ClassTrees).from_json(
                data["body"], len(schema.number_names), sizes
            )
            if isinstance(body, ClassTrees) and (classes is None or body.k != classes.k or data["calibration"]):
                raise ValueError("the trees are of other classes, or their probabilities go through a map")
            model = cls(
                kind=kind,
                loss=reading.text(data["loss"]),
                objective=reading.text(data["objective"]),
                schema=schema,
                effects=Effects(
                    tuple(
                        reading.numbers(t, size, reading.FLOAT32) for t, size in zip(tables, effect_sizes, strict=True)
                    )
                ),
                body=body,
                bounds=None if data["bounds"] is None else _bounds(data["bounds"]),
                mean=reading.number(data["mean"]),
                capacity=Capacity.from_json(data["capacity"]),
                notes=tuple(reading.text(note) for note in reading.listed(data["notes"])),
                calibration=None if data["calibration"] is None else _output_map(data["calibration"]),
                classes=classes,
            )
            model.check()
        except InvalidFile:
            raise
        except Exception:  # any failure on a damaged file gets the same answer
            raise InvalidFile("The model file is damaged; train again or restore its folder.") from None
        return model

    def check(self) -> None:
        """Predict one row without values, which raises if the parts do not fit."""
        schema = self.schema
        nothing = Encoded(
            np.full((1, len(schema.number_names)), np.nan, dtype=np.float32),
            np.full((1, len(schema.sizes)), -1, dtype=np.int32),
        )
        self.predict_encoded(nothing)


def _output_map(data: Any) -> OutputMap:
    maps = installed("label_dp.companions.maps.score_maps")
    if maps is None:
        raise InvalidFile("The model goes through the map of a calibration, and the part for it is not installed.")
    output_map: OutputMap = maps.ScoreMap.from_json(data)
    return output_map


def _classes(data: Any) -> Domain:
    domain = Domain.from_json(data)
    domain.check_spelling(data)
    if not are_classes(domain):
        raise ValueError("the domain has too few values for classes")
    return domain


def _bounds(data: Any) -> tuple[float, float]:
    low, high = reading.numbers(data, 2).tolist()
    return low, reading.number(high, low)
