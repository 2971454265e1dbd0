"""A season of a large advertiser in simulated time, in one process: what it stores and how long things take each day.

Ten populations under three bodies of people, three receivers, a batch a day each; one population takes its labels from
events, some of which come late. Ids are erased, old batches purged, keys rotated; disks fill up; the party is restored
from a backup into a new home and database, and its schema is upgraded twice.
"""

from __future__ import annotations

import io
import random
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import sqlalchemy as sa

from label_dp.audit.events import CHARGED
from label_dp.store.migrations import current_revision
from labels_party import backups, bootstrap
from labels_party.storage import tables
from tests.support.backups import brought_back, taken
from tests.support.events import RULE, event
from tests.support.labels import FakeClock, LabelsParty
from tests.support.ledger_faults import full_disk
from tests.support.messages import features_party
from tests.support.object_store import Room

BODIES = ("shoppers", "drivers", "readers")
RECEIVERS = ("north", "south", "west")
EVENTS = "p0"  # the population whose labels come from events
EPSILON, LIFETIME = "0.5", "100"
KEPT_DAYS = 14  # of labels, before they are purged
BACKUP_EVERY, FULL_DISK_EVERY, ERASED = 10, 9, 20  # days; days; ids a day
ROTATIONS, RESTORE, UPGRADES = (0.25, 0.75), 0.5, (0.33, 0.66)  # shares of the season
ARROW = "application/vnd.apache.arrow.stream"
PAGES = ("/overview", "/populations/p1", "/given")
MIGRATION = """
import sqlalchemy as sa
from alembic import op

revision = "{revision}"
down_revision = "{before}"


def upgrade() -> None:
    op.add_column("batches", sa.Column("season_{revision}", sa.String(40)))
    op.create_index("ix_season_{revision}", "batches", ["season_{revision}"])


def downgrade() -> None:
    op.drop_index("ix_season_{revision}", "batches")
    op.drop_column("batches", "season_{revision}")
"""


def receiver_of(population: str) -> str:
    return RECEIVERS[int(population[1:]) % len(RECEIVERS)]


@dataclass
class Day:
    """Seconds are of one batch or page, the median of the day; bytes and rows are of all that is stored."""

    day: int
    seal: float = 0.0
    release: float = 0.0
    accept: float = 0.0
    page: float = 0.0
    database: int = 0
    digests: int = 0
    labels: int = 0
    events: int = 0
    chain: int = 0
    backup: int = 0
    backup_seconds: float = 0.0


