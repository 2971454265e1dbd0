"""Model folder of ours as MLflow's pyfunc: no pickle, and of this party its public key alone is read."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from features_party.bootstrap import loaded, signers
from features_party.models.evaluation import likeliest, unknown_text
from features_party.models.folder import load_model
from features_party.training.classes import class_names
from features_party.training.model import TrainedModel
from label_dp.columnar.frames import Frame, as_table

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class PyfuncPredictor:
    """MLflow model around a trained model."""

    model: TrainedModel

    def predict(self, model_input: Frame) -> npt.NDArray[np.float64] | pd.DataFrame:
        """Predict float64[n], as `TrainedModel.predict`; for classes a frame with `prediction` and a column
        `probability_…` for each. Warns of categories unseen in training. Raises InvalidTable for a missing column."""
        encoded = self.model.schema.encode(as_table(model_input))
        for column, cells in encoded.unknown_cells.items():
            warnings.warn(unknown_text(column, cells, len(encoded)), stacklevel=2)
        predictions = self.model.predict_encoded(encoded)
        if self.model.classes is None:
            return predictions
        import pandas as pd

        columns: dict[str, Any] = {"prediction": likeliest(self.model.classes, predictions)}
        for at, name in enumerate(class_names(self.model.classes)):
            columns[f"probability_{name}"] = predictions[:, at]
        return pd.DataFrame(columns)


def _load_pyfunc(data_path: str) -> PyfuncPredictor:
    """Load a model for MLflow, which calls this name; warns where no key is known that must have signed it. Raises
    VerificationFailed, InvalidFile."""
    keys = signers(loaded())
    if not keys:
        warnings.warn(
            "who signed this model was not checked: set FEATURES_PARTY_MODEL_KEY to its party's keys/signing.pub",
            stacklevel=2,
        )
    return PyfuncPredictor(load_model(Path(data_path), keys or None).model)
