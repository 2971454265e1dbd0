"""The kinds of answers that can be asked for of a batch; commands, and whoever serves all of them, go by this list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from shared.schemas.base import Ask
from shared.schemas.calibration import Calibration
from shared.schemas.linear_model import LinearModel
from shared.schemas.median import Median
from shared.schemas.rectangle import Rectangle


@dataclass(frozen=True)
class AnswerAsk:
    """`kind` in documents, the `command`, what is asked, and what it is made of `beside` the labels."""

    kind: str
    command: str
    schema: type[Ask]
    beside: Literal["nothing", "scores", "features"] = "nothing"


ANSWERS = [
    AnswerAsk("calibration", "calibrate", Calibration, "scores"),
    AnswerAsk("median", "median", Median),
    AnswerAsk("rectangle", "rectangle", Rectangle, "features"),
    AnswerAsk("linear-model", "linear-model", LinearModel, "features"),
]
