"""A plan: what each mechanism would give at each ε. Nothing is charged for it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from label_dp.schemas.base import EXPERT, QueryAsk
from label_dp.schemas.numbers import PLAIN


class Plan(QueryAsk):
    """Made of public and already private facts only."""

    epsilon: list[str] = Field(examples=[["0.5", "1"]], description="ε to plan for, one or several.")
    n: Annotated[int | None, Field(ge=1), PLAIN] = Field(
        default=None, description="Number of examples; or name a batch."
    )
    batch: str | None = Field(default=None, description="A sealed batch.")
    loss: str | None = Field(
        default=None, description="squared (the default), absolute, poisson or log (that of more than two classes)."
    )
    prior: str | None = Field(
        default=None,
        description="latest: as with a carried-over prior, which costs no ε. estimate: with one also for two values.",
    )
    assume_rate: list[str] = Field(
        default=[],
        examples=[["0.001"]],
        max_length=16,
        description="Of two values: a share of the higher one that you assume, to see what can be learnt at it.",
    )
    clip_quantile: Annotated[str | None, EXPERT] = Field(
        default=None, description="As with clipping at this quantile (0.95, or 0.05:0.95), bought with `clip_epsilon`."
    )
    clip_epsilon: Annotated[str | None, EXPERT] = Field(
        default=None, description="Of every ε, what the clipping bounds cost."
    )
    codes: Annotated[int, Field(ge=1, le=16), PLAIN, EXPERT] = Field(
        default=8,
        description="Public codes that a features party would send for sums: below which ε a model of these is better.",
    )
