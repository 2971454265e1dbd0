"""Answers: kinds whose whole result is one signed document."""

from __future__ import annotations

import secrets
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeVar

from label_dp.documents.answer import Answer, AnswerMechanism
from label_dp.documents.canonical import digest
from label_dp.documents.kind import Facts
from label_dp.documents.registry import trusted_answer
from label_dp.documents.signing import ANSWER_TYPE, SigningKey
from label_dp.domain import Domain
from label_dp.errors import InvalidInput
from label_dp.privacy import EpsilonSplit
from labels_party.companions.kinds.feature_store import FeatureStore
from labels_party.labels.vault import LabelVault
from labels_party.storage.secrets import Secrets
from labels_party.work.charged import charged_members
from labels_party.work.kind import ChargedWork, Job, PlannedWork, QueuedKind, SignedFiles, WorkKind
from labels_party.work.store import Works

W = TypeVar("W")


@dataclass(frozen=True)
class Computed:
    """Computed result.

    `result` is JSON of strings, whole numbers, booleans, lists and objects. `mechanism` is its name, `source` its
    paper; `adjacency` defines neighbouring data sets.
    """

    result: dict[str, Any]
    mechanism: str
    source: str
    facts: Facts
    adjacency: str


@dataclass(frozen=True)
class Parts:
    """Dependencies of kinds."""

    key: SigningKey
    features: FeatureStore
    works: Works
    vault: LabelVault
    secrets: Secrets


class DocumentKind(WorkKind[W]):
    """Kind of document; `name` is its kind in the signed document, which `label_dp.documents.registry` must know."""

    def __init__(self, key: SigningKey) -> None:
        self.key = key

    @classmethod
    def made(cls, parts: Parts) -> Self:
        return cls(parts.key)

    def document(self, paid: ChargedWork, audiences: Sequence[str], computed: Computed) -> SignedFiles:
        """Write the document alone; verified as its receiver will, before anybody sees it."""
        work, about = paid.work, (paid.work.id, paid.batch, paid.population, audiences, paid.today)
        key = self.key.now()
        members = charged_members(key.public.id, *about, work.split, *paid.spent())
        answer = Answer(
            kind=work.kind,
            parameters=work.plan,
            mechanism=AnswerMechanism(
                name=computed.mechanism, source=computed.source, facts=computed.facts.model_dump()
            ),
            adjacency=computed.adjacency,
            result=computed.result,
            salt=secrets.token_hex(16),
            **members,
        )
        signed_files = SignedFiles(key.sign(ANSWER_TYPE, answer.document()), digest(answer.payload()))
        trusted_answer(signed_files.envelope, key.public, audiences[0])
        return signed_files


def require_order(domain: Domain, what: str) -> None:
    """Raise InvalidInput if labels are more than two classes, for which `what` is undefined."""
    if domain.nominal:
        raise InvalidInput(
            f"{what} needs labels that are numbers, or two classes; those of this population are {domain.k} classes "
            "with names. Release a message of them, or declare a population of two names, such as a class and 'other'."
        )


class AnswerKind(DocumentKind[W], QueuedKind[W]):
    """Kind computed from the sealed labels of its batch."""

    adjacency: ClassVar[str]

    @abstractmethod
    def compute(self, job: Job) -> Computed:
        """Compute the result, within the ε (and δ) of `job.work.split` for any labels. Raises as `draw`."""

    def draw(self, job: Job) -> SignedFiles:
        return self.document(job, job.work.audiences, self.compute(job))

    def asked(
        self, split: EpsilonSplit, parameters: dict[str, Any], *, additional_release: bool, **more: Any
    ) -> PlannedWork:
        """Build the planned work; `more` are members of `PlannedWork`."""
        details: dict[str, Any] = {"answer": self.name, "by_audience": more.get("by_audience")}
        details |= {"additional_release": additional_release}
        if more.get("by_audience") is None:  # an audience's own request is not exported to others
            details |= {"parameters": parameters}
        return PlannedWork(self.name, split, parameters, details, additional_release, **more)
