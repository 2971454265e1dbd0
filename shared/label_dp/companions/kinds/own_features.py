"""Members of answers made of the labels party's own features: declared features, and the composition of steps."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from label_dp.companions.costs.sessions import SessionBound
from label_dp.companions.costs.slices import LARGEST_MEAN, MOST_RHO
from label_dp.companions.maps.places import number_text
from label_dp.documents.members import ExactDelta, Strict
from label_dp.errors import MalformedAnswer

PLAIN = re.compile(r"(?!-0\Z)-?(0|[1-9][0-9]{0,319})(\.[0-9]{0,339}[1-9])?", re.ASCII)
MOST_FEATURES, MOST_VALUES, MOST_TEXT = 64, 100, 200
LARGEST = 10**100  # end of a range
MANY = 1 << 53  # whole numbers of canonical JSON are below


def _spelled(good: Callable[[str], bool], what: str) -> Callable[[str], str]:
    def check(value: str) -> str:
        if not good(value):
            raise ValueError(what)
        return value

    return check


def is_plain(value: str) -> bool:
    """Check for a decimal number in its one spelling."""
    return PLAIN.fullmatch(value) is not None


def is_float(value: str) -> bool:
    """Check for a 64-bit float as `number_text` spells it."""
    return is_plain(value) and number_text(float(value)) == value


PlainText = Annotated[str, AfterValidator(_spelled(is_plain, "it is a decimal number in its one spelling"))]
FloatText = Annotated[str, AfterValidator(_spelled(is_float, "it is a 64-bit float as a decimal in its one spelling"))]
Name = Annotated[str, Field(max_length=MOST_TEXT)]
Rho = Annotated[str, Field(pattern=r"^[1-9][0-9]{0,59}$")]


class Number(Strict):
    """A feature with a public range of two decimals."""

    name: Name
    range: Annotated[list[PlainText], Field(min_length=2, max_length=2)]


class Category(Strict):
    """A feature with public values."""

    name: Name
    values: Annotated[list[Name], Field(min_length=1, max_length=MOST_VALUES)]


Features = Annotated[list[Number | Category], Field(min_length=1, max_length=MOST_FEATURES)]


class Charging(Strict):
    """Composition of a session of slices: the bound by which it is charged, its δ and its numbers ρ, and the mean noise
    of a slice's size, 0 for none."""

    slice_noise: int = Field(ge=0, le=LARGEST_MEAN)
    delta_of_bound: ExactDelta
    bound: Literal["composition", "advanced composition", "noisy slices"]
    rho: Annotated[list[Rho], Field(max_length=MOST_RHO)]
    examples: int = Field(ge=1, le=1 << 40)

    def session(self) -> SessionBound:
        return SessionBound(
            self.bound, self.delta_of_bound.fraction, [int(text) for text in self.rho], self.slice_noise, self.examples
        )


def check_features(features: list[Number | Category]) -> None:
    """Raise MalformedAnswer if names, values or ranges are invalid."""
    if len({feature.name for feature in features}) != len(features):
        raise MalformedAnswer("every feature has a name of its own.")
    for feature in features:
        if isinstance(feature, Category):
            if len(set(feature.values)) != len(feature.values):
                raise MalformedAnswer("the values of a feature are different texts.")
            continue
        low, high = (Fraction(end) for end in feature.range)
        if max(map(len, feature.range)) > MOST_TEXT or max(abs(low), abs(high)) > LARGEST or float(low) >= float(high):
            raise MalformedAnswer("the range of a feature is two decimals, the lower one first.")


def plain(features: list[Number | Category]) -> list[dict[str, Any]]:
    """Return the features as documents hold them."""
    return [feature.model_dump() for feature in features]
