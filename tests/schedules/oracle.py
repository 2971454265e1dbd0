"""What must hold after every step of a schedule, and once it has calmed down: judged from the two audit chains, the
rows of files, and what stores and receiver saw, by sums of its own."""

from __future__ import annotations

import hashlib
import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import sqlalchemy as sa

from features_party.storage.tables import audit_events as received_events
from label_dp.audit import events as kinds
from label_dp.audit.events import Event
from label_dp.audit.judged import JudgedStore
from label_dp.audit.receipts import PUBLICATIONS, signed_digest
from label_dp.privacy import Epsilon
from label_dp.store.database import Database
from labels_party.labels.batch_uses import WORKING
from labels_party.storage.tables import audit_events, work, work_files
from tests.schedules.machine import Synced
from tests.schedules.parties import CAP, CLIENT, CLUB, LIFETIMES, OFFICER

ENDS = (kinds.PUBLISHED, kinds.ANSWER_PUBLISHED)


class Broken(AssertionError):
    """An invariant does not hold."""


def hold(true: object, what: str) -> None:
    if not true:
        raise Broken(what)


def nano(text: str) -> int:
    return Epsilon.parse(text).nano


@dataclass
class Oracle:
    """Of one labels party and one receiver: reads databases and folders as they are, never through services."""

    home: Path
    features: Path
    synced: Synced
    bytes_seen: dict[str, set[str]]  # by object of the store; empty without one
    store: bool
    last: int = -1
    its_last: int = -1
    population: dict[str, str] = field(default_factory=dict)  # names by id
    charges: dict[str, tuple[str, int]] = field(default_factory=dict)  # batch and nano-ε of each open charge
    asked: dict[str, str] = field(default_factory=dict)  # actor of each work
    batch_of: dict[str, str] = field(default_factory=dict)  # population of each batch
    rows: dict[str, int] = field(default_factory=dict)  # of each sealed batch
    approved: set[str] = field(default_factory=set)
    published: dict[str, str] = field(default_factory=dict)  # digests of documents
    received: dict[str, str] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    purged: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._open: list[sqlite3.Connection] = []
        self.database = Database(f"sqlite:///{self.home / 'labels-party.sqlite'}")
        self.audit = JudgedStore(audit_events, "labels-party")
        self.receiver = Database(f"sqlite:///{self.features / 'features-party.sqlite'}")
        self.its_audit = JudgedStore(received_events, "features-party")

    def look(self) -> list[str]:
        """Judge what came since the last look; return its kinds."""
        if self._newest() == [self.last, self.its_last]:
            return []
        events = self.database.read("oracle", lambda c: self.audit.events(c, after=self.last))
        for event in events:
            self._judge(event)
            self.last = event.sequence
        for name in [str(e.subject.work) for e in events if e.kind in ENDS]:
            self._files(name)
        accepted = self.receiver.read("oracle", lambda c: self.its_audit.events(c, after=self.its_last))
        for event in accepted:
            self.its_last = event.sequence
            if "receipt" in event.details:
                name = str(event.subject.work)
                hold(name not in self.received, "the receiver accounts twice for one charge")
                self.received[name] = signed_digest(event)
                hold(
                    self.published.get(name) == self.received[name],
                    "the receiver has another draw than the published one",
                )
        return [event.kind for event in (*events, *accepted)]

    def _newest(self) -> list[int]:
        """Numbers of the last events of both chains; looked up at every step, so without SQLAlchemy."""
        if not self._open:
            paths = self.home / "labels-party.sqlite", self.features / "features-party.sqlite"
            self._open = [sqlite3.connect(f"file:{path}?mode=ro", uri=True) for path in paths]
        query = "SELECT coalesce(max(sequence), -1) FROM audit_events"
        return [int(connection.execute(query).fetchone()[0]) for connection in self._open]

    def close(self) -> None:
        """Until the next look: another database may come in the place of this one."""
        while self._open:
            self._open.pop().close()
        self.database.dispose()
        self.receiver.dispose()

    def _judge(self, event: Event) -> None:
        name, batch = str(event.subject.work), str(event.subject.batch)
        if event.kind == kinds.POPULATION_CREATED:
            self.population[str(event.subject.population)] = str(event.subject.population_name)
        elif event.kind == kinds.BATCH_SEALED:
            hold(batch not in self.rows, "a batch is sealed twice")
            self.rows[batch] = int(event.details["n"])
        elif event.kind in (kinds.REQUESTED, kinds.CHARGED) and name not in self.asked:
            self.asked[name] = event.actor
            self.batch_of[batch] = self.population[str(event.subject.population)]
            if self.batch_of[batch] == CLUB:
                hold(event.kind == kinds.REQUESTED, "charged at once where a second person must approve")
        if event.kind == kinds.APPROVED:
            hold(event.actor != self.asked[name] and event.actor == OFFICER, "who asked approved")
            self.approved.add(name)
        elif event.kind == kinds.CHARGED:
            hold(name not in self.charges, "charged twice")
            hold(self.batch_of[batch] != CLUB or name in self.approved, "charged without an approval")
            self.charges[name] = (batch, event.split.total.nano)
            self._sums()
        elif event.kind == kinds.RETURNED:
            hold(self.charges.pop(name, None) is not None, "returned what was not charged")
            hold(name not in self.published, "returned what is published")
            self.ended.add(name)
        elif event.kind in ENDS:
            hold(name in self.charges, "published without a charge")
            hold(name not in self.published, "published twice")
            self.published[name] = str(event.details[PUBLICATIONS[event.kind].detail])
        elif event.kind in (kinds.FAILED, kinds.ANSWER_FAILED):
            hold(self.store, "without a store nothing fails for good")
            self.ended.add(name)
        elif event.kind in (kinds.DECLINED, kinds.CANCELLED):
            self.ended.add(name)
        elif event.kind == kinds.BATCH_PURGED:
            self.purged.add(batch)
            left = [n for n, (b, _) in self.charges.items() if b == batch and n not in self.published]
            hold(not set(left) - self.ended, "purged before what was charged is published")

    def _sums(self) -> None:
        spent: dict[str, int] = defaultdict(int)
        for batch, epsilon in self.charges.values():
            spent[batch] += epsilon
        largest: dict[str, int] = defaultdict(int)
        for batch, total in spent.items():
            largest[self.batch_of[batch]] = max(largest[self.batch_of[batch]], total)
        for population, most in largest.items():
            hold(most <= nano(LIFETIMES[population]), "a lifetime is exceeded")
        hold(sum(largest.values()) <= nano(CAP), "the cap of the body of people is exceeded")

    def _files(self, name: str) -> None:
        """The files of a publication are durable, and the only ones of this work that were ever seen."""
        f = work_files
        rows = self.database.read("oracle", lambda c: c.execute(sa.select(f).where(f.c.work == name)).all())
        hold(rows, "published without files")
        for row in rows:
            if self.store:
                seen = self.bytes_seen.get(f"x/work/{row.path}", set())
                hold(row.sha256 in seen, "published before its bytes are in the store")
            else:
                path = self.home / "work" / row.path
                hold(self.synced.durable(path), "published before its files are durable")
                hold(hashlib.sha256(path.read_bytes()).hexdigest() == row.sha256, "published other bytes")

    def one_draw(self) -> None:
        """Of each work, the store was sent one version of each file, in whatever attempt."""
        versions: dict[tuple[str, str], set[str]] = defaultdict(set)
        for key, digests in self.bytes_seen.items():
            place = key.split("/")
            if place[1] == "work":
                versions[place[2], place[-1]] |= digests
        hold(all(len(digests) == 1 for digests in versions.values()), "the store saw two draws of one charge")
        hold({name for name, _ in versions} <= self.charges.keys(), "the store saw a draw without a charge")

    # --- once all is calm ---------------------------------------------------------------------------------

    def finished(self, answered: set[str], rows: dict[str, int], due: Iterator[str]) -> None:
        """`answered`: works that clients know; `rows` of each batch that they sent; `due`: batches to seal by now."""
        found = self.database.read("oracle", lambda c: c.execute(sa.select(work.c.id, work.c.state)).all())
        hold(not [row for row in found if row.state in WORKING], "charged work does not end")
        hold({name for name, actor in self.asked.items() if actor == CLIENT} == answered, "asked twice, or lost")
        hold(
            self.charges.keys() == self.published.keys() | (self.ended & self.charges.keys()), "charged, not published"
        )
        for batch, n in self.rows.items():
            hold(rows.get(batch) == n, "a sealed batch has other rows than its client sent")
        hold(
            not [batch for batch in due if rows.get(batch) and batch not in self.rows], "a batch is not sealed in time"
        )
