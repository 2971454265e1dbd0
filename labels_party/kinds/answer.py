"""Answers: kinds whose whole result is one signed document."""

from __future__ import annotations

import secrets
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeVar

from pydantic import BaseModel

from labels_party.kinds.feature_store import FeatureStore
from labels_party.labels.batches import Batch
from labels_party.labels.vault import LabelVault
from labels_party.ledger.populations import Population
from labels_party.ledger.rules import Account
from labels_party.storage.secrets import Secrets
from labels_party.work.kind import Asked, Drawn, Job, Kind
from labels_party.work.store import Works
from shared.documents.answer import Answer, AnswerMechanism
from shared.documents.canonical import digest
from shared.documents.kinds.registry import trusted_answer
from shared.documents.members import PopulationRef, Unit
from shared.documents.signing import ANSWER_TYPE, SigningKey
from shared.privacy import Epsilon, EpsilonSplit, delta_string

S = TypeVar("S", bound=BaseModel)
W = TypeVar("W")


@dataclass(frozen=True)
class Computed:
    """`result` is JSON of strings, whole numbers, booleans, lists and objects; `adjacency` says what neighbouring data
    sets are."""

    result: dict[str, Any]
    mechanism: AnswerMechanism
    adjacency: str


@dataclass(frozen=True)
class Parts:
    """What kinds are made of."""

    key: SigningKey
    features: FeatureStore
    works: Works
    vault: LabelVault
    secrets: Secrets


class AnswerKind(Kind[S, W]):
    """`name` is the kind in the signed document, which `shared.documents.kinds.registry` must know."""

    adjacency: ClassVar[str]

    def __init__(self, key: SigningKey) -> None:
        self.key = key

    @classmethod
    def made(cls, parts: Parts) -> Self:
        return cls(parts.key)

    @abstractmethod
    def compute(self, job: Job) -> Computed:
        """The result, within the ε (and δ) of `job.work.split`, whatever the labels are. Raises as `draw`."""

    def draw(self, job: Job) -> Drawn:
        """The document alone; read back as its receiver will, before anybody sees it."""
        computed = self.compute(job)
        work, about = job.work, (job.work.id, job.batch, job.population)
        document = answer_document(
            self.key, work.kind, *about, work.audiences, job.today, work.plan, work.split, *job.spent(), computed
        )
        drawn = signed(self.key, document)
        trusted_answer(drawn.envelope, self.key.public, work.audiences[0])
        return drawn

    def asked(self, split: EpsilonSplit, parameters: dict[str, Any], *, additional_release: bool, **more: Any) -> Asked:
        """`more`: members of `Asked`."""
        details: dict[str, Any] = {"answer": self.name, "by_audience": more.get("by_audience")}
        details |= {"additional_release": additional_release}
        if more.get("by_audience") is None:  # what an audience asks for itself no other reads in an export
            details |= {"parameters": parameters}
        return Asked(self.name, split, parameters, details, additional_release, **more)


def answer_document(
    key: SigningKey,
    kind: str,
    answer_id: str,
    batch: Batch,
    population: Population,
    audiences: list[str],
    today: str,
    parameters: Mapping[str, Any],
    split: EpsilonSplit,
    account: Account,
    most: Epsilon,
    computed: Computed,
) -> Answer:
    """The document, not yet signed. `account` (of its batch) and `most` (of any batch of the population) include this
    answer; `today` is an ISO day."""
    assert batch.n is not None
    return Answer(
        kind=kind,
        id=answer_id,
        batch=batch.id,
        population=PopulationRef(id=population.id, name=population.name, label=population.label),
        audiences=audiences,
        key_id=key.public.id,
        created=today,
        n=batch.n,
        domain=population.domain.as_json(),
        out_of_domain=population.out_of_domain,  # type: ignore[arg-type]  # checked when it was declared
        missing_label=population.missing_label,
        parameters=dict(parameters),
        mechanism=computed.mechanism,
        epsilon=split.as_json(),
        epsilon_spent=str(account.spent),
        epsilon_lifetime=str(population.lifetime),
        delta_spent=delta_string(account.spent_delta),
        delta_lifetime=delta_string(account.lifetime_delta),
        unit=Unit(
            kind="unit" if population.unit.unit_column else "example",
            column=population.unit.unit_column,
            max_examples=population.unit.max_examples,
            epsilon_per_unit=population.unit.bound(most),
        ),
        adjacency=computed.adjacency,
        result=computed.result,
        salt=secrets.token_hex(16),
    )


def signed(key: SigningKey, answer: Answer) -> Drawn:
    return Drawn(key.sign(ANSWER_TYPE, answer.document()), digest(answer.payload()))