@dataclass
class Season:
    """State between days. `database_url` returns a fresh empty database; objects lie in `room`."""

    home: Path
    new_database: Callable[[], str]
    room: Room
    rows: int
    days: int
    populations: int = 10
    seed: int = 0
    records: list[Day] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.clock, self.random = FakeClock(), random.Random(self.seed)
        self.folder, self.number = self.home / "labels-0", 0
        self.url = self.new_database()
        self.batches: list[tuple[int, str, str]] = []  # day, population, id
        self.receivers = {name: features_party(self.home / name, name=name) for name in RECEIVERS}
        self.patch, self.revision = pytest.MonkeyPatch(), tables.HEAD
        self._open()
        self.receivers_pin()
        self._declare()

    def run(self, progress: Callable[[int], None]) -> list[Day]:
        """All days. Raises AssertionError where something is lost, spent twice or not refused."""
        at = [(share, self.rotate) for share in ROTATIONS] + [(share, self.upgrade) for share in UPGRADES]
        at.append((RESTORE, self.restore))
        try:
            for day in range(self.days):
                self.records.append(self.live(day))
                for share, event in at:
                    if day == min(self.days - 1, int(share * self.days)):
                        event()
                progress(day)
            self.settle()
        finally:
            self._close()
            for receiver in self.receivers.values():
                receiver.close()
            self.patch.undo()
        return self.records

    # --- a day --------------------------------------------------------------------------------------------

    def live(self, day: int) -> Day:
        self.clock.move(days=1)
        record, sealed = Day(day), list[tuple[str, str]]()
        for number in range(self.populations):
            population = f"p{number}"
            batch = self._open_batch(population, day)
            self._send(population, batch, day)
            if number == day % self.populations and day % FULL_DISK_EVERY == 0:
                self._seal_on_a_full_disk(batch)
            sealed.append((population, batch))
            self.batches.append((day, population, batch))
        record.seal = self._timed(lambda: [self._post(f"/v1/batches/{batch}/seal", {}) for _, batch in sealed])
        releases = [(population, self._ask(batch)) for population, batch in sealed]
        record.release = self._timed(self.party.services.worker.drain)
        record.accept = self._timed(lambda: self._receive(releases))
        self._erase(day)
        self._purge(day)
        self.party.services.worker.drain()
        record.page = max(self._timed(partial(self._page, page)) for page in PAGES)
        self._weigh(record)
        if day % BACKUP_EVERY == BACKUP_EVERY - 1:
            self._back_up(record)
        for name in ("seal", "release", "accept"):
            setattr(record, name, getattr(record, name) / self.populations)
        return record

    def _open_batch(self, population: str, day: int) -> str:
        body: dict[str, Any] = {"id_prefix": f"{day:03d}/"}
        body |= {} if population == EVENTS else {"presence": "public"}
        return str(self._post(f"/v1/populations/{population}/batches", body)["id"])

    def _send(self, population: str, batch: str, day: int) -> None:
        random_labels = np.random.default_rng((self.seed, day, int(population[1:])))
        ids = [f"{day:03d}/{population}/{i:07d}" for i in range(self.rows if population != EVENTS else self.rows // 10)]
        if population == EVENTS:
            assert self.owner.put(f"/v1/batches/{batch}/examples", json={"example_id": ids}).status_code == 200
            late = [one.replace(f"{day:03d}/", f"{day - 1:03d}/", 1) for one in ids[:50]] if day else []
            self._events([*self.random.sample(ids, len(ids) // 3), *late], day)
            return
        labels = random_labels.poisson(20, len(ids)).clip(0, 100).astype(np.float64)
        sink, table = io.BytesIO(), pa.table({"example_id": ids, "label": labels})
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
        answer = self.sender.post(
            f"/v1/batches/{batch}/labels", content=sink.getvalue(), headers={"content-type": ARROW}
        )
        assert answer.status_code == 200, answer.text

    def _events(self, ids: list[str], day: int) -> None:
        second = int(self.clock().timestamp())
        events = [event(one, i % 90, id=f"{day}-{i}", timestamp=second) for i, one in enumerate(ids)]
        for start in range(0, len(events), 1000):
            answer = self.sender.post("/v1/events", json=events[start : start + 1000])
            assert answer.status_code == 200, answer.text

    def _seal_on_a_full_disk(self, batch: str) -> None:
        """It is refused, and the same call works once there is room."""
        with full_disk():
            answer = self.owner.post(f"/v1/batches/{batch}/seal")
        self.notes.append(f"{batch}: a seal on a full disk was answered with {answer.status_code}")
        assert answer.status_code in (200, 503), answer.text

    def _ask(self, batch: str) -> str:
        wish = {"epsilon": EPSILON, "mechanism": "rr-on-bins", "prior": "estimate"}
        return str(self._post(f"/v1/batches/{batch}/releases", wish)["id"])

    def _receive(self, releases: list[tuple[str, str]]) -> None:
        for population, release in releases:
            name = receiver_of(population)
            client, receiver = self.readers[name], self.receivers[name]
            folder = self.party.download(release, self.home / "incoming" / release, client)
            receiver.messages.accept(folder, self.party.services.key.public)
            shutil.rmtree(folder)

    def _erase(self, day: int) -> None:
        back = day - self.random.randrange(1, KEPT_DAYS) if day else 0
        if back < 0:
            return
        ids = [f"{back:03d}/p1/{i:07d}" for i in self.random.sample(range(self.rows), min(ERASED, self.rows))]
        answer = self.owner.post("/v1/populations/p1/erasures", json={"example_ids": ids})
        assert answer.status_code == 202, answer.text

    def _purge(self, day: int) -> None:
        for batch in [one for when, _, one in self.batches if when == day - KEPT_DAYS]:
            self._post(f"/v1/batches/{batch}/purge", {})

    def _page(self, page: str) -> None:
        answer = self.owner.get(page, headers={"accept": "text/html"})
        assert answer.status_code == 200, (page, answer.text[:300])

    def _weigh(self, record: Day) -> None:
        services = self.party.services
        with services.database.engine.connect() as connection:
            size = sa.text("SELECT pg_database_size(current_database())")
            record.database = int(connection.execute(size).scalar() or 0)
            record.chain = int(connection.execute(sa.text("SELECT count(*) FROM audit_events")).scalar() or 0)
        for stored in services.vault.objects.listed(""):
            kind = "digests" if stored.key.endswith(".run") else "events" if "event" in stored.key else "labels"
            setattr(record, kind, getattr(record, kind) + stored.size)

    # --- what happens now and then ------------------------------------------------------------------------

    def rotate(self) -> None:
        """A new signing key, which receivers follow, and a new wrapping key."""
        self.party.services.own_keys.rotate("season")
        self.party.services.keys.rotate()
        self.receivers_pin()
        self._reopen()

    def restore(self) -> None:
        """From a backup of this moment, into another home and database; the store stays."""
        out = self.home / "restore.zip"
        taken(self.party, out)
        keys = self.home / f"keys-{self.number}"
        shutil.copytree(self.folder / "keys", keys)
        self._close()
        self.number += 1
        self.folder, self.url = self.home / f"labels-{self.number}", self.new_database()
        brought_back(out, self.folder, keys, database_url=self.url, objects=self.room.url)
        self._open()

    def upgrade(self) -> None:
        """A newer version of this party, with a column and an index more of the table of batches."""
        before, revision = self.revision, f"9{len(self.notes):03d}"
        scripts = shutil.copytree(bootstrap.MIGRATIONS, self.home / f"migrations-{revision}")
        (scripts / "versions" / f"{revision}_season.py").write_text(MIGRATION.format(revision=revision, before=before))
        self._close()
        self.patch.setattr(bootstrap, "MIGRATIONS", scripts)
        self.patch.setattr(tables, "HEAD", revision)
        schema = backups.SCHEMA
        self.patch.setattr(backups, "SCHEMA", type(schema)(scripts, revision, *list(vars(schema).values())[2:]))
        self._open()
        self.revision = revision
        assert current_revision(self.party.services.database) == revision
        self.notes.append(f"upgraded to {revision}")

    def settle(self) -> None:
        """Nothing waits; both chains verify; every release was charged once."""
        services = self.party.services
        services.worker.drain()
        services.database.read("verify", services.audit.verify)
        charges = [e for e in services.database.read("events", services.audit.events) if e.kind == CHARGED]
        assert len(charges) == len(self.batches) == self.populations * self.days
        for receiver in self.receivers.values():
            receiver.database.read("verify", receiver.audit.verify)

    # --- parts --------------------------------------------------------------------------------------------

    def _declare(self) -> None:
        for body in BODIES:
            self._post("/v1/people", {"name": body, "lifetime_epsilon": "10000"})
        for number in range(self.populations):
            population: dict[str, Any] = {"name": f"p{number}", "label": f"revenue_{number}", "domain": "0:100"}
            population |= {"lifetime_epsilon": LIFETIME, "missing_label": 0, "audiences": [receiver_of(f"p{number}")]}
            population |= {"people": BODIES[number % 3]} | ({"events": RULE} if f"p{number}" == EVENTS else {})
            self._post("/v1/populations", population)

    def receivers_pin(self) -> None:
        path = self.home / "signing.pub"
        shutil.copy(self.folder / "keys" / "signing.pub", path)
        for receiver in self.receivers.values():
            receiver.pinned.pin(path)

    def _open(self) -> None:
        settings: dict[str, Any] = {"database_url": self.url, "objects": self.room.url, "worker": False}
        self.party = LabelsParty(self.folder, clock=self.clock, **settings)
        self.owner, self.sender = self.party.client("owner"), self.party.client("ingest")
        self.readers = {name: self.party.client("features", name) for name in RECEIVERS}

    def _close(self) -> None:
        self.party.__exit__()

    def _reopen(self) -> None:
        self._close()
        self._open()

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = self.owner.post(path, json=body) if body else self.owner.post(path)
        assert answer.status_code in (200, 201, 202), (path, answer.text)
        return dict(answer.json())

    def _back_up(self, record: Day) -> None:
        out = self.home / "backup.zip"
        record.backup_seconds = self._timed(lambda: taken(self.party, out))
        record.backup = out.stat().st_size
        out.unlink()

    @staticmethod
    def _timed(work: Callable[[], object]) -> float:
        began = time.perf_counter()
        work()
        return time.perf_counter() - began
