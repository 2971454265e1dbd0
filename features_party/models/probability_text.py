"""Metrics of predictions as probabilities, for people: one line each."""

from __future__ import annotations

from typing import Any

from features_party.models.card_reading import reading_card

PROBABILITIES = {
    "positive_rate": "rate of the larger label",
    "auc": "AUC",
    "log_loss": "log loss",
    "constant_log_loss": "log loss of the constant",
    "brier": "Brier score",
}
CALIBRATION = {"in_the_large": "mean label less mean prediction", "slope": "calibration slope"}


@reading_card()
def probability_rows(estimate: dict[str, Any]) -> list[list[str]]:
    """Name and interval, or why there is none, of each metric of probabilities; empty where labels have more than two
    values. Raises InvalidFile for a damaged card."""
    rows = [[text, _interval(estimate, name)] for name, text in PROBABILITIES.items() if name in estimate]
    found = estimate.get("calibration")
    return rows if found is None else [*rows, *([text, _interval(found, name)] for name, text in CALIBRATION.items())]


def _interval(members: dict[str, Any], name: str) -> str:
    found = members[name]
    if found is None:
        return str(members[f"{name}_why"])
    return f"{found['estimate']:.6g} (95 %: {found['low']:.6g} to {found['high']:.6g})"
