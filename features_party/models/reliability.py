"""Reliability: predictions beside labels, by bins of the prediction, and its diagram as PNG. Costs no ε: reads files of
predictions and of labels that are true, or privatized without bias."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from features_party.training.calibration import equal_groups
from label_dp.errors import InvalidFile, InvalidTable
from label_dp.pictures import figure_class
from label_dp.schemas.json_types import JsonObject

FloatArray = npt.NDArray[np.float64]
BINS = 20


@dataclass(frozen=True)
class Reliability:
    """Reliability by bin, float64[b]: rows, mean prediction, mean label, standard error of the latter.

    `error` is the root of the mean, over rows, of the squared difference of a bin's means. `floor` is its value for a
    perfectly calibrated model, from the spread of labels inside bins alone (Bröcker & Smith 2007 draw it as bars).
    """

    rows: npt.NDArray[np.int64]
    predicted: FloatArray
    observed: FloatArray
    standard_error: FloatArray

    @property
    def error(self) -> float:
        return float(np.sqrt(np.average((self.observed - self.predicted) ** 2, weights=self.rows)))

    @property
    def floor(self) -> float:
        return float(np.sqrt(np.average(self.standard_error**2, weights=self.rows)))

    def as_json(self) -> JsonObject:
        return {
            "calibration_error": self.error,
            "sampling_floor": self.floor,
            "bins": [
                {"rows": int(n), "predicted": float(p), "observed": float(o), "standard_error": float(s)}
                for n, p, o, s in zip(self.rows, self.predicted, self.observed, self.standard_error, strict=True)
            ],
        }


def reliability(predictions: FloatArray, labels: FloatArray, bins: int = BINS) -> Reliability:
    """Bin predictions and labels, both float64[n], into at most `bins` bins of about equal size; equal predictions stay
    together.

    Raises InvalidTable for no rows.
    """
    if not len(predictions):
        raise InvalidTable("A reliability diagram needs at least one row.")
    number = equal_groups(predictions, bins)
    rows = np.bincount(number)
    predicted, label_means = (np.bincount(number, weights=values) / rows for values in (predictions, labels))
    spread = np.bincount(number, weights=(labels - label_means[number]) ** 2) / np.maximum(rows - 1, 1)
    return Reliability(rows, predicted, label_means, np.sqrt(spread / rows))


def save_diagram(found: Reliability, title: str, label: str, path: Path) -> None:
    """Plot mean label against mean prediction by bin, with two standard errors, beside the diagonal. Raises
    InvalidFile."""
    figure = figure_class()(figsize=(4.6, 4.2), layout="constrained")
    axes = figure.subplots()
    try:
        ends = np.concatenate([found.predicted, found.observed])
        low, high = float(ends.min()), float(ends.max())
        axes.plot([low, high], [low, high], color="0.6", linewidth=1)
        axes.errorbar(
            found.predicted,
            found.observed,
            yerr=2 * found.standard_error,
            fmt="o-",
            markersize=4,
            linewidth=1,
            capsize=2,
        )
        axes.set_title(f"{title}\ncalibration error {found.error:.4g}", fontsize="medium")
        axes.set_xlabel(f"mean prediction of {label}"[:60])
        axes.set_ylabel("mean label, ± 2 standard errors")
        figure.savefig(path, dpi=150, format="png", metadata={"Software": None})
    except OSError as error:
        raise InvalidFile(f"'{path}' cannot be written ({error.strerror}).") from None
