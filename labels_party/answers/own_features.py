"""Answers made of a sealed batch and of the labels party's own features of its examples.

The whole example is protected, its label and its features. What is public: the ids, which of them have features, and
the declared ranges and values of features. Only the owner asks. Everything that n, ε and δ can tell is told before a
charge, and a table of features stays in its place until the answers that were charged for it are computed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from sqlalchemy.engine import Connection

from labels_party.answers.answers import Answers
from labels_party.answers.kind import AnswerJob, AnswerRequest
from labels_party.budget.populations import Population
from labels_party.labels.batches import SEALED
from labels_party.mechanisms.private_median.accounting import Cost
from labels_party.predictors.features import FeatureStore
from labels_party.predictors.schema import Schema
from labels_party.storage.idempotency import NO_KEY, Answer, IdempotentCall
from shared.domain import Domain
from shared.errors import InvalidEpsilon, InvalidInput, LabelDPError
from shared.privacy import ATTO, ZERO, Epsilon, EpsilonSplit, parse_delta

EXAMPLE = (
    "replace one example, its label and its features; ids, which of them have features, and their number are public"
)
LEAST_EPSILON, LARGEST_EPSILON = Epsilon.parse("0.001"), Epsilon.parse(64)
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Planned:
    """What an answer would be charged, exactly, and its public parameters, which settle everything but the draw.

    `facts`: those of the mechanism in the signed document, such as the bound that is charged.
    """

    split: EpsilonSplit
    parameters: dict[str, Any]
    facts: dict[str, str | int | bool | None]


class Wish(Protocol):
    """What is asked for, checked as far as it can be without the batch; all of it public."""

    @property
    def kind(self) -> str: ...

    @property
    def schema(self) -> Schema: ...

    @property
    def epsilon(self) -> Epsilon: ...

    @property
    def additional_release(self) -> bool: ...

    def plan(self, domain: Domain, n: int) -> Planned:
        """For n examples with features. Raises InvalidInput, InvalidEpsilon."""


class FeatureAnswers:
    """The service; kinds of answers compute."""

    def __init__(self, answers: Answers, features: FeatureStore) -> None:
        self.answers, self.features = answers, features
        self.database = answers.database

    def plan(self, batch_id: str, wish: Wish) -> Planned:
        """What `request` would charge and do; nothing is charged, and no label is read. Raises as it does, but for
        budgets."""
        return self._planned(batch_id, wish)[0]

    def request(self, batch_id: str, wish: Wish, actor: str, call: IdempotentCall = NO_KEY) -> Answer:
        """Charge, and queue the computation; (202, the answer).

        Raises what `Answers.request` and `Wish.plan` raise, Conflict (no features), InvalidTable, InvalidRows (what is
        wrong with the features), Unavailable; then nothing was charged.
        """
        earlier = self.database.read(f"{wish.kind}.seen", call.earlier)
        if earlier is not None:
            return earlier
        planned, features_key = self._planned(batch_id, wish)
        asked = AnswerRequest(
            wish.kind, planned.split, planned.parameters, wish.additional_release, features=features_key
        )
        return self.answers.request(batch_id, asked, actor, call)

    def _planned(self, batch_id: str, wish: Wish) -> tuple[Planned, str]:
        bare = AnswerRequest(wish.kind, EpsilonSplit(ZERO, ZERO, wish.epsilon), {}, wish.additional_release)

        def look(connection: Connection) -> tuple[Population, str, str]:
            _, population = self.answers.allowed(connection, batch_id, bare)
            (sealed,) = self.answers.batches.segments(connection, batch_id, SEALED)
            return population, sealed.key, self.features.key(connection, batch_id)

        population, sealed_key, features_key = self.database.read(f"{wish.kind}.look", look)
        n = self.features.count(sealed_key, features_key, wish.schema)
        if n < 1:
            raise InvalidInput("No example of the batch has features; send a table of features with its example ids.")
        return wish.plan(population.domain, n), features_key


def parse_total(epsilon: str | int | float, delta: str | int | float, what: str) -> tuple[Epsilon, int]:
    """(ε, atto-δ) of a whole answer. Raises InvalidEpsilon."""
    asked, atto = Epsilon.parse(epsilon, positive=True), parse_delta(delta)
    if asked < LEAST_EPSILON or asked > LARGEST_EPSILON:
        raise InvalidEpsilon(f"A {what} needs an ε between {LEAST_EPSILON} and {LARGEST_EPSILON}.")
    if atto >= ATTO:
        raise InvalidEpsilon("δ must lie below 1.")
    return asked, atto


def check_paid(cost: Cost, job: AnswerJob) -> None:
    """Fails an answer, before a label is read, whose plan costs more than was charged for it. Raises LabelDPError."""
    needed = cost.split()
    if needed.total > job.split.total or needed.delta_atto > job.split.delta_atto:
        raise LabelDPError(f"The plan of answer '{job.answer}' costs more than was charged for it.")


def examples(features: FeatureStore, job: AnswerJob, schema: Schema) -> tuple[IntArray, IntArray]:
    """(codes int64[n, p], label positions int64[n]) of the examples with features, in the order of ids.

    Raises Unavailable."""
    met = list(features.met(job.labels, job.features, schema))
    codes = [np.zeros((0, len(schema.features)), np.int64), *(codes for _, codes, _ in met)]
    return np.concatenate(codes), np.concatenate([np.zeros(0, np.int64), *(positions for _, _, positions in met)])
