"""Sums by group, as they are asked for."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from label_dp.schemas.base import Ask, Word, whole
from label_dp.schemas.numbers import Decimalish

MOST_GROUPINGS = 16


class GroupSums(Ask):
    """Answer with the sum and mean of labels in every group of public columns, signed and charged."""

    model_config = whole({"epsilon": "0.1", "by": ["campaign", "country,device"]})

    epsilon: Decimalish = Field(
        description="ε of the whole answer, in equal parts for each grouping; every example of the batch is charged.",
        examples=["0.1"],
    )
    by: Annotated[list[str], Word(help="Column to group by, or several with commas; again for further groupings.")] = (
        Field(
            default=[],
            max_length=MOST_GROUPINGS,
            examples=[["campaign", "country,device"]],
            description="Groupings, each by a column of the stored features or by several with commas. The columns are "
            "public: their values and how many examples have them go into the answer as they are. May be left out only "
            "where the columns are a table of codes.",
        )
    )
    additional_release: bool = Field(default=False, description="Charge on top of what the batch carries already.")
