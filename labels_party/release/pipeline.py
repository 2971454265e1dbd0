"""From a charged release to a published one: lease an attempt, draw into its own folder, publish where it still counts.

Crash rules (invariant 2): before transaction 1 nothing exists; between the transactions a new attempt redraws without
a second charge, and the abandoned draw was never visible; after transaction 2 the message never changes.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from labels_party.budget.ledger import Account
from labels_party.budget.populations import Population
from labels_party.labels.batches import SEALED, Batch, timestamp
from labels_party.labels.seal import SealedLabels
from labels_party.labels.vault import LabelVault
from labels_party.notify.outbox import RELEASE_FAILED, RELEASE_PUBLISHED
from labels_party.release.engine import DrawJob, Engine, ProgressHook, reserve
from labels_party.release.lease import WorkerIdentity
from labels_party.release.leases import heartbeat
from labels_party.release.manifest import build_manifest
from labels_party.release.plan import Plan
from labels_party.release.releases import DRAWING, FAILED, PUBLISHED, WORKING, Release, Releases
from labels_party.storage.files import Home
from labels_party.storage.secrets import Secrets
from labels_party.storage.tables import release_files, releases
from shared.audit import events
from shared.errors import LabelDPError, Unavailable
from shared.message.bundle import FOLDER_ENVELOPE, MAX_ENVELOPE_BYTES
from shared.message.canonical import digest
from shared.message.manifest import FileEntry
from shared.message.signing import MANIFEST_TYPE, SigningKey
from shared.privacy import Epsilon
from shared.problems import problem
from shared.service.folders import fsync_folder

log = logging.getLogger("label_dp.release")
TAKEN, UNKNOWN = "taken", "unknown"


class Fenced(Exception):
    """Another worker took this release over; what was drawn here is thrown away unseen."""


@dataclass(frozen=True)
class Lease:
    release: Release
    batch: Batch
    population: Population
    sealed_key: str
    attempt: int


def no_progress(_what: str, _share: float) -> None:
    """Progress is for the owner's own terminal only; over HTTP a release shows its state and nothing else."""


