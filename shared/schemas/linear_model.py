"""A linear model: private weights of features, trained once through the labels of a batch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from shared.schemas.base import SINGULAR, Ask, Word, whole
from shared.schemas.features import FORM, Feature, feature_of
from shared.schemas.numbers import Decimalish


class LinearModel(Ask):
    """Answer with private weights of features, trained once through the labels of a batch, signed and charged."""

    model_config = whole(
        {"epsilon": "1", "features": [{"name": "age", "range": [0, 90]}, {"name": "sector", "values": ["a", "b"]}]}
    )

    epsilon: Decimalish = Field(
        description="ε of the whole answer; every example of the batch is charged.", examples=["1"]
    )
    delta: Decimalish = Field(
        default="0", description="The most it may take of the population's lifetime δ; what it needs is charged."
    )
    features: Annotated[
        list[Feature],
        Word("--feature", SINGULAR, read=feature_of, help=f"{FORM}; repeatable."),
    ] = Field(
        min_length=1,
        max_length=64,
        description="Columns of the table of features: numbers by their public `range`, texts by their `values`.",
    )
    rule: Literal["uniform", "easiest", "hardest", "largest-prediction"] = Field(
        default="uniform", description="Which examples come first; all but uniform choose by the model so far."
    )
    steps: int | None = Field(default=None, ge=1, le=1000, description="How many minibatches; by default by n.")
    minibatch: int | None = Field(default=None, ge=1, description="Examples of one; by default by n.")
    clip: int = Field(default=2, ge=1, le=64, description="The most one example may contribute to a gradient (L1).")
    rate: Decimalish | None = Field(
        default=None, description="Learning rate; by default 1, or 0.25 where examples are chosen."
    )
    additional_release: bool = Field(default=False, description="Charge on top of what the batch carries already.")
