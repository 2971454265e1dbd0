"""A rectangle among the signed answers: an interval of every feature, in which a private rule calls examples positive.

`parameters`: the threshold label from which an example is positive, the features with their public ranges, the number
of `levels` that a range is divided into, and the method for the sides. `result`: for every feature the first and the
last place inside. An example is inside if the place of each of its features is,
`label_dp.companions.maps.places.feature_places`: a value beyond an end of its range counts as that end, and a missing
one is outside. If a side was not found nothing is inside.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from label_dp.companions.costs.charge import check_charge
from label_dp.companions.costs.sessions import RANKS, SLICES, interval_cost
from label_dp.companions.costs.slices import Cost, Step
from label_dp.companions.kinds import own_features
from label_dp.companions.maps.places import feature_places, place_text
from label_dp.documents.kind import WHOLE_EXAMPLE, Facts, Kind
from label_dp.documents.members import ExactDelta, ExactEpsilon, Strict
from label_dp.errors import InvalidInput, MalformedAnswer
from label_dp.schemas.base import SINGULAR, Ask, Word, whole
from label_dp.schemas.features import NumberFeature, number_of
from label_dp.schemas.numbers import Decimalish
from label_dp.schemas.numbers import Number as AnyNumber

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from label_dp.documents.answer import Answer
    from label_dp.documents.signing import VerifyingKey

RECTANGLE = "rectangle"
METHODS = (RANKS, SLICES)
MOST_LEVELS = (1 << 32) - 1
Place = Annotated[int, Field(ge=0, le=MOST_LEVELS)]


class Rectangle(Ask):
    """Answer with an interval of every feature in which examples of large labels lie, signed and charged."""

    model_config = whole({"epsilon": "1", "threshold": 5, "features": [{"name": "age", "range": [0, 90]}]})

    epsilon: Decimalish = Field(
        description="ε of the whole answer; every example of the batch is charged.", examples=["1"]
    )
    delta: Decimalish = Field(
        default="0", description="The most it may take of the population's lifetime δ; what it needs is charged."
    )
    threshold: AnyNumber = Field(description="Examples with labels of at least that are positive.")
    features: Annotated[
        list[NumberFeature],
        Word("--feature", SINGULAR, read=number_of, help="NAME=LOW:HIGH, a number and its public range; repeatable."),
    ] = Field(min_length=1, max_length=16, description="Numbers with public ranges.")
    bits: int = Field(default=16, ge=1, le=32, description="A range is divided into 2^bits places.")
    method: Literal["ranks", "slices"] = Field(
        default="ranks", description="ranks (pure ε where no δ is given, fewest examples) or slices (needs a δ)."
    )
    slice: int | None = Field(
        default=None, ge=1, description="Positive examples a side is looked for among; by default as few as ε needs."
    )
    additional_release: bool = Field(default=False, description="Charge on top of what the batch carries already.")


class RectangleParameters(own_features.Charging):
    """Parameters; `threshold` is the label from which an example is positive, `slice` the number of examples of a
    side."""

    threshold: own_features.FloatText
    features: Annotated[list[own_features.Number], Field(min_length=1, max_length=own_features.MOST_FEATURES)]
    levels: int = Field(ge=1, le=MOST_LEVELS)
    method: Literal["ranks", "slices"]
    slice: int = Field(ge=1, le=own_features.MANY)
    epsilon_per_side: ExactEpsilon
    delta_per_side: ExactDelta

    def cost(self) -> Cost:
        """Compute the cost. Raises InvalidInput and its kinds."""
        sides = 2 * len(self.features)
        if self.examples < sides * self.slice:
            raise InvalidInput("A rectangle needs at least as many examples as its slices have together.")
        epsilon, delta = self.epsilon_per_side.fraction, self.delta_per_side.fraction
        each = interval_cost(self.levels + 1, self.slice, epsilon, delta, by_ranks=self.method == RANKS)
        return self.session().cost(Step(each.epsilon, each.delta), sides)


def rectangle_cost(given: Mapping[str, Any]) -> Cost:
    """Compute the cost from the parameters of a rectangle. Raises InvalidInput and its kinds, ValueError for another
    form."""
    return RectangleParameters.model_validate(given).cost()


class Side(Strict):
    """Places `first` and `last` of a feature that are inside, and the numbers there; null if none was found."""

    name: own_features.Name
    first: Place | None
    last: Place | None
    from_: str | None = Field(alias="from")
    to: str | None


class RectangleResult(Strict):
    """Result: the sides of the rectangle, if one was found."""

    found: bool
    sides: list[Side]


class RectangleFacts(Facts):
    """Facts; `positives_sliced_off` is the mean number of examples that the slices of all sides take.

    At most so many positive examples end outside, unless a side misses its slice.
    """

    positives_sliced_off: int


@dataclass(frozen=True)
class VerifiedRectangle:
    """Verified answer of this kind; `digest` is the SHA-256 of its payload."""

    answer: Answer
    digest: str

    @property
    def found(self) -> bool:
        return bool(self.answer.result["found"])

    @property
    def sides(self) -> list[dict[str, Any]]:
        """Sides: for every feature `name`, the places `first` and `last`, and the numbers `from` and `to` there, or
        nulls."""
        return list(self.answer.result["sides"])

    def contains(self, columns: Mapping[str, Any]) -> npt.NDArray[np.bool_]:
        """Check which rows of a table, given by its columns of m values each, are inside: bool[m]. Raises
        InvalidInput."""
        import numpy as np

        parameters, inside = self.answer.parameters, None
        for feature, side in zip(parameters["features"], self.sides, strict=True):
            place = feature_places(feature, columns, parameters["levels"])
            here = (place >= side["first"]) & (place <= side["last"]) if self.found else np.zeros(len(place), np.bool_)
            inside = here if inside is None else inside & here
        return np.asarray(inside, np.bool_)


def _rule(answer: Answer, parameters: RectangleParameters, result: RectangleResult) -> None:
    own_features.check_features([*parameters.features])
    values = answer.domain.ends
    if parameters.examples > answer.n or not values[0] < float(parameters.threshold) <= values[1]:
        raise MalformedAnswer("the threshold tells nothing of the label domain, or there are too many examples.")
    check_charge(answer, parameters.cost(), WHOLE_EXAMPLE)
    if [side.name for side in result.sides] != [feature.name for feature in parameters.features]:
        raise MalformedAnswer("a rectangle has two sides for every feature, in their order.")
    if not result.found and not parameters.delta_per_side:
        raise MalformedAnswer("a rectangle that costs no δ is always found.")
    if result.found is not all(None not in (side.first, side.last) for side in result.sides):
        raise MalformedAnswer("a rectangle was found where all of its sides were.")
    for feature, side in zip(parameters.features, result.sides, strict=True):
        for place, number in ((side.first, side.from_), (side.last, side.to)):
            if place is not None and place > parameters.levels:
                raise MalformedAnswer("a side of a rectangle is a place of its feature's range, or null.")
            low, high = feature.range
            if number != (None if place is None else place_text(place, low, high, parameters.levels)):
                raise MalformedAnswer("a side of a rectangle is told as another number than that of its place.")


KIND = Kind(RECTANGLE, RectangleParameters, RectangleResult, _rule, Rectangle, "features", facts=(RectangleFacts,))


def open_rectangle(envelope: bytes, key: VerifyingKey, audience: str | None) -> VerifiedRectangle:
    """Open a rectangle from its envelope. Raises the VerificationFailed of the violated rule."""
    return VerifiedRectangle(*KIND.trusted(envelope, key, audience))
