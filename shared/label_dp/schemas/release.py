"""A release: the one privatized message of a batch."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from label_dp.schemas.base import EXPERT, Ask, Word, whole
from label_dp.schemas.numbers import Decimalish, Number, text_of


class LossMatrix(Ask):
    """Any loss: `matrix` has a row for each of `labels` and a column for each of `outputs`."""

    labels: list[float]
    outputs: list[float]
    matrix: list[list[float]]


def _ends(text: str) -> Any:
    return text if text == "auto" else text.split(":")


def _end_texts(ends: list[str | int | float]) -> list[str | int | float]:
    return [text_of(end) for end in ends]


OPTION = Word(expert=True, to="mechanism")
MECHANISMS = (
    "rr-on-bins",
    "one-bit",
    "unbiased",
    "balanced",
    "rr",
    "rr-with-prior",
    "subset-selection",
    "laplace",
    "discrete-laplace",
    "staircase",
    "discrete-staircase",
    "exponential",
)


class Release(Ask):
    """One message of a batch: drawn once, served byte-identical for ever."""

    model_config = whole({"epsilon": "1", "mechanism": "one-bit"})

    epsilon: Decimalish = Field(description="ε of this release, all parts included.")
    mechanism: str = Field(
        default="auto",
        examples=["auto", "rr-on-bins", "one-bit"],
        description="auto (the best for a model, by the private prior, n and ε), "
        f"{', '.join(MECHANISMS[:-1])} or {MECHANISMS[-1]} (the paper's baseline: it charges ε and proves ε/2, unless "
        "`tight`).",
    )
    loss: Annotated[
        str | LossMatrix | None,
        Word(
            help="squared (the default of numbers), absolute, poisson, log (that of classes), or a file with a loss "
            "matrix."
        ),
    ] = Field(
        default=None,
        examples=["squared", "absolute", "poisson", "log"],
        description="squared (the default of numbers), absolute, poisson, log (of labels within 0 to 1, and the "
        "default of more than two classes), or a matrix.",
    )
    prior: Annotated[
        str | dict[str, Any] | None,
        Word(help="estimate, uniform, latest (carried over), a file (label, probability), or an own message."),
    ] = Field(
        default=None,
        examples=["estimate", "uniform", "latest", {"release": "rel_…"}, {"probabilities": [0.5, 0.5]}],
        description="'latest': that of the population's newest published release, at no cost; estimated if none is. "
        "By default estimated where the mechanism uses one; of two values `auto` uses none.",
    )
    prior_epsilon: Decimalish = Field(default="auto", description="auto, theorem7, or the ε that the prior may cost.")
    prior_method: Annotated[Literal["project", "clip"], EXPERT] = Field(
        default="project", description="How a noisy prior becomes one: Euclidean projection, or the paper's clip."
    )
    clip: Annotated[
        Annotated[list[Number], AfterValidator(_end_texts)] | Literal["auto"] | None,
        Word(
            expert=True,
            to="mechanism",
            read=_ends,
            help="One bit only: A:B, public clipping ends, or auto (by the prior).",
        ),
    ] = Field(
        default=None,
        description="One bit only: public clipping ends, or 'auto': from the prior. By default those of the domain.",
        examples=[["0", "200"], "auto"],
    )
    unclipped: Annotated[bool, OPTION] = Field(
        default=False, description="Additive noise only: outputs may leave the domain."
    )
    tight: Annotated[bool, OPTION] = Field(
        default=False,
        description="exponential only: scale Δ/ε, which uses all of ε, instead of the paper's 2Δ/ε, whose channel "
        "proves ε/2.",
    )
    clip_quantile: Annotated[Decimalish | list[Decimalish] | None, EXPERT] = Field(
        default=None,
        examples=["0.95", ["0.05", "0.95"]],
        description="Labels are clipped at this quantile (0.95, or 0.05:0.95), bought with `clip_epsilon` of ε.",
    )
    clip_epsilon: Annotated[Decimalish | None, EXPERT] = Field(
        default=None, examples=["0.05"], description="Of ε, what the clipping bounds of `clip_quantile` cost."
    )
    additional_release: bool = Field(
        default=False, description="Allow, and charge, a further release of the same examples."
    )
