"""Answers around the message: calibrations, medians, rectangles, linear models and sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from label_dp.client import labels_paths as at
from label_dp.client.asking import Asking, asks, members
from label_dp.client.conversation import Conversation, Json, Request, ask, path, post
from label_dp.client.declared import call
from label_dp.client.listings import linked
from label_dp.client.tables import as_arrow, as_parquet, renamed
from label_dp.companions.kinds.linear_model import LinearModel
from label_dp.companions.kinds.median import Median
from label_dp.companions.kinds.rectangle import Rectangle
from label_dp.documents.kind import Kind
from label_dp.documents.registry import KINDS
from label_dp.schemas.calibration import Allowance, Calibration
from label_dp.schemas.sums import GroupSums

if TYPE_CHECKING:
    from label_dp.columnar.frames import Frame

ASKED = "batches/{}/{}"
P = ParamSpec("P")
M = TypeVar("M", bound=BaseModel)


class CalibrationOf(Calibration):
    """Calibration, and the columns of the table that it reads."""

    model_config = ConfigDict(strict=True)  # members are Python's values here, not the texts of a query

    id_column: str = Field(default="example_id", description="Column of the table with ids.")
    score_column: str = Field(default="score", description="Its column with scores.")
    score_2_column: str | None = Field(default=None, description="Its column with second scores, of a map of two.")


class SumsOf(GroupSums):
    """Sums, and the column of ids in the table that they are by."""

    id_column: str = Field(default="example_id", description="Column of the table with ids.")


def charged(schema: Callable[P, M], word: str) -> Asking[Concatenate[str, P], [str, M], Json]:
    """Make the call that asks for an answer from its schema."""

    def ask_for(self: Any, batch: str, asked: M) -> Conversation[Json]:
        """{told} The whole batch is charged."""
        return post(ASKED, batch, word, body=members(asked))

    return _named(schema, ask_for)  # type: ignore[no-any-return]  # what `asks` makes of it


def planned(schema: Callable[P, M], word: str) -> Asking[Concatenate[str, P], [str, M], Json]:
    """Make the call that previews an answer from its schema."""

    def look(self: Any, batch: str, asked: M) -> Conversation[Json]:
        """Preview the charge and parameters; nothing is charged.

        {told}
        """
        return post(f"{ASKED}/plan", batch, word, body=members(asked))

    return _named(schema, look)  # type: ignore[no-any-return]  # the same


def _named(schema: Any, talk: Any) -> Any:
    talk.__doc__ = talk.__doc__.replace("{told}", schema.__doc__.splitlines()[0])
    return asks(schema)(talk)


class AnswerCalls:
    """Calls of the owner, and of an audience with an allowance. They use the features that `put_features` sent."""

    @call
    def answers(self, since: str | None = None, population: str | None = None) -> Conversation[list[Json]]:
        """List published answers of all kinds for the caller's audience (for the owner: all), the newest last."""
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
        """Set how much ε of a sealed batch its audiences may charge for calibrations; "0" ends the allowance."""
        return ask(Request("PUT", path(at.ALLOWANCE, batch), body=members(asked)))

    @asks(SumsOf)
    def sums_of_table(self, batch: str, table: Frame, asked: SumsOf) -> Conversation[Json]:
        """Charge the batch and ask for sums of labels by columns of `table`, in place of the features sent before."""
        options = members(asked)
        return ask(as_parquet("POST", path(at.SUMS_OF_TABLE, batch), table, **options))

    @asks(Allowance)
    def allow_sums(self, batch: str, asked: Allowance) -> Conversation[Json]:
        """Set how much ε of a sealed batch its audiences may charge for sums; "0" ends the allowance."""
        return ask(Request("PUT", path(at.SUMS_ALLOWANCE, batch), body=members(asked)))

    if TYPE_CHECKING:  # `declare` makes these, and those of new kinds
        median = charged(Median, "medians")
        rectangle, plan_rectangle = charged(Rectangle, "rectangles"), planned(Rectangle, "rectangles")
        linear_model = charged(LinearModel, "linear-models")
        sums, plan_sums = charged(GroupSums, "sums"), planned(GroupSums, "sums")
        plan_linear_model = planned(LinearModel, "linear-models")


def declare(kind: Kind[Any, Any]) -> None:
    """Add the calls of a kind of answer under the name of its command; `calibrate` is declared above."""
    if kind.asks is None or kind.beside == "scores":
        return
    name, word = kind.command.replace("-", "_"), f"{kind.name}s"
    setattr(AnswerCalls, name, charged(kind.asks, word))
    if kind.beside == "features":
        setattr(AnswerCalls, f"plan_{name}", planned(kind.asks, word))


for kind in KINDS.values():
    declare(kind)
