"""What a kind of answer brings along: its name, and how its result follows from sealed labels.

A kind runs only for a charged answer under a lease. It shows nothing to anybody: what it returns becomes visible with
the publication of the attempt, or never (invariant 2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from labels_party.budget.populations import Population
from labels_party.labels.seal import SealedLabels
from shared.message.answer import AnswerMechanism
from shared.privacy import EpsilonSplit

REPLACE_ONE = "replace one example's label; ids, their number and everything that was sent beside them are public"


@dataclass(frozen=True)
class AnswerJob:
    """Everything an attempt needs. `parameters` are public; `inputs` is the folder of public inputs, if there are, and
    `features` the key of the owner's table of features that the answer is made of."""

    answer: str
    population: Population
    labels: SealedLabels
    n: int
    split: EpsilonSplit
    parameters: Mapping[str, Any]
    inputs: Path | None
    features: str = ""


@dataclass(frozen=True)
class Computed:
    """`result` is JSON of strings, whole numbers, booleans, lists and objects."""

    result: dict[str, Any]
    mechanism: AnswerMechanism


class AnswerKind(Protocol):
    """`name` is the kind in the signed document, which `shared.message.answer.register` must know."""

    @property
    def name(self) -> str: ...

    @property
    def adjacency(self) -> str:
        """What neighbouring data sets are, for the signed document."""

    def compute(self, job: AnswerJob) -> Computed:
        """The result, within the ε (and δ) of `job.split`, whatever the labels are.

        Raises Unavailable for what may pass (disk, randomness) and does not depend on labels; it is then computed
        again at no charge. Whatever else it raises fails the answer, whose charge is kept.
        """


@dataclass(frozen=True)
class AnswerRequest:
    """What is asked for: all of it public, and checked by whoever made it.

    `inputs` names a folder below `answers/` of the home, which belongs to the answer from then on and is deleted with
    its end; `inputs_mac` tells whether two requests have the same inputs. `audiences` None: those of the population.
    `by_audience` is the audience that asks for itself, within the owner's allowance. `features`: the key of the owner's
    table that the answer is made of, and that must still be there when it is charged.
    """

    kind: str
    split: EpsilonSplit
    parameters: dict[str, Any]
    additional_release: bool = False
    audiences: tuple[str, ...] | None = None
    by_audience: str | None = None
    inputs: str = ""
    inputs_mac: str = ""
    features: str = ""
