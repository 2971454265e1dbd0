"""Answers around the message: calibrations, medians, rectangles and linear models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import ConfigDict, Field

from shared.client import labels_paths as at
from shared.client.asking import asks, members
from shared.client.conversation import Conversation, Json, Request, ask, path, post
from shared.client.declared import call
from shared.client.listings import linked
from shared.client.tables import as_arrow, renamed
from shared.schemas.calibration import Allowance, Calibration
from shared.schemas.linear_model import LinearModel
from shared.schemas.median import Median
from shared.schemas.rectangle import Rectangle

if TYPE_CHECKING:
    from shared.columnar.frames import Frame


class CalibrationOf(Calibration):
    """A calibration, and which columns of the table hold what it is of."""

    model_config = ConfigDict(strict=True)  # members are Python's values here, not the texts of a query

    id_column: str = Field(default="example_id", description="Column of the table with ids.")
    score_column: str = Field(default="score", description="Its column with scores.")
    score_2_column: str | None = Field(default=None, description="Its column with second scores, of a map of two.")


class AnswerCalls:
    """Calls of the owner, and of an audience for what it was allowed."""

    @call
    def answers(self, since: str | None = None, population: str | None = None) -> Conversation[list[Json]]:
        """Every published answer that is meant for us (for the owner: all), of whatever kind, the newest last."""
        return linked(at.ANSWERS, since=since, population=population)

    @asks(CalibrationOf)
    def calibrate(self, batch: str, table: Frame, asked: CalibrationOf) -> Conversation[Json]:
        """Charge the batch and ask for a private monotone map from the scores in `table` to the label.

        All scores go in one call, so that they are charged once. With `score_2_column` the map has two scores.
        """
        columns = {"example_id": asked.id_column, "score": asked.score_column, "score_2": asked.score_2_column}
        options = members(asked, "id_column", "score_column", "score_2_column")
        if asked.score_2_column is not None:  # a second score is named, or it would be passed over
            options["score_2_column"] = "score_2"
        return ask(as_arrow("POST", path(at.CALIBRATIONS, batch), renamed(table, columns), **options))

    @asks(Allowance)
    def allow_calibrations(self, batch: str, asked: Allowance) -> Conversation[Json]:
        """How much of a sealed batch its audiences may charge by calibrations they ask for; "0" ends it."""
        return ask(Request("PUT", path(at.ALLOWANCE, batch), body=members(asked)))

    @asks(Median)
    def median(self, batch: str, asked: Median) -> Conversation[Json]:
        """Charge the batch and ask for an approximate median of its labels."""
        return post(at.MEDIANS, batch, body=members(asked))

    @asks(Rectangle)
    def rectangle(self, batch: str, asked: Rectangle) -> Conversation[Json]:
        """Charge the batch and ask for an interval of every feature that labels of at least `threshold` lie in.

        The features are those of the table that `put_features` sent.
        """
        return post(at.RECTANGLES, batch, body=members(asked))

    @asks(Rectangle)
    def plan_rectangle(self, batch: str, asked: Rectangle) -> Conversation[Json]:
        """What `rectangle` would charge, and how many positive examples it would leave outside; nothing is charged."""
        return post(at.RECTANGLE_PLAN, batch, body=members(asked))

    @asks(LinearModel)
    def linear_model(self, batch: str, asked: LinearModel) -> Conversation[Json]:
        """Charge the batch and ask for a linear model of the label, trained once through the batch.

        The features are those of the table that `put_features` sent.
        """
        return post(at.LINEAR_MODELS, batch, body=members(asked))

    @asks(LinearModel)
    def plan_linear_model(self, batch: str, asked: LinearModel) -> Conversation[Json]:
        """What `linear_model` would charge, and what a step would get of it; nothing is charged."""
        return post(at.LINEAR_MODEL_PLAN, batch, body=members(asked))
