"""Features of the labels party's own that an answer declares: names with public ranges, or values."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from .exact import plain
from .members import listed, text
from .refusal import refuse

MOST_FEATURES, MOST_VALUES, MOST_TEXT = 64, 100, 200
LARGEST = 10**100
WHOLE_EXAMPLE = (
    "replace one example, its label and its features; ids, which of them have features, and their number are public"
)
BOUND = ("delta_of_bound", "bound", "rho")  # how the steps of a session are charged together


def check_features(data: Any) -> list[dict[str, Any]]:
    """The declared features: {"name", "range": [low, high]} or {"name", "values": [...]}."""
    features = listed(data, 1, MOST_FEATURES, "the list of features")
    for feature in features:
        if not isinstance(feature, dict) or set(feature) not in ({"name", "range"}, {"name", "values"}):
            refuse("a feature has a name, and a range or values")
        text(feature["name"], "the name of a feature", least=0, most=MOST_TEXT)
        if "range" in feature:
            ends(feature)
            continue
        values = listed(feature["values"], 1, MOST_VALUES, "the values of a feature")
        if len({text(value, "a value of a feature", least=0, most=MOST_TEXT) for value in values}) != len(values):
            refuse("a value of a feature is listed twice")
    if len({feature["name"] for feature in features}) != len(features):
        refuse("two features have one name")
    return features


def ends(feature: dict[str, Any]) -> tuple[float, float]:
    """The ends of a range."""
    low, high = (_end(text) for text in listed(feature["range"], 2, 2, "the range of a feature"))
    if not float(low) < float(high):
        refuse("the lower end of a feature's range is not below its upper end")
    return float(low), float(high)


def _end(given: Any) -> Fraction:
    number = plain(text(given, "the end of a range", most=MOST_TEXT), "the end of a range")
    if abs(number) > LARGEST:
        refuse("the end of a range is too large")
    return number
