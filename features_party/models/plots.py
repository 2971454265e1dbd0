"""Reliability diagrams as PNG, with matplotlib."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from features_party.models.reliability import Reliability
from label_dp.errors import InvalidFile
from label_dp.pictures import figure_class


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
