"""Kinds of charged work: a name, a plan from public facts, a draw.

A `QueuedKind` is drawn under a lease, some time after its charge; an `AtOnceKind` in the transaction of its charge.
A draw becomes visible when it is published, or never (invariant charge-first).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar, cast

from pydantic import BaseModel

from label_dp.audit import events
from label_dp.documents import bundle
from label_dp.documents.members import ChainHead
from label_dp.documents.signed import MAX_ENVELOPE_BYTES
from label_dp.errors import LabelDPError
from label_dp.privacy import Epsilon, EpsilonSplit
from label_dp.schemas.json_types import Json, JsonObject
from labels_party.labels.batches import Batch
from labels_party.labels.seal import SealedLabels
from labels_party.ledger.populations import Population
from labels_party.ledger.rules import Account
from labels_party.notify import outbox

ProgressHook = Callable[[str, float], None]


def no_progress(_what: str, _share: float) -> None:
    """Ignore progress. Only the owner's terminal shows it; over HTTP work has a state only."""


@dataclass(frozen=True)
class Family:
    """Names shared by kinds: of documents, ids, paths and events."""

    noun: str
    prefix: str
    document: str  # last part of its URL
    digest: str  # member with its SHA-256
    envelope: str  # name of its file
    most_bytes: int  # largest size of that file
    published: str
    failed: str
    told_published: str
    told_failed: str


RELEASES = Family(
    "release",
    "rel_",
    "manifest",
    "manifest_sha256",
    bundle.FOLDER_ENVELOPE,
    MAX_ENVELOPE_BYTES,
    events.PUBLISHED,
    events.FAILED,
    outbox.RELEASE_PUBLISHED,
    outbox.RELEASE_FAILED,
)
ANSWERS = Family(
    "answer",
    "ans_",
    "document",
    "sha256",
    "answer.dsse.json",
    MAX_ENVELOPE_BYTES,
    events.ANSWER_PUBLISHED,
    events.ANSWER_FAILED,
    outbox.ANSWER_PUBLISHED,
    outbox.ANSWER_FAILED,
)
FAMILIES = (RELEASES, ANSWERS)


class Inputs(Protocol):
    """Files sent for work: a folder of the home from the charge to the end of the work."""

    def save(self, within: Path) -> str:
        """Store the files durably in a new folder and return its name. Raises Unavailable."""


@dataclass(frozen=True)
class PlannedWork:
    """Planned work, from public or already private facts.

    `plan` is the input of the draw. `details` are those of the audit event of its charge (or request) besides ε.
    `audiences` None: those of the population. `by_audience` is the audience that asks, None for the owner. `inputs` are
    files sent with the request; equal inputs have equal `inputs_mac`. `features` is the key of the owner's table that
    the draw reads; it must still exist at the charge.
    """

    kind: str
    split: EpsilonSplit
    plan: dict[str, Any]
    details: dict[str, Any]
    additional_release: bool = False
    audiences: tuple[str, ...] | None = None
    by_audience: str | None = None
    inputs: Inputs | None = None
    inputs_mac: str = ""
    features: str = ""


@dataclass(frozen=True)
class Work:
    """Row of charged work. `asked` is `PlannedWork.details`; `inputs` is the name of a folder."""

    id: str
    batch: str
    kind: str
    state: str
    asked: dict[str, Any]
    plan: dict[str, Any]
    epsilon: dict[str, str]
    audiences: list[str]
    requested_by: str
    by_audience: str | None
    inputs: str
    inputs_mac: str
    features: str
    approved_by: str | None
    approved: str | None
    attempt: int
    lease_owner: str | None
    lease_until: float | None
    created: str
    published: str | None
    sha256: str | None
    draft: dict[str, Any] | None
    problem: dict[str, Any] | None

    @property
    def split(self) -> EpsilonSplit:
        return EpsilonSplit.from_json(self.epsilon)


@dataclass(frozen=True)
class ChargedWork:
    """Charged work to draw. `today` is an ISO day. `spent` returns the batch's account including this charge, the
    largest ε spent by any batch of the population, and the head of our chain."""

    work: Work
    batch: Batch
    population: Population
    today: str
    spent: Callable[[], tuple[Account, Epsilon, ChainHead]]

    @property
    def n(self) -> int:
        assert self.batch.n is not None
        return self.batch.n


@dataclass(frozen=True)
class Job(ChargedWork):
    """Input of an attempt. `folder` is the attempt's own; `inputs` is the folder of public inputs, if any."""

    labels: SealedLabels
    folder: Path
    inputs: Path | None
    progress: ProgressHook = no_progress


@dataclass(frozen=True)
class WorkFile:
    """Published file: its `path` below the home's folder of work, or its `content`."""

    name: str
    role: str
    size: int
    sha256: str
    path: str | None = None
    content: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True)
