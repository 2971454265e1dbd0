"""Answers computed from a sealed batch and the labels party's own features of its examples.

The whole example is protected, its label and its features. Public are the ids, which of them have features, and the
declared ranges and values of features. Only the owner may request one. Every refusal that n, ε and δ allow comes before
a charge, and a table of features is not replaced until the answers charged for it are computed.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Generic, Self, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel
from sqlalchemy.engine import Connection

from label_dp.companions.costs.sessions import rho_texts
from label_dp.companions.costs.slices import Cost, SliceNoise
from label_dp.documents.kind import WHOLE_EXAMPLE, Facts
from label_dp.documents.signing import SigningKey
from label_dp.domain import Domain
from label_dp.errors import Conflict, EpsilonNotProved, InvalidEpsilon, InvalidInput
from label_dp.privacy import ATTO, Epsilon, EpsilonSplit, delta_string, parse_delta
from labels_party.companions.kinds.answer import AnswerKind, Parts, require_order
from labels_party.companions.kinds.feature_schema import Schema
from labels_party.companions.kinds.feature_store import FeatureStore
from labels_party.companions.mechanisms.private_median.rsc import SessionPlan
from labels_party.labels.batches import SEALED, Batch
from labels_party.ledger.populations import Population
from labels_party.work.kind import Job, PlannedWork, PreviewedKind

LEAST_EPSILON, LARGEST_EPSILON = Epsilon.parse("0.001"), Epsilon.parse(64)
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Planned:
    """Exact charge of an answer and its public parameters, which fix everything but the draw.

    `facts`: those of the mechanism in the signed document, such as the charged bound.
    """

    split: EpsilonSplit
    parameters: dict[str, Any]
    facts: Facts


S = TypeVar("S", bound=BaseModel)


@dataclass(frozen=True)
class Wish(Generic[S]):
    """Request, checked as far as possible without the batch; all of it public."""

    asked: S
    epsilon: Epsilon
    delta_atto: int
    schema: Schema

    @property
    def cost(self) -> Cost:
        """Largest possible charge."""
        return Cost(self.epsilon.fraction, Fraction(self.delta_atto, ATTO))

    def session(self, n: int, found: SessionPlan, noise: SliceNoise | None, slack: Fraction) -> dict[str, Any]:
        """Return parameters of an answer from n examples that says how its steps compose."""
        return {
            "features": self.schema.as_json(),
            "examples": n,
            "levels": self.schema.levels,
            "slice_noise": 0 if noise is None else noise.mean,
            "delta_of_bound": delta_string(int(slack * ATTO)),
            "bound": found.rule,
            "rho": rho_texts(found.rho),
        }


class FeatureKind(AnswerKind[Wish[S]], PreviewedKind[S, Wish[S]]):
    """Answer computed from the table of features; its schema has members `epsilon`, `delta` and `features`."""

    adjacency = WHOLE_EXAMPLE

    def __init__(self, key: SigningKey, features: FeatureStore) -> None:
        super().__init__(key)
        self.features = features

    @classmethod
    def made(cls, parts: Parts) -> Self:
        return cls(parts.key, parts.features)

    @classmethod
    @abstractmethod
    def levels(cls, asked: S) -> int:
        """Return the number of levels of a number's range."""

    @classmethod
    @abstractmethod
    def planned(cls, wish: Wish[S], domain: Domain, n: int) -> Planned:
        """Plan an answer for n examples with features. Raises InvalidInput, InvalidEpsilon."""

    @classmethod
    def wish(cls, _population: Population, body: S) -> Wish[S]:
        """Parse a request. Raises InvalidEpsilon, InvalidInput."""
        fields: Any = body
        total = parse_total(fields.epsilon, fields.delta, cls.name.replace("-", " "))
        features = [feature.model_dump() for feature in fields.features]
        return Wish(body, *total, Schema.from_json(features, cls.levels(body)))

    def plan(self, batch: Batch, population: Population, wish: Wish[S]) -> PlannedWork:
        """Plan the work. Raises as `planned`, Conflict (no features), InvalidTable, InvalidRows (errors in the
        features), Unavailable."""
        planned, features = self._planned(batch, population, wish)
        asked: Any = wish.asked
        additional = asked.additional_release
        return self.asked(planned.split, planned.parameters, additional_release=additional, features=features)

    def preview(self, batch: Batch, population: Population, wish: Wish[S]) -> dict[str, Any]:
        planned, _ = self._planned(batch, population, wish)
        return {
            "epsilon": planned.split.as_json(),
            "parameters": planned.parameters,
            "facts": planned.facts.model_dump(),
        }

    def _planned(self, batch: Batch, population: Population, wish: Wish[S]) -> tuple[Planned, str]:
        require_order(population.domain, f"A {self.name.replace('-', ' ')}")

        def look(connection: Connection) -> tuple[list[str], str]:
            sealed = self.features.batches.segments(connection, batch.id, SEALED)
            return [s.key for s in sealed], self.features.key(connection, batch.id)

        sealed, features_key = self.features.database.read(f"{self.name}.features", look)
        if not sealed:
            raise Conflict(f"The labels of batch '{batch.id}' were purged meanwhile.")
        n = self.features.count(sealed, features_key, wish.schema)
        if n < 1:
            raise InvalidInput("No example of the batch has features; send a table of features with its example ids.")
        return self.planned(wish, population.domain, n), features_key


def parse_total(epsilon: str | int | float, delta: str | int | float, what: str) -> tuple[Epsilon, int]:
    """Parse (ε, atto-δ) of a whole answer. Raises InvalidEpsilon."""
    total, atto = Epsilon.parse(epsilon, positive=True), parse_delta(delta)
    if total < LEAST_EPSILON or total > LARGEST_EPSILON:
        raise InvalidEpsilon(f"A {what} needs an ε between {LEAST_EPSILON} and {LARGEST_EPSILON}.")
    if atto >= ATTO:
        raise InvalidEpsilon("δ must lie below 1.")
    return total, atto


def noise_of(given: dict[str, Any]) -> tuple[SliceNoise | None, Fraction]:
    """Return (the noise of slices, the δ of the bound) of such parameters."""
    return SliceNoise(given["slice_noise"]) if given["slice_noise"] else None, Fraction(given["delta_of_bound"])


def check_paid(cost: Cost, job: Job) -> None:
    """Fail an answer, before a label is read, if its plan costs more than was charged for it. Raises
    EpsilonNotProved."""
    needed = cost.split()
    if needed.total > job.work.split.total or needed.delta_atto > job.work.split.delta_atto:
        raise EpsilonNotProved(f"The plan of answer '{job.work.id}' costs more than was charged for it.")


def examples(features: FeatureStore, job: Job, schema: Schema) -> tuple[IntArray, IntArray]:
    """Return (codes int64[n, p], label positions int64[n]) of the examples with features, in the order of ids.

    Raises Unavailable.
    """
    parts = list(features.met(job.labels, job.work.features, schema))
    codes = [np.zeros((0, len(schema.features)), np.int64), *(codes for _, codes, _ in parts)]
    return np.concatenate(codes), np.concatenate([np.zeros(0, np.int64), *(positions for _, _, positions in parts)])
