"""A rectangle among the signed answers: an interval of every feature, in which a private rule calls examples positive.

`parameters`: from which label on an example is positive, the features with their public ranges, the number of `levels`
that a range is divided into, and how the sides were found. `result`: for every feature the first and the last place
inside. An example is inside where the place of each of its features is, `shared.places.feature_places`: a value beyond
an end of its range counts as that end, one that is missing is outside. Where a side was not found nothing is inside.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shared.errors import MalformedAnswer
from shared.message.answer import Answer, register, trusted_answer
from shared.message.own_features import check_features, is_count, is_decimal
from shared.message.signing import VerifyingKey
from shared.places import feature_places, place_text

RECTANGLE = "rectangle"
METHODS = ("ranks", "slices")
PARAMETERS = {"threshold", "features", "examples", "levels", "method", "slice", "slice_noise"} | {
    "epsilon_per_side",
    "delta_per_side",
    "delta_of_bound",
}
MOST_LEVELS = (1 << 32) - 1


@dataclass(frozen=True)
class Rectangle:
    """A verified answer of this kind; `digest` is the SHA-256 of its payload."""

    answer: Answer
    digest: str

    @property
    def found(self) -> bool:
        return bool(self.answer.result["found"])

    @property
    def sides(self) -> list[dict[str, Any]]:
        """For every feature `name`, the places `first` and `last`, and the numbers `from` and `to` there, or nulls."""
        return list(self.answer.result["sides"])

    def contains(self, columns: Mapping[str, Any]) -> npt.NDArray[np.bool_]:
        """bool[m]: which rows of a table, given by its columns of m values each, are inside. Raises InvalidInput."""
        given, inside = self.answer.parameters, None
        for feature, side in zip(given["features"], self.sides, strict=True):
            place = feature_places(feature, columns, given["levels"])
            here = (place >= side["first"]) & (place <= side["last"]) if self.found else np.zeros(len(place), np.bool_)
            inside = here if inside is None else inside & here
        return np.asarray(inside, np.bool_)


def _check(answer: Answer) -> None:
    given, result = answer.parameters, answer.result
    if set(given) != PARAMETERS or given["method"] not in METHODS:
        raise MalformedAnswer("a rectangle names threshold, features and how its sides were found.")
    features = check_features(given["features"])
    counts = is_count(given["slice"], 1) and is_count(given["slice_noise"]) and is_count(given["examples"], 1, answer.n)
    texts = all(is_decimal(given[name]) for name in PARAMETERS if name.split("_")[0] in ("epsilon", "delta"))
    if not (counts and texts and is_decimal(given["threshold"]) and is_count(given["levels"], 1, MOST_LEVELS)):
        raise MalformedAnswer("sizes of a rectangle are whole numbers, its threshold, ε and δ are decimals.")
    if any("range" not in feature for feature in features):
        raise MalformedAnswer("the features of a rectangle are numbers with a range.")
    sides = result["sides"]
    if set(result) != {"found", "sides"} or [side["name"] for side in sides] != [f["name"] for f in features]:
        raise MalformedAnswer("a rectangle has two sides for every feature, in their order.")
    if result["found"] is not all(side[end] is not None for side in sides for end in ("first", "last")):
        raise MalformedAnswer("a rectangle was found where all of its sides were.")
    for feature, side in zip(features, sides, strict=True):
        low, high = feature["range"]
        for end, number in (("first", "from"), ("last", "to")):
            place = side[end]
            known = place is not None and is_count(place, 0, given["levels"])
            text = place_text(place, low, high, given["levels"]) if known else None
            if set(side) != {"name", "first", "last", "from", "to"} or not (known or place is None):
                raise MalformedAnswer("a side of a rectangle is a place of its feature's range, or null.")
            if side[number] != text:
                raise MalformedAnswer("a side of a rectangle is told as another number than that of its place.")


register(RECTANGLE, _check)


def open_rectangle(envelope: bytes, key: VerifyingKey, audience: str | None) -> Rectangle:
    """A rectangle from its envelope. Raises the VerificationFailed of the rule that was broken."""
    return Rectangle(*trusted_answer(envelope, key, audience, RECTANGLE))
