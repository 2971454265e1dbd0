"""The interface of a kind of charged work: its name, its plan from public facts, its draw.

Every kind is asked for, charged, drawn, published, acknowledged, retired. A `QueuedKind` is drawn under a lease, some
time after its charge; an `AtOnceKind` in the transaction of its charge. What a kind draws becomes visible with its
publication, or never (invariant charge-first).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar, cast

from pydantic import BaseModel

from label_dp.audit import events
from label_dp.documents import bundle
from label_dp.documents.signed import MAX_ENVELOPE_BYTES
from label_dp.errors import LabelDPError
from label_dp.privacy import Epsilon, EpsilonSplit
from labels_party.labels.batches import Batch
from labels_party.labels.seal import SealedLabels
from labels_party.ledger.populations import Population
from labels_party.ledger.rules import Account
from labels_party.notify import outbox

ProgressHook = Callable[[str, float], None]


def no_progress(_what: str, _share: float) -> None:
    """Progress is for the owner's own terminal only; over HTTP work shows its state and nothing else."""


@dataclass(frozen=True)
class Family:
    """How the signed documents of some kinds, their ids, paths and events are called."""

    noun: str
    prefix: str
    document: str  # its last part in a URL
    digest: str  # the member that holds its SHA-256
    envelope: str  # its file
    most_bytes: int  # of that file
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
    """What was sent for work: a folder of the home from the charge on, deleted with the end of the work."""

    def save(self, within: Path) -> str:
        """Store them durably as a new folder; its name. Raises Unavailable."""


@dataclass(frozen=True)
class PlannedWork:
    """Work that is asked for, planned: everything in it is public, or private already.

    `plan` is what the kind draws from. `details` is what the audit event of its charge, or of the request for it, says
    besides ε. `audiences` None: those of the population. `by_audience` is the audience that asks for itself. `inputs`
    were sent beside it, and `inputs_mac` tells whether two have the same. `features`: the key of the owner's table that
    it is made of, and that must still be there when it is charged.
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
    """A row of charged work. `asked` is `PlannedWork.details`, `inputs` the name of their folder."""

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
    """Charged work, to be drawn. `today` is an ISO day.

    `spent` is what the batch has spent, this charge included, and the most that any batch of the population has.
    """

    work: Work
    batch: Batch
    population: Population
    today: str
    spent: Callable[[], tuple[Account, Epsilon]]

    @property
    def n(self) -> int:
        assert self.batch.n is not None
        return self.batch.n


@dataclass(frozen=True)
class Job(ChargedWork):
    """Everything an attempt needs. `folder` is its own; `inputs` the folder of public inputs, if there are."""

    labels: SealedLabels
    folder: Path
    inputs: Path | None
    progress: ProgressHook = no_progress


@dataclass(frozen=True)
class WorkFile:
    """A published file, by its `path` below the home's folder of work, or its `content`."""

    name: str
    role: str
    size: int
    sha256: str
    path: str | None = None
    content: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True)
class SignedFiles:
    """A signed envelope, the SHA-256 of its payload, and the files beside it, which lie in the attempt's folder."""

    envelope: bytes
    sha256: str
    files: tuple[WorkFile, ...] = ()


@dataclass(frozen=True)
class Draft:
    """A finished draw: the attempt that made it, the SHA-256 of its document's payload, and its files, the envelope
    first."""

    attempt: int
    sha256: str
    files: tuple[WorkFile, ...]

    def as_json(self) -> dict[str, Any]:
        files = [[file.name, file.role, file.size, file.sha256] for file in self.files]
        return {"attempt": self.attempt, "sha256": self.sha256, "files": files}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        return cls(data["attempt"], data["sha256"], tuple(WorkFile(*file) for file in data["files"]))


S = TypeVar("S", bound=BaseModel)
W = TypeVar("W")


class WorkKind(ABC, Generic[W]):
    """What every kind has. `W`: what is asked for, checked as far as it can be without the batch."""

    name: ClassVar[str]
    family: ClassVar[Family] = ANSWERS
    told: ClassVar[tuple[str, ...]] = ()  # members of `described` that a notice has as well
    handed_on: ClassVar[bool] = False  # an audience may have the document that another asked for

    @abstractmethod
    def plan(self, batch: Batch, population: Population, wish: W) -> PlannedWork:
        """From public facts alone. Raises InvalidInput and its kinds: whatever can be refused without labels."""

    def asker(self, wish: W) -> str | None:
        """The audience that asks for itself; None: the owner."""
        return None

    def described(self, work: Work) -> dict[str, Any]:
        """Members of its description besides those that all work has."""
        return {"parameters": work.plan}

    def seen(self, described: dict[str, Any], role: str, audience: str | None) -> dict[str, Any]:
        """What a caller of `role` sees of a description or of a row of a list."""
        return described

    def event(self, work: Work) -> dict[str, Any]:
        """What audit events of its end say of the kind."""
        return {} if self.family is RELEASES else {"answer": self.name}


class QueuedKind(WorkKind[W]):
    """Its charged work waits for a worker, which draws it under a lease."""

    @abstractmethod
    def draw(self, job: Job) -> SignedFiles:
        """Within the ε (and δ) of the work, whatever the labels are.

        Raises Unavailable for what may pass (disk, randomness) and does not depend on labels; it is then drawn again at
        no charge. Whatever else it raises fails the work, whose charge is kept.
        """

    def largest(self, _job: Job, _files: int) -> int:
        """Bytes of everything that it draws into so many files at most, from public facts alone."""
        return self.family.most_bytes

    def failure(self, _error: Exception) -> LabelDPError:
        """What may be told of an attempt that failed for good: what went wrong may have depended on labels."""
        return LabelDPError("The computation failed; its charge is kept. The service's log names the error.")


class AtOnceKind(WorkKind[W]):
    """Its whole work is one transaction, so nothing of it ever waits, for an approval or for a worker."""

    @abstractmethod
    def draw(self, paid: ChargedWork, wish: W) -> SignedFiles:
        """As `QueuedKind.draw`. Whatever it raises undoes the charge: nothing of the draw was seen."""


class SchemaKind(QueuedKind[W], Generic[S, W]):
    """Asked for by `schema` alone: over REST in one call, the same for every kind."""

    schema: ClassVar[type[BaseModel]]
    large: ClassVar[bool] = False  # what is asked for may hold a whole prior or matrix, of many megabytes

    @property
    def path(self) -> str:
        """The word for it over REST."""
        return f"{self.name}s"

    def wish(self, population: Population, body: S) -> W:
        """What `body` asks for. Raises InvalidInput and its kinds."""
        found: Any = body
        return cast("W", found)


class PreviewedKind(SchemaKind[S, W]):
    """What it costs can be asked before."""

    @abstractmethod
    def preview(self, batch: Batch, population: Population, wish: W) -> dict[str, Any]:
        """Members `epsilon`, `parameters` and `facts` of what `plan` would charge and do."""
