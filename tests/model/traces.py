"""What a labels party was seen to do, as steps of `protocol.pml`, whose states decide whether that can be.

Seen are the events of the audit chain, the state and attempt of each row of work while nobody works, kills, and what
becomes of backups. What lies between (leases, draws, failures that pass) is left to the model.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path

import sqlalchemy as sa

from label_dp.audit import events as kinds
from label_dp.audit.events import Event
from label_dp.privacy import Epsilon
from labels_party.bootstrap import Services
from labels_party.labels.batch_uses import ACCEPTED, CHARGED, DRAWING, FAILED, PUBLISHED
from labels_party.labels.lost_batches import ASKED_BY
from labels_party.storage.tables import work as table
from tests.model.spin import verdict

STATES = ("", ACCEPTED, CHARGED, DRAWING, PUBLISHED, FAILED)  # by their numbers in the model
ROWS = {state: 16 * number for number, state in enumerate(STATES)}  # with an attempt on top
UNSEEN = 255  # more than any charge: a trace of one column has no cap over a body of people


class Kind(Enum):
    """Names of steps; `SEEN` of the model says where each may come."""

    REQUEST = auto()
    ANSWER = auto()
    APPROVAL = auto()
    CANCELLATION = auto()
    PUBLICATION = auto()
    FAILURE = auto()
    RECEIPT = auto()
    PURGE = auto()
    KILL = auto()
    COPY = auto()
    RESTORE = auto()
    RECORD = auto()
    RETURN = auto()
    REFUSAL = auto()
    ROW = auto()


ENDS = {
    kinds.PUBLISHED: Kind.PUBLICATION,
    kinds.ANSWER_PUBLISHED: Kind.PUBLICATION,
    kinds.FAILED: Kind.FAILURE,
    kinds.ANSWER_FAILED: Kind.FAILURE,
    kinds.DECLINED: Kind.CANCELLATION,
    kinds.CANCELLED: Kind.CANCELLATION,
    kinds.RECEIVED: Kind.RECEIPT,
}


@dataclass(frozen=True)
class Step:
    """`about` is the id of a work or of a batch; `number` an attempt, or the state and attempt of a row."""

    kind: Kind
    about: str = ""
    number: int = 0


@dataclass
class Trace:
    """Steps so far. `epsilon` and `batch` by work, in nano-ε; `lifetime` and four eyes are the population's."""

    store: bool = False
    steps: list[Step] = field(default_factory=list)
    epsilon: dict[str, int] = field(default_factory=dict)
    batch: dict[str, str] = field(default_factory=dict)
    lifetime: int = 0
    four_eyes: bool = False
    events: int = 0
    rows: dict[str, int] = field(default_factory=dict)

    def look(self, services: Services, *more: Kind) -> None:
        """Note what came since the last look, and `more` that came after it, while nobody works."""
        chain = list(services.database.read("trace", services.audit.events))
        before = len(self.steps)
        self._events(chain[self.events :])  # none where an older database is in its place
        self.events = len(chain)
        self.steps += map(Step, more)
        query = sa.select(table.c.id, table.c.state, table.c.attempt)
        for work, state, attempt in services.database.read("trace", lambda c: c.execute(query).all()):
            number = ROWS[state] + attempt
            if self.rows.get(work) != number or len(self.steps) > before:
                self.rows[work] = number
                self.steps.append(Step(Kind.ROW, work, number))

    def of_batch(self, batch: str) -> Trace:
        """The part that is about one batch; kills and backups are about all."""
        works = {work for work, its in self.batch.items() if its == batch}
        steps = [step for step in self.steps if step.about in ("", batch) or step.about in works]
        return Trace(self.store, steps, self.epsilon, self.batch, self.lifetime, self.four_eyes)

    @property
    def works(self) -> list[str]:
        return [*dict.fromkeys(step.about for step in self.steps if step.about in self.batch)]

    def _events(self, events: Sequence[Event]) -> None:
        for event in events:
            work, attempt = str(event.subject.work), event.subject.attempt or 0
            if event.kind == kinds.POPULATION_CREATED:
                self.lifetime = max(self.lifetime, _nano(event.details["lifetime_epsilon"]))
                self.four_eyes |= bool(event.details["four_eyes"])
            elif event.kind == kinds.BATCH_PURGED:
                self.steps.append(Step(Kind.PURGE, str(event.subject.batch)))
            elif event.kind in (kinds.REQUESTED, kinds.CHARGED):
                self._charge(event, work)
            elif event.kind in ENDS and event.actor != ASKED_BY and not self._at_once(work):
                self.steps.append(Step(ENDS[event.kind], work, attempt))

    def _charge(self, event: Event, work: str) -> None:
        kind = Kind.APPROVAL if work in self.batch else Kind.REQUEST
        self.steps.append(Step(Kind.ANSWER if "predictor" in event.details else kind, work))
        self.batch[work] = str(event.subject.batch)
        self.epsilon[work] = event.split.total.nano or _nano(event.details["epsilon"]["total"])

    def _at_once(self, work: str) -> bool:
        return Step(Kind.ANSWER, work) in self.steps


def accepted(trace: Trace, folder: Path) -> bool:
    """Whether the model can take these steps, in this order."""
    (folder / "trace.h").write_text("\n".join(_header(trace)) + "\n", encoding="utf-8")
    return verdict(folder, "-DTRACE", quick=True).failure == "accepted"


def _header(trace: Trace) -> Iterator[str]:
    works = [*trace.works, "", ""]  # the model has two at least
    batches = [*dict.fromkeys(trace.batch[work] for work in trace.works)]
    assert len(batches) <= 2, "the model has two batches"
    unit = math.gcd(trace.lifetime, *(trace.epsilon[work] for work in trace.works))
    number = {work: place for place, work in enumerate(works) if work} | {b: i for i, b in enumerate(batches)} | {"": 0}
    most = Counter[str]()
    for step in trace.steps:
        if step.kind in (Kind.PUBLICATION, Kind.FAILURE, Kind.ROW):
            most[step.about] = max(most[step.about], step.number % 16)
    places = range(len(works))
    yield f"#define WORKS {len(works)}"
    yield f"#define STEPS {len(trace.steps)}"
    yield f"#define LIFETIME {trace.lifetime // unit}"
    yield f"#define CAP {UNSEEN}"
    yield f"#define EACH(action) {' '.join(f':: action({place})' for place in places)}"
    yield f"#define ALL(holds, what) ({' && '.join(f'holds({place}, what)' for place in places)})"
    yield from (f"#define STEP_{kind.name} {kind.value}" for kind in Kind)
    yield _array("epsilon", "WORKS", [trace.epsilon.get(work, UNSEEN * unit) // unit for work in works])
    yield _array("batch", "WORKS", [number[trace.batch[work]] if work else 1 for work in works])
    yield _array("most", "WORKS", [most[work] for work in works])
    yield _array("step", "STEPS", [step.kind.value for step in trace.steps])
    yield _array("about", "STEPS", [number[step.about] for step in trace.steps])
    yield _array("number", "STEPS", [step.number for step in trace.steps])
    yield f"bool store = {int(trace.store)}, four_eyes = {int(trace.four_eyes)};"


def _array(name: str, size: str, numbers: Iterable[int]) -> str:
    return f"hidden byte {name}[{size}] = {{ {', '.join(map(str, numbers))} }};"


def _nano(text: str) -> int:
    return Epsilon.parse(text).nano
