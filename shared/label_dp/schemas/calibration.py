"""A calibration: a private map from a model's scores to the label. Its scores come as a table beside what is asked."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field

from label_dp.errors import InvalidInput
from label_dp.schemas.base import Ask, QueryAsk, Word, whole
from label_dp.schemas.numbers import Decimalish, ShortDecimalish

# `test_calibration_shapes.py` holds it against the registry of shapes
OPTIONS = {
    "bins": "cells (such as cells=64, or cells=16x16 of two scores)",
    "monotone": "levels",
    "pieces": "pieces (needed), cells, values",
    "linear": "pieces (needed), knots, steps, values",
    "lipschitz": "lipschitz (needed), knots, steps, values",
    "convex": "knots, steps, values",
    "concave": "knots, steps, values",
    "grid": "cells (such as cells=8x8), values",
}
SHAPES = (
    "auto (bins), bins (one score or two), monotone, pieces, "
    "linear, lipschitz, convex, concave; or grid, of two scores."
)
FILE_OF_SCORES = "--scores is the file of scores"


class Calibration(QueryAsk):
    """Answer scores of examples with one signed, private map to the label that never falls, charged to the ledger."""

    epsilon: ShortDecimalish = Field(description="ε of this calibration; the whole batch is charged.")
    loss: str = Field(default="squared", max_length=40, description="squared (means) or absolute (medians).")
    shape: str = Field(default="auto", max_length=40, description=SHAPES)
    option: list[str] = Field(
        default=[],
        max_length=8,
        description="NAME=VALUE of the shape; repeatable. "
        + "; ".join(f"{shape} takes {takes}" for shape, takes in OPTIONS.items())
        + ".",
    )
    scores: Annotated[str, Word("--numbers", FILE_OF_SCORES)] = Field(
        default="float32", max_length=140, description="How scores are numbered: float32 (any scale), or LO:HI:STEPS."
    )
    scores_2: Annotated[str | None, Word("--numbers-2", FILE_OF_SCORES)] = Field(
        default=None, max_length=140, description="The same for second scores (float32 if not given)."
    )
    additional_release: bool = Field(default=False, description="Charge on top of what the batch carries already.")

    def numbered(self, *, two: bool) -> Self:
        """Return a copy in which second scores are numbered, if `two`."""
        return self.model_copy(update={"scores_2": "float32"}) if two and self.scores_2 is None else self

    @property
    def options(self) -> dict[str, str]:
        """Options of the shape, by name. Raises InvalidInput."""
        options: dict[str, str] = {}
        for text in self.option:
            name, equals, value = text.partition("=")
            if not equals or not name or name in options:
                raise InvalidInput("An option of a shape is written NAME=VALUE, each name once.")
            options[name] = value
        return options


class Allowance(Ask):
    """What the audiences of a batch may charge in all by calibrations that they ask for."""

    model_config = whole({"epsilon": "0.5"})

    epsilon: Decimalish = Field(description="ε that its audiences may charge in all by calibrations; 0 ends it.")
