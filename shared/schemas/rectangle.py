"""A rectangle: an interval of every feature in which examples of large labels lie."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from shared.schemas.base import SINGULAR, Ask, Word, whole
from shared.schemas.features import NumberFeature, number_of
from shared.schemas.numbers import Decimalish, Number


class Rectangle(Ask):
    """Answer with an interval of every feature in which examples of large labels lie, signed and charged."""

    model_config = whole({"epsilon": "1", "threshold": 5, "features": [{"name": "age", "range": [0, 90]}]})

    epsilon: Decimalish = Field(
        description="ε of the whole answer; every example of the batch is charged.", examples=["1"]
    )
    delta: Decimalish = Field(
        default="0", description="The most it may take of the population's lifetime δ; what it needs is charged."
    )
    threshold: Number = Field(description="Examples with labels of at least that are positive.")
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
