"""A median: one value with about a third of a batch's labels on either side."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from shared.schemas.base import Ask, whole
from shared.schemas.numbers import Decimalish


class Median(Ask):
    """Answer with one approximate median of the labels, signed and charged to the ledger."""

    model_config = whole({"epsilon": "0.5"})

    epsilon: Decimalish = Field(description="ε of this median; the whole batch is charged.")
    delta: Decimalish = Field(default="0", description="δ of this median, of the lifetime δ; by slices only.")
    method: Literal["auto", "slices", "ranks"] = Field(
        default="auto",
        description="ranks (pure ε, fewer labels), slices (with a δ beyond 128 values), auto: slices if a δ is given.",
    )
    additional_release: bool = Field(default=False, description="Charge on top of what the batch carries already.")
