"""What signed answers made of the labels party's own features have in common: how features are declared."""

from __future__ import annotations

import re
from typing import Any

from shared.errors import MalformedAnswer

DECIMAL = re.compile(r"-?[0-9]{1,320}(\.[0-9]{1,340})?", re.ASCII)
MOST_FEATURES, MOST_VALUES, MOST_TEXT = 64, 100, 200


def is_decimal(value: object) -> bool:
    return isinstance(value, str) and DECIMAL.fullmatch(value) is not None


def is_count(value: object, least: int = 0, most: int = 1 << 53) -> bool:
    return type(value) is int and least <= value <= most


def check_features(data: object) -> list[dict[str, Any]]:
    """The declared features: {"name", "range": [low, high]} or {"name", "values": [...]}. Raises MalformedAnswer."""
    if not isinstance(data, list) or not 1 <= len(data) <= MOST_FEATURES:
        raise MalformedAnswer(f"there are 1 to {MOST_FEATURES} features.")
    for feature in data:
        if not isinstance(feature, dict) or set(feature) not in ({"name", "range"}, {"name", "values"}):
            raise MalformedAnswer("a feature has a name, and a range or values.")
        if not _is_text(feature["name"]) or not (_is_range(feature) if "range" in feature else _is_list(feature)):
            raise MalformedAnswer("the range of a feature is two decimals, its values are different texts.")
    if len({feature["name"] for feature in data}) != len(data):
        raise MalformedAnswer("every feature has a name of its own.")
    return data


def _is_text(value: object) -> bool:
    return isinstance(value, str) and len(value) <= MOST_TEXT


def _is_range(feature: dict[str, Any]) -> bool:
    ends = feature["range"]
    if not isinstance(ends, list) or len(ends) != 2 or not all(is_decimal(end) and len(end) <= 400 for end in ends):
        return False
    low, high = (float(end) for end in ends)
    return low < high and high - low < float("inf")


def _is_list(feature: dict[str, Any]) -> bool:
    values = feature["values"]
    sized = isinstance(values, list) and 1 <= len(values) <= MOST_VALUES and all(_is_text(value) for value in values)
    return sized and len(set(values)) == len(values)
