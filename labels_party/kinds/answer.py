"""Answers: kinds whose whole result is one signed document."""

from __future__ import annotations

import secrets
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeVar

from pydantic import BaseModel

from labels_party.kinds.charged import charged_members
from labels_party.kinds.feature_store import FeatureStore
from labels_party.labels.vault import LabelVault
from labels_party.storage.secrets import Secrets
from labels_party.work.kind import Asked, Drawn, Job, Kind
from labels_party.work.store import Works
from shared.documents.answer import Answer, AnswerMechanism
from shared.documents.canonical import digest
from shared.documents.kinds.registry import trusted_answer
from shared.documents.signing import ANSWER_TYPE, SigningKey
from shared.privacy import EpsilonSplit

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
        work, about = job.work, (job.work.id, job.batch, job.population, job.work.audiences, job.today)
        members = charged_members(self.key.public.id, *about, work.split, *job.spent())
        document = answer_document(work.kind, work.plan, computed, members)
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


def answer_document(kind: str, parameters: Mapping[str, Any], computed: Computed, members: dict[str, Any]) -> Answer:
    """The document, not yet signed. `members`: those that every kind of document has."""
    return Answer(
        kind=kind,
        parameters=dict(parameters),
        mechanism=computed.mechanism,
        adjacency=computed.adjacency,
        result=computed.result,
        salt=secrets.token_hex(16),
        **members,
    )


def signed(key: SigningKey, answer: Answer) -> Drawn:
    return Drawn(key.sign(ANSWER_TYPE, answer.document()), digest(answer.payload()))
