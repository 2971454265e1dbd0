"""The ways of drawing a prediction, as far as a reader can check one: a record of facts for each method.

A method says whether it `classifies`, so that there is a threshold, and defines neighbouring data sets. Its facts are
members of the mechanism. For noise, `step` is its width: the largest move of a prediction by one label, as a share of
the range, over ε.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal

from pydantic import Field

from label_dp.companions.kinds.own_features import FloatText
from label_dp.companions.maps.places import number_text
from label_dp.documents.kind import IN_PARTS, LABEL_ALONE, WALKED, Facts
from label_dp.errors import MalformedAnswer
from label_dp.privacy import Epsilon

GRID: Final = 1048576  # labels are whole numbers from 0 to GRID, their public range
NOISE: Final = "discrete Laplace"


class VoteFacts(Facts):
    """Facts of votes: one of the models on `parts` of the examples is asked at random."""

    parts: int = Field(ge=1, le=1 << 12)


class WalkFacts(Facts):
    """Facts of a walk to `bound` or −`bound`."""

    bound: int = Field(ge=1, le=1 << 40)


class Noise(Facts):
    """Discrete Laplace noise on `grid` steps of the label's range, of the scale for ε."""

    noise: Literal["discrete Laplace"]
    grid: Literal[1048576]
    scale: FloatText

    @property
    @abstractmethod
    def step(self) -> Fraction: ...

    def wide(self, epsilon: Epsilon) -> bool:
        return bool(epsilon) and self.scale == number_text(self.step / epsilon.fraction)


class AverageFacts(Noise):
    """Facts of an average: the mean of models on `parts` of the examples, and noise."""

    parts: int = Field(ge=1, le=1 << 12)

    @property
    def step(self) -> Fraction:
        return Fraction(1, self.parts)


class StableFacts(Noise):
    """Facts of a stable model that one label moves by at most `stability`, a share of the range, and noise."""

    stability: FloatText

    @property
    def step(self) -> Fraction:
        share = Fraction(float(self.stability))  # the float is exact, its shortest spelling need not be
        if share <= 0 or (share * GRID).denominator != 1:
            raise MalformedAnswer("a label moves a prediction by a whole number of steps of the grid.")
        return share


Stated = VoteFacts | AverageFacts | StableFacts | WalkFacts
FORMS = (VoteFacts, AverageFacts, StableFacts, WalkFacts)


@dataclass(frozen=True)
class ReadMethod:
    """Reader of a prediction method: its facts, whether it classifies, and its adjacency."""

    facts: type[Stated]
    classifies: bool
    adjacency: str


METHODS = {
    "soft-majority": ReadMethod(VoteFacts, True, IN_PARTS),
    "average": ReadMethod(AverageFacts, False, IN_PARTS),
    "stable-ridge": ReadMethod(StableFacts, False, LABEL_ALONE),
    "stable-logistic": ReadMethod(StableFacts, True, LABEL_ALONE),
    "walk": ReadMethod(WalkFacts, True, WALKED),
}


def top(facts: Stated) -> int:
    """Return the whole number for the upper end of the method's range; the lower is 0."""
    if isinstance(facts, AverageFacts):
        return facts.parts * GRID
    return GRID if isinstance(facts, StableFacts) else 1
