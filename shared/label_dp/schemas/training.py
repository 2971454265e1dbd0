"""A training of the features party."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from label_dp.numbers import BadSpelling, real_of
from label_dp.schemas.base import NO_OPTION, Ask, Word, whole


def _share(text: str) -> float:
    try:
        return float(real_of(text))
    except BadSpelling:
        raise ValueError("a number from 0 to 1") from None


SHARE = Word(read=_share)
UNMATCHED = "Where more than this share of the ids of messages has no features,"
OF_FILES = Word(NO_OPTION, "`train` takes files and makes a folder")


OLD_NAMES = {"gbdt": "ensemble"}


def model_name(model: Any) -> Any:
    """Return today's name of a model, for its old name too."""
    return OLD_NAMES.get(model, model) if isinstance(model, str) else model


class Learning(Ask):
    """How a model is made of messages and features; `train` takes both from files."""

    model: Annotated[Literal["ensemble", "trees", "linear", "mlp"], BeforeValidator(model_name)] = Field(
        default="ensemble",
        description="`ensemble` (once `gbdt`): boosted trees, with additive models and a Gaussian process if labels "
        "allow validation; `trees`: boosted trees alone; `linear`: ridge; `mlp`: a neural network, if PyTorch is "
        "installed.",
    )
    loss: Literal["squared", "absolute", "poisson", "log"] | None = Field(
        default=None,
        description="squared, absolute, poisson, or log (trained through the channel to predict probabilities: of the "
        "larger of two labels, or of 3 to 100 labels as classes without order). Default: the loss of the messages, and "
        "log for labels 0 and 1 and for named classes.",
    )
    correction: Literal["auto", "none", "debias", "posterior"] = Field(
        default="auto",
        description="auto (what a model learns best from, by the noise and the rows), none (outputs as drawn), debias "
        "(no bias, whatever the noise) or posterior (the expected label of an output).",
    )
    categorical: list[str] = Field(
        default=[], max_length=10_000, description="Columns to treat as categories (text already is)."
    )
    exclude: list[str] = Field(default=[], max_length=10_000, description="Columns to leave out.")
    warn_unmatched: Annotated[float, SHARE] = Field(
        default=0.25, ge=0, le=1, description=f"{UNMATCHED} it is said aloud."
    )
    refuse_unmatched: Annotated[float, SHARE] = Field(
        default=1.0, ge=0, le=1, description=f"{UNMATCHED} nothing is made."
    )
    warm_start: str | None = Field(
        default=None,
        min_length=1,
        max_length=1000,
        examples=["m_0123456789abcdef"],
        description="An earlier model, such as yesterday's, by id (on the command line also by folder): its members "
        "and crossed effects alone are looked at, which is quicker. Weights and sizes come from the new labels.",
    )


class Training(Learning):
    """A training on a stored feature table and accepted messages."""

    model_config = whole(
        {
            "feature_table": "ft_0123456789abcdef",
            "messages": ["rel_0123456789abcdef"],
            "model": "ensemble",
            "name": "weekly revenue, ε 1",
        }
    )

    feature_table: Annotated[str, OF_FILES] = Field(
        max_length=40, examples=["ft_0123456789abcdef"], description="Id of a stored table."
    )
    messages: Annotated[list[str], OF_FILES] = Field(
        min_length=1,
        max_length=1000,
        examples=[["rel_0123456789abcdef"]],
        description="Release ids; the digest where two labels parties chose the same id.",
    )
    name: Annotated[str | None, OF_FILES] = Field(
        default=None, min_length=1, max_length=200, examples=["weekly revenue, ε 1"], description="For people."
    )
    note: Annotated[str | None, OF_FILES] = Field(
        default=None, max_length=2000, description="For people; shown as it was sent."
    )