class SignedFiles:
    """Signed envelope, the SHA-256 of its payload, and further files in the attempt's folder."""

    envelope: bytes
    sha256: str
    files: tuple[WorkFile, ...] = ()


@dataclass(frozen=True)
class Draft:
    """Finished draw: its attempt, the SHA-256 of its document's payload, and its files, the envelope first."""

    attempt: int
    sha256: str
    files: tuple[WorkFile, ...]

    def as_json(self) -> JsonObject:
        files: list[Json] = [[file.name, file.role, file.size, file.sha256] for file in self.files]
        return {"attempt": self.attempt, "sha256": self.sha256, "files": files}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        return cls(data["attempt"], data["sha256"], tuple(WorkFile(*file) for file in data["files"]))


S = TypeVar("S", bound=BaseModel)
W = TypeVar("W")


class WorkKind(ABC, Generic[W]):
    """Kind of charged work. `W`: a request, checked as far as possible without the batch."""

    name: ClassVar[str]
    family: ClassVar[Family] = ANSWERS
    told: ClassVar[tuple[str, ...]] = ()  # members of `described` that notices contain
    handed_on: ClassVar[bool] = False  # an audience may receive a document that another asked for

    @abstractmethod
    def plan(self, batch: Batch, population: Population, wish: W) -> PlannedWork:
        """Plan from public facts alone, with all checks that need no labels. Raises InvalidInput and its kinds."""

    def asker(self, wish: W) -> str | None:
        """Return the audience that asks; None for the owner."""
        return None

    def described(self, work: Work) -> dict[str, Any]:
        """Return members of the description that are specific to the kind."""
        return {"parameters": work.plan}

    def seen(self, described: dict[str, Any], role: str, audience: str | None) -> dict[str, Any]:
        """Reduce a description, or a row of a list, to what callers of `role` may see."""
        return described

    def event(self, work: Work) -> JsonObject:
        """Return details on the kind for audit events of its end."""
        return {} if self.family is RELEASES else {"answer": self.name}


class QueuedKind(WorkKind[W]):
    """Kind whose charged work is drawn by a worker under a lease."""

    @abstractmethod
    def draw(self, job: Job) -> SignedFiles:
        """Draw within the ε (and δ) of the work, for any labels.

        Raises Unavailable for temporary failures that do not depend on labels (disk, randomness): the draw is repeated
        without a charge. Any other exception fails the work, and its charge is kept.
        """

    def largest(self, _job: Job, _files: int) -> int:
        """Return the largest total size in bytes of a draw of so many files, from public facts alone."""
        return self.family.most_bytes

    def failure(self, _error: Exception) -> LabelDPError:
        """Return the error that callers may see after a permanent failure: its cause may depend on labels."""
        return LabelDPError("The computation failed; its charge is kept. The service's log names the error.")


class AtOnceKind(WorkKind[W]):
    """Kind whose work is one transaction: it waits neither for an approval nor for a worker."""

    @abstractmethod
    def draw(self, paid: ChargedWork, wish: W) -> SignedFiles:
        """Draw as `QueuedKind.draw`. Any exception undoes the charge: nobody saw the draw."""


class SchemaKind(QueuedKind[W], Generic[S, W]):
    """Kind whose request is an instance of `schema` alone: one REST call, the same for every kind."""

    schema: ClassVar[type[BaseModel]]
    large: ClassVar[bool] = False  # a request may hold a prior or matrix of many megabytes

    @property
    def path(self) -> str:
        """Return its word in REST paths."""
        return f"{self.name}s"

    def wish(self, population: Population, body: S) -> W:
        """Convert `body` to the kind's request. Raises InvalidInput and its kinds."""
        request: Any = body
        return cast("W", request)


class PreviewedKind(SchemaKind[S, W]):
    """Kind with a preview before the charge."""

    @abstractmethod
    def preview(self, batch: Batch, population: Population, wish: W) -> dict[str, Any]:
        """Return the members `epsilon`, `parameters` and `facts` of a preview."""


class Registered(Mapping[str, WorkKind[Any]]):
    """Kinds by name. `register_later` (once) adds entries from which kinds are made on first use."""

    def __init__(self) -> None:
        self._made: dict[str, WorkKind[Any]] = {}
        self._later: Mapping[str, Any] = {}
        self._make: Callable[[Any], WorkKind[Any]] = lambda kind: kind

    def register(self, kind: WorkKind[Any]) -> None:
        self._made[kind.name] = kind

    def register_later(self, later: Mapping[str, Any], make: Callable[[Any], WorkKind[Any]]) -> None:
        self._later, self._make = later, make

    def __getitem__(self, name: str) -> WorkKind[Any]:
        if name not in self._made:
            self._made[name] = self._make(self._later[name])
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter({**dict.fromkeys(self._made), **dict.fromkeys(self._later)})

    def __len__(self) -> int:
        return len(list(iter(self)))
