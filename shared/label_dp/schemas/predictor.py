"""A predictor, which stays at the labels party, and a query to it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, StrictFloat, StrictInt, StrictStr

from label_dp.schemas.base import Ask, whole
from label_dp.schemas.features import OF_TABLE, Declared
from label_dp.schemas.numbers import Decimalish, Number


class Predictor(Ask):
    """A model of raw labels that answers single queries. Training it is charged nothing; each new query is charged."""

    model_config = whole(
        {
            "batch": "bat_0123456789abcdef01234567",
            "method": "average",
            "epsilon": "0.1",
            "epsilon_cap": "1",
            "features": [{"name": "age", "range": [0, 90]}, {"name": "sector", "values": ["a", "b"]}],
        }
    )

    batch: str = Field(max_length=64, description="Id of a sealed batch.")
    method: Literal["soft-majority", "average", "stable-ridge", "stable-logistic", "walk"] = Field(
        description="average and stable-ridge answer a value of the domain, stable-logistic a probability of reaching "
        "the threshold, soft-majority and walk 0 or 1."
    )
    epsilon: Decimalish = Field(description="ε of every query.")
    epsilon_cap: Decimalish = Field(description="ε that all its queries may charge together.")
    features: Declared = Field(min_length=1, max_length=64, description=OF_TABLE)
    threshold: Number | None = Field(
        default=None, description="Labels of at least that are 1, others 0; not for average and stable-ridge."
    )
    learner: Literal["ridge", "logistic", "trees"] | None = Field(
        default=None, description="Of the parts of average and soft-majority."
    )
    parts: int | None = Field(
        default=None,
        ge=1,
        le=4096,
        description="Of average and soft-majority: disjoint parts of the examples, each with its model.",
    )
    regularisation: Number | None = Field(
        default=None, description="Of stable-ridge and stable-logistic; default from n and ε."
    )
    centre: Number | None = Field(
        default=None, description="The public value that stable-ridge shrinks to; default the middle of the domain."
    )
    bound: int | None = Field(
        default=None, ge=1, le=1 << 40, description="T of a walk: its value stays within ±T; default from n and ε."
    )
    additional_release: bool = Field(
        default=False, description="Charge queries on top of what the batch carries already."
    )


class PredictorQuery(Ask):
    """One query to a predictor."""

    model_config = whole({"query": {"age": 31, "sector": "a"}})

    query: dict[str, StrictStr | StrictInt | StrictFloat | None] = Field(
        max_length=64, description="A value per feature; what is absent or null is missing."
    )
