"""A labels party behind a real port and a receiver that pulls from it, in one process, with their stores at hand."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from features_party.bootstrap import Services, bootstrap
from features_party.receive.arrivals import Arrivals
from features_party.receive.labels_service import LabelsService
from features_party.receive.offers import pull_answer
from features_party.receive.receipts import Delivery
from features_party.settings import Settings
from label_dp import errors
from label_dp.audit.events import Event
from label_dp.audit.store import Clock, utc_now
from label_dp.audit.verification import compare_with, seen_before
from label_dp.documents.receipt import GENESIS, Receipt
from label_dp.documents.signing import SigningKey, VerifyingKey
from tests.support.asked import median_wish
from tests.support.labels import FakeClock, LabelsParty, label_table
from tests.support.serving import serving


def first_receipt(document_id: str, document_digest: str, labels_key_id: str) -> Receipt:
    """The first of `features-party`."""
    about = {"document_id": document_id, "document_digest": document_digest, "labels_key_id": labels_key_id}
    place = {"position": 1, "previous": GENESIS, "chain_head": None}
    return Receipt(**about, **place, audience="features-party", accepted="2030-01-01")


def changed(receipt: Receipt, **members: Any) -> Receipt:
    """Another one, which need not be well-formed."""
    return receipt.model_copy(update=members)


class Receiver:
    """A features party in `home`, whose receipts are signed with its own key."""

    def __init__(self, home: Path, labels: LabelsParty, clock: Clock = utc_now, **settings: Any) -> None:
        self.home, self.clock = home, clock
        self.settings = Settings(home=home, threads=1, **settings)
        self.labels_key = labels.services.home.public_key
        self.services: Services = self.start()

    def start(self) -> Services:
        self.services = bootstrap(self.settings, clock=self.clock)
        self.services.pinned.pin(self.labels_key)
        return self.services

    @property
    def key(self) -> SigningKey:
        return self.services.home.own_key()

    def pull(self, url: str, api_key: str, release: str) -> Delivery:
        """What `features-party pull` does with one release."""
        arrivals, out = self.services.arrivals(), self.home.parent / f"{self.home.name}-{release}.parquet"
        with LabelsService(url, api_key, sleep=lambda _: None) as service:
            arrivals.pull(service, release, out, lambda _w, _s: None, force=True)
            found = arrivals.acknowledge(service)
        assert found is not None
        return found

    def pull_answer(self, url: str, api_key: str, answer: str) -> Delivery:
        """What `features-party pull --answer` does."""
        arrivals = self.services.arrivals()
        with LabelsService(url, api_key, sleep=lambda _: None) as service:
            arrivals.answer(pull_answer(service, answer, self.services.pinned.for_envelope, self.settings.name))
            found = arrivals.acknowledge(service)
        assert found is not None
        return found

    def events(self) -> list[Event]:
        return self.services.database.read("test", lambda c: list(self.services.audit.scan(c)))

    def receipts(self) -> list[tuple[str, dict[str, Any]]]:
        """(release, envelope) in order."""
        held = [e for e in self.events() if "receipt" in e.details]
        return [(str(e.subject.work), e.details["receipt"]) for e in held]

    def export(self, path: Path) -> Path:
        data = self.services.database.read("test", lambda c: self.services.audit.export(c, self.key))
        path.write_bytes(data)
        return path

    def compare(self, export: Path) -> dict[str, Any]:
        seen = seen_before(self.services.database, self.services.heads)
        choose = self.services.pinned.for_envelope
        return compare_with(export, self.events(), self.key.public, "features", choose, seen)


class Pair:
    """Both parties; the receiver's key is registered unless said otherwise."""

    def __init__(self, folder: Path, labels: LabelsParty, receiver: Receiver, url: str, clock: FakeClock) -> None:
        self.folder, self.labels, self.receiver, self.url, self.clock = folder, labels, receiver, url, clock
        self.api_key = labels.services.apikeys.create("features", receiver.settings.name)[1]
        self.made = 0

    def register(self) -> None:
        self.labels.services.receipts.register(self.receiver.settings.name, self.receiver.key.public, "test")

    def release(self, epsilon: str = "1") -> str:
        """A published release of a batch of its own, not yet pulled; a minute passes before and after."""
        self.clock.move(minutes=1)
        self.made += 1
        batch = self.labels.sealed_batch(label_table(20, prefix=f"b{self.made}"))
        found = self.labels.release(batch, epsilon)
        self.clock.move(minutes=1)
        return found

    def pull(self, release: str | None = None) -> Delivery:
        found = self.receiver.pull(self.url, self.api_key, release or self.release())
        self.clock.move(minutes=1)
        return found

    def median(self) -> str:
        """A published median of a batch of its own, not yet pulled; a minute passes before and after."""
        self.clock.move(minutes=1)
        self.made += 1
        batch = self.labels.sealed_batch(label_table(20, prefix=f"b{self.made}"))
        _, answer = self.labels.services.work.ask(
            self.labels.services.work.queued("median"), batch, median_wish(epsilon="1"), "test"
        )
        assert self.labels.services.pipeline.run(answer["id"])
        self.clock.move(minutes=1)
        return str(answer["id"])

    def pull_answer(self, answer: str | None = None) -> Delivery:
        found = self.receiver.pull_answer(self.url, self.api_key, answer or self.median())
        self.clock.move(minutes=1)
        return found

    def labels_events(self) -> list[Event]:
        services = self.labels.services
        return services.database.read("test", lambda c: list(services.audit.scan(c)))

    def labels_export(self, name: str = "labels.json") -> Path:
        services, path = self.labels.services, self.folder / name
        path.write_bytes(services.database.read("test", lambda c: services.audit.export(c, services.key)))
        return path

    def features_export(self, name: str = "features.json") -> Path:
        return self.receiver.export(self.folder / name)

    def compare_at_labels(self, export: Path) -> dict[str, Any]:
        def choose(envelope: bytes) -> VerifyingKey:
            return self.labels.services.receipts.signer(envelope)

        s = self.labels.services
        seen = seen_before(s.database, s.heads)
        return compare_with(export, self.labels_events(), s.key.public, "labels", choose, seen)

    def compare_both(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """What the labels party finds against the receiver's export, and the receiver against the labels party's."""
        return self.compare_at_labels(self.features_export()), self.receiver.compare(self.labels_export())

    # --- restoring older copies ---------------------------------------------------------------------------

    def keep_copy(self, home: Path) -> Path:
        """A copy of a home's SQLite database, whatever its process does."""
        (database,) = home.glob("*.sqlite")
        copy = self.folder / f"{home.name}-{self.clock().timestamp():.0f}.copy"
        services = self.labels.services if home == self.labels.home else self.receiver.services
        with services.database.engine.connect() as connection:
            connection.exec_driver_sql("ROLLBACK")
            connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
            connection.exec_driver_sql("BEGIN")
        shutil.copyfile(database, copy)
        return copy

    def restore(self, home: Path, copy: Path) -> None:
        """Put an older database in the place of a home's."""
        services = self.labels.services if home == self.labels.home else self.receiver.services
        services.database.dispose()
        (database,) = home.glob("*.sqlite")
        for beside in home.glob("*.sqlite-*"):
            beside.unlink()
        shutil.copyfile(copy, database)


@contextmanager
def pair(folder: Path, *, registered: bool = True, database_url: str | None = None) -> Iterator[Pair]:
    """`database_url`: of the labels party; SQLite in its home by default."""
    clock = FakeClock()
    with LabelsParty(folder / "labels", database_url=database_url, clock=clock, worker=False) as labels:
        receiver = Receiver(folder / "features", labels, clock)
        with serving(labels.client().app) as url:
            both = Pair(folder, labels, receiver, url, clock)
            if registered:
                both.register()
            yield both
        receiver.services.close()


class Away:
    """A labels party that does not answer."""

    def receipts(self) -> list[dict[str, Any]]:
        raise errors.Unavailable("The labels party did not answer in 6 attempts; check its URL and that it runs.")

    def send_receipt(self, release: str, envelope: bytes) -> None:
        raise AssertionError

    send_answer_receipt = send_receipt


def accept(both: Pair, release: str) -> Arrivals:
    """Pulled and accounted for, not acknowledged."""
    arrivals = both.receiver.services.arrivals()
    with LabelsService(both.url, both.api_key) as service:
        arrivals.pull(service, release, both.folder / f"{release}.parquet", lambda _what, _share: None)
    return arrivals
