"""The parties of a simulation: what a labels party can be asked, a store in memory, the receiver and his wire."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from features_party.bootstrap import Services as Receiver
from features_party.bootstrap import bootstrap as receiver_services
from features_party.settings import Settings as ReceiverSettings
from label_dp.errors import Unavailable
from label_dp.store.objects.bucket import Bucket, StoreFailed
from label_dp.store.objects.port import StoreRefused
from labels_party.bootstrap import Services, bootstrap
from labels_party.labels.batch_uses import PUBLISHED
from labels_party.settings import Settings
from labels_party.work.kind import ANSWERS, RELEASES, Family, Work
from tests.schedules.machine import Process
from tests.support.labels import LabelsParty
from tests.support.ledger_calls import READER, Calls
from tests.support.people import body, column

SHOP, CLUB = "shop", "club"  # columns of one body of people; in the second a second person approves
LIFETIMES, CAP, RETENTION = {SHOP: "2", CLUB: "1.5"}, "2.2", 20
LEASE = 30.0
CLIENT, PLANNER, OFFICER = "test", "planner", "command line: officer"
QUICK = {"mechanism": "rr-on-bins"}
DOWN, LATE, REFUSE = "down", "late", "refuse"  # of a store: nothing arrives; its answer is lost; it keeps saying no
LOST, REPLY, TWICE = "lost", "reply", "twice"  # of a network: the call, its reply, a double


class Template:
    """Homes of both parties, which know each other's keys; copied for each simulation."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        receiver = receiver_services(ReceiverSettings(home=folder / "features"))
        with LabelsParty(folder / "labels", worker=False) as party:
            body(party, CAP)
            column(party, SHOP, LIFETIMES[SHOP], retention_days=RETENTION)
            column(party, CLUB, LIFETIMES[CLUB], four_eyes=True)
            receiver.pinned.pin(party.services.home.public_key)
            party.services.receipts.register(READER, receiver.home.own_key().public, "test")
        receiver.close()

    def copy(self, to: Path) -> None:
        shutil.copytree(self.folder, to, dirs_exist_ok=True)


class Asked(Calls):
    """What clients and the officer ask for, each with an idempotency key."""

    def window(self, once: Any, population: str, seal_at: str | None, epsilon: str) -> Any:
        """A batch, which may seal and release by itself."""
        s = self.s
        changes = {} if seal_at is None else {"seal_at": seal_at, "release": {"epsilon": epsilon} | QUICK}
        earlier = s.database.read("batch.seen", once.earlier)
        if earlier is not None:
            return earlier
        owner = s.database.read("batch.look", lambda c: s.populations.get(c, population))
        changes = s.schedule.check(owner, changes) if changes else changes

        def make(c: Any) -> Any:
            def effect() -> Any:
                batch = s.batches.create(c, owner, "public")
                return 201, (s.schedule.set(c, batch, changes, PLANNER) if changes else batch).as_json()

            return once.once(c, effect)

        return s.database.write("batch.create", make)

    def approve(self, once: Any, work: str) -> Any:
        return self.s.decisions.approve(work, OFFICER, once)

    def cancel(self, once: Any, work: str) -> Any:
        return self.s.decisions.cancel(work, OFFICER, once)

    def rotate(self, _once: Any) -> Any:
        self.s.keys.rotate()
        return 200, {}


class SeenBucket(Bucket):
    """A room in memory that remembers what it was sent, and fails where the schedule of its process says so."""

    fault: Process

    def send(self, key: str, file: BinaryIO) -> None:
        trouble = self.fault.trouble(DOWN, LATE, REFUSE)
        if trouble == DOWN:
            raise StoreFailed("The store is down.")
        if trouble == REFUSE:
            raise StoreRefused("The store refuses.")
        super().send(key, file)
        file.seek(0)
        self.fault.seen.setdefault(self.path(key), set()).add(hashlib.sha256(file.read()).hexdigest())
        if trouble == LATE:
            raise StoreFailed("The store did not answer.")


def labels_party(home: Path, objects: str) -> Callable[[Process], Services]:
    settings = Settings(home=home, objects=objects, lease_seconds=LEASE, worker=False)
    return lambda process: bootstrap(settings, faults=process, clock=process.clock)


def stop_labels_party(services: Services) -> None:
    """As the operating system does: locks of files are free."""
    services.pipeline.close()
    services.database.dispose()


def receiver(home: Path) -> Callable[[Process], Receiver]:
    return lambda process: receiver_services(
        ReceiverSettings(home=home, threads=1), faults=process, clock=process.clock
    )


class Wire:
    """What the receiver asks a labels party, which answers or not: `fault` may strike each call."""

    def __init__(self, services: Callable[[], Services | None], process: Process) -> None:
        self._services, self.process = services, process

    def call(self, what: Callable[[Services], Any]) -> Any:
        services, trouble = self._services(), self.process.trouble(LOST, REPLY, TWICE)
        if services is None or trouble == LOST:
            raise Unavailable("The labels party did not answer.")
        answer = what(services)
        if trouble == TWICE:
            answer = what(services)
        if trouble == REPLY:
            raise Unavailable("The answer of the labels party was lost.")
        return answer

    def published(self) -> list[tuple[str, str]]:
        """Ids and kinds, the oldest first."""

        def look(s: Services) -> list[tuple[str, str]]:
            def of(population: str) -> list[Work]:
                return s.database.read("pull.list", lambda c: s.work.of_population(c, population))

            owners = s.database.read("pull.owners", s.populations.list)
            works = [work for owner in owners for work in of(owner.id)]
            return [(w.id, w.kind) for w in sorted(works, key=lambda w: (w.created, w.id)) if w.state == PUBLISHED]

        found: list[tuple[str, str]] = self.call(look)
        return found

    def folder(self, release: str) -> Path:
        try:
            found: Path = self.call(lambda s: Calls(s).folder(release).path)
        except OSError as error:  # these helpers write what is downloaded, not the product
            raise Unavailable(f"The disk has no room for a download ({error.strerror}).") from None
        return found

    def envelope(self, answer: str) -> bytes:
        found: bytes = self.call(lambda s: s.work.envelope(answer))
        return found

    def receipts(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.call(lambda s: s.receipts.state(READER))
        return found

    def send_receipt(self, release: str, envelope: bytes) -> None:
        self._send(release, envelope, RELEASES)

    def send_answer_receipt(self, answer: str, envelope: bytes) -> None:
        self._send(answer, envelope, ANSWERS)

    def _send(self, name: str, envelope: bytes, family: Family) -> None:
        self.call(lambda s: s.receipts.keep(name, json.loads(envelope), READER, READER, family))


def pull(receiver: Receiver, wire: Wire, have: set[str], most: int, *, again: bool) -> int:
    """Account for `most` documents that the receiver lacks, and acknowledge all; `again`: also if none is new."""
    missing = [(name, kind) for name, kind in wire.published() if name not in have][:most]
    for name, kind in missing:
        if kind == "release":
            receiver.messages.accept(wire.folder(name))
        else:
            receiver.answers.accept(wire.envelope(name))
    if missing or again:
        receiver.receipts.deliver(wire, wire.call(lambda s: s.key.public.id))
    return len(missing)
