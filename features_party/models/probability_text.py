"""Metrics of predictions as probabilities, of two labels or of classes, for people: one line each."""

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
CLASSES = {
    "accuracy": "accuracy",
    "constant_accuracy": "accuracy of the commonest class",
    "log_loss": "log loss",
    "constant_log_loss": "log loss of the class shares",
    "log_loss_below_constant": "log loss below that of the class shares",
    "macro_auc": "AUC, mean of one class against the rest",
}
CALIBRATION = {"in_the_large": "mean label less mean prediction", "slope": "calibration slope"}


@reading_card()
def probability_rows(estimate: dict[str, Any]) -> list[list[str]]:
    """List name and interval, or the reason for its absence, of each metric of probabilities.

    Empty if the model predicts none. Raises InvalidFile for a damaged card.
    """
    if of_classes(estimate):
        return [[text, _interval(estimate, name)] for name, text in CLASSES.items()]
    rows = [[text, _interval(estimate, name)] for name, text in PROBABILITIES.items() if name in estimate]
    calibration = estimate.get("calibration")
    return (
        rows
        if calibration is None
        else [*rows, *([text, _interval(calibration, name)] for name, text in CALIBRATION.items())]
    )


def of_classes(estimate: dict[str, Any]) -> bool:
    """Check whether an error estimate is of probabilities of classes, and not of numbers."""
    return "accuracy" in estimate


def _interval(members: dict[str, Any], name: str) -> str:
    estimate = members[name]
    if estimate is None:
        return str(members[f"{name}_why"])
    return f"{estimate['estimate']:.6g} (95 %: {estimate['low']:.6g} to {estimate['high']:.6g})"