class Pipeline:
    def __init__(
        self,
        releases_: Releases,
        vault: LabelVault,
        secrets_: Secrets,
        key: SigningKey,
        home: Home,
        engine: Engine,
        lease_seconds: float,
        rows_per_file: int,
    ) -> None:
        self.releases, self.vault, self.secrets, self.key, self.home = releases_, vault, secrets_, key, home
        self.engine, self.lease_seconds, self.rows_per_file = engine, lease_seconds, rows_per_file
        self.database = releases_.database
        self._worker: WorkerIdentity | None = None
        self._active: set[tuple[str, int]] = set()

    @property
    def worker(self) -> WorkerIdentity:
        if self._worker is None:
            self._worker = WorkerIdentity(self.home.workers)
        return self._worker

    def close(self) -> None:
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    # --- the protocol -------------------------------------------------------------------------------------

    def run(self, release_id: str, progress: ProgressHook = no_progress) -> bool:
        """Take one attempt at a charged release. False if somebody else works on it or it is finished.

        Raises Unavailable for what may pass (disk, randomness): the release stays charged and can be run again.
        """
        lease = self.database.write("release.lease", lambda c: self._take(c, release_id))
        if lease is None:
            return False
        work = (release_id, lease.attempt)
        self._active.add(work)
        try:
            return self._attempt(lease, self.home.releases / release_id / f"attempt-{lease.attempt}", progress)
        finally:
            self._active.discard(work)

    def _attempt(self, lease: Lease, folder: Path, progress: ProgressHook) -> bool:
        try:
            with self._heartbeat(lease):
                self.database.fault("release.draw:begin")
                self._draw_and_publish(lease, folder, progress)
        except Fenced:
            shutil.rmtree(folder, ignore_errors=True)
            return False
        except BaseException as error:
            outcome = self._abandon(lease, folder, error)
            if isinstance(error, LabelDPError) and outcome in (PUBLISHED, TAKEN):
                # the commit went through although its reply was lost, or we were fenced off
                return outcome == PUBLISHED
            raise
        self._clean(lease.release.id, lease.attempt)
        return True

    def _abandon(self, lease: Lease, folder: Path, error: BaseException) -> str:
        """After a failed attempt: free or fail the release, and remove the folder if it certainly was not published."""
        # whatever may have depended on the draw keeps its charge and is not drawn again; a full disk, a database or
        # randomness that failed, and an interrupt do not depend on it
        refused = isinstance(error, Exception) and not isinstance(error, Unavailable | MemoryError)
        try:
            outcome = self.database.write(
                "release.abandon", lambda c: self._settle(c, lease, error if refused else None)
            )
        except LabelDPError:
            return UNKNOWN  # the database decides later; the folder stays until the next attempt is published
        if outcome != PUBLISHED:
            shutil.rmtree(folder, ignore_errors=True)
        return outcome

    def _settle(self, connection: Connection, lease: Lease, refusal: BaseException | None) -> str:
        now = self.releases.get(connection, lease.release.id)
        if now.attempt != lease.attempt or now.state != DRAWING:
            return PUBLISHED if now.attempt == lease.attempt and now.state == PUBLISHED else TAKEN
        free: dict[str, object] = {"lease_owner": None, "lease_until": None}
        if refusal is not None:
            known = refusal if isinstance(refusal, LabelDPError) else LabelDPError("The draw failed; see the log.")
            free |= {"state": FAILED, "problem": problem(known)[1]}
            details = {"code": known.code, "charge": "kept"}
            self.releases.ledger.note(
                connection, events.FAILED, lease.population, lease.batch.id, now.id, "worker", details, lease.attempt
            )
        connection.execute(sa.update(releases).where(releases.c.id == now.id).values(**free))
        if refusal is not None:
            self.releases.tell(connection, RELEASE_FAILED, now.id)
        return FAILED if refusal is not None else "free"

    def _take(self, connection: Connection, release_id: str) -> Lease | None:
        release, now = self.releases.get(connection, release_id), self.database.now(connection)
        if release.state not in WORKING:
            return None
        if release.lease_owner == self.worker.name:
            # our own name without work behind it: a reply of the database was lost
            if (release_id, release.attempt) in self._active:
                return None
        elif self.worker.holds(release.lease_owner, release.lease_until and release.lease_until - now):
            return None
        attempt = release.attempt + 1
        connection.execute(
            sa.update(releases)
            .where(releases.c.id == release_id, releases.c.attempt == release.attempt)
            .values(
                state=DRAWING,
                attempt=attempt,
                lease_owner=self.worker.name,
                lease_until=now + self.lease_seconds,
            )
        )
        batch, population = self.releases.population_of(connection, release)
        (sealed,) = self.releases.batches.segments(connection, batch.id, SEALED)
        return Lease(release, batch, population, sealed.key, attempt)

    def _draw_and_publish(self, lease: Lease, folder: Path, progress: ProgressHook) -> None:
        try:
            entries, payload_digest = self._draw(lease, folder, progress)
        except OSError as error:
            raise Unavailable(f"The release cannot be written ({error.strerror}); it stays charged.") from None
        self.database.write("release.publish", lambda c: self._publish(c, lease, entries, payload_digest))

    def _draw(self, lease: Lease, folder: Path, progress: ProgressHook) -> tuple[list[FileEntry], str]:
        folder.mkdir(parents=True, mode=0o700)
        plan = Plan.from_json(lease.release.plan)
        given = lease.release.plan["given_prior"]
        assert lease.batch.n is not None
        assert lease.batch.id_bytes is not None
        job = DrawJob(
            population=lease.population,
            plan=plan,
            labels=SealedLabels(self.vault, self.secrets, lease.sealed_key),
            n=lease.batch.n,
            id_bytes=lease.batch.id_bytes,
            given_prior=None if given is None else np.asarray(given, np.float64),
            folder=folder,
            rows_per_file=self.rows_per_file,
            progress=progress,
        )
        reserve(folder / FOLDER_ENVELOPE, MAX_ENVELOPE_BYTES)
        drawn = self.engine.draw(job)
        self.database.fault("release.draw:written")
        entries = [_entry(folder, role, name, rows) for role, name, rows in drawn.files]
        account, most = self.database.read("release.spent", lambda c: self._spent(c, lease))
        today = timestamp(self.releases.batches.clock())[:10]
        key_id, about = self.key.public.id, (lease.release.id, lease.batch, lease.population)
        manifest = build_manifest(*about, plan, drawn, entries, key_id, account, most, today)
        envelope = self.key.sign(MANIFEST_TYPE, manifest.document())
        _write_durably(folder / FOLDER_ENVELOPE, envelope)
        fsync_folder(folder)
        fsync_folder(folder.parent)
        fsync_folder(folder.parent.parent)
        self.database.fault("release.draw:durable")
        payload_digest = digest(manifest.payload())
        head = FileEntry.model_construct(
            role="envelope",
            name=FOLDER_ENVELOPE,
            bytes=len(envelope),
            rows=0,
            sha256=hashlib.sha256(envelope).hexdigest(),
        )
        return [head, *entries], payload_digest

    def _spent(self, connection: Connection, lease: Lease) -> tuple[Account, Epsilon]:
        """What the batch has spent, and the most that any batch of the population has."""
        ledger = self.releases.ledger
        account = ledger.account(connection, lease.population, lease.batch.id)
        return account, ledger.largest(connection, lease.population)

    def _publish(self, connection: Connection, lease: Lease, entries: list[FileEntry], payload_digest: str) -> None:
        """Transaction 2. Only the attempt that holds the lease may publish, and only once."""
        now = timestamp(self.releases.batches.clock())
        changed = connection.execute(
            sa.update(releases)
            .where(
                releases.c.id == lease.release.id,
                releases.c.attempt == lease.attempt,
                releases.c.state == DRAWING,
                releases.c.lease_owner == self.worker.name,
            )
            .values(state=PUBLISHED, published=now, manifest_sha256=payload_digest, lease_owner=None, lease_until=None)
        ).rowcount
        if changed != 1:
            raise Fenced
        for position, entry in enumerate(entries):
            path = f"{lease.release.id}/attempt-{lease.attempt}/{entry.name}"
            row = {
                "release": lease.release.id,
                "name": entry.name,
                "position": position,
                "role": entry.role,
                "path": path,
            }
            connection.execute(sa.insert(release_files).values(**row, bytes=entry.bytes, sha256=entry.sha256))
        details = {"manifest_sha256": payload_digest, "n": lease.batch.n}
        self.releases.ledger.note(
            connection,
            events.PUBLISHED,
            lease.population,
            lease.batch.id,
            lease.release.id,
            "worker",
            details,
            lease.attempt,
        )
        self.releases.tell(connection, RELEASE_PUBLISHED, lease.release.id)

    # --- parts --------------------------------------------------------------------------------------------

    def _heartbeat(self, lease: Lease) -> contextlib.AbstractContextManager[None]:
        """Keep the lease while working; losing it is noticed at publication by the fencing number."""

        def extend(connection: Connection) -> None:
            connection.execute(
                sa.update(releases)
                .where(releases.c.id == lease.release.id, releases.c.attempt == lease.attempt)
                .values(lease_until=self.database.now(connection) + self.lease_seconds)
            )

        return heartbeat(self.database, "release.heartbeat", self.lease_seconds / 3, extend)

    def _clean(self, release_id: str, published: int) -> None:
        """Remove the folders of abandoned attempts; they were never visible."""
        for folder in (self.home.releases / release_id).glob("attempt-*"):
            if folder.name != f"attempt-{published}":
                shutil.rmtree(folder, ignore_errors=True)


def _entry(folder: Path, role: str, name: str, rows: int) -> FileEntry:
    path = folder / name
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    return FileEntry(role=role, name=name, bytes=path.stat().st_size, rows=rows, sha256=sha256)  # type: ignore[arg-type]  # engine's roles


def _write_durably(path: Path, data: bytes) -> None:
    with path.open("r+b") as file:  # space was reserved in it
        file.write(data)
        file.truncate()
        file.flush()
        os.fsync(file.fileno())
