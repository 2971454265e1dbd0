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
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from labels_party.budget.populations import Population
from labels_party.labels.batches import ID_LIST, SEALED, Batch, timestamp
from labels_party.labels.digests import Secrets
from labels_party.labels.seal import SealedLabels
from labels_party.labels.vault import LabelVault
from labels_party.release.engine import DrawJob, Drawn, Engine, ProgressHook
from labels_party.release.lease import WorkerIdentity
from labels_party.release.plan import Plan
from labels_party.release.releases import DRAWING, FAILED, PUBLISHED, WORKING, Release, Releases
from labels_party.storage.files import Home, fsync_folder
from labels_party.storage.tables import release_files, releases
from shared.audit import events
from shared.errors import LabelDPError, Unavailable
from shared.message.bundle import FOLDER_ENVELOPE
from shared.message.canonical import digest
from shared.message.manifest import FileEntry, Manifest, Mechanism, PopulationRef, PriorRef, Unit
from shared.message.signing import MANIFEST_TYPE, SigningKey
from shared.problems import problem

log = logging.getLogger("label_dp.release")


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

    @property
    def worker(self) -> WorkerIdentity:
        if self._worker is None:
            self._worker = WorkerIdentity(self.home.workers)
        return self._worker

    def close(self) -> None:
        if self._worker is not None:
            self._worker.close()

    # --- the protocol -------------------------------------------------------------------------------------

    def run(self, release_id: str, progress: ProgressHook = no_progress) -> bool:
        """Take one attempt at a charged release. False if somebody else works on it or it is finished.

        Raises Unavailable for what may pass (disk, randomness): the release stays charged and can be run again.
        """
        lease = self.database.write("release.lease", lambda c: self._take(c, release_id))
        if lease is None:
            return False
        folder = self.home.releases / release_id / f"attempt-{lease.attempt}"
        try:
            with self._heartbeat(lease):
                self.database.fault("release.draw:begin")
                self._draw_and_publish(lease, folder, progress)
        except Fenced:
            shutil.rmtree(folder, ignore_errors=True)
            return False
        except Unavailable:
            shutil.rmtree(folder, ignore_errors=True)
            self.database.write("release.yield", lambda c: self._free(c, lease))
            raise
        except LabelDPError as error:
            # a draw may have decided this failure, so the charge is kept
            shutil.rmtree(folder, ignore_errors=True)
            self._fail(lease, error)
            raise
        except BaseException:
            # a bug or an interrupt: leave the release charged and free for another attempt
            shutil.rmtree(folder, ignore_errors=True)
            with contextlib.suppress(LabelDPError):
                self.database.write("release.yield", lambda c: self._free(c, lease))
            raise
        self._clean(release_id, lease.attempt)
        return True

    def _take(self, connection: Connection, release_id: str) -> Lease | None:
        release = self.releases.get(connection, release_id)
        if release.state not in WORKING or self.worker.holds(release.lease_owner, release.lease_until):
            return None
        attempt = release.attempt + 1
        connection.execute(
            sa.update(releases)
            .where(releases.c.id == release_id, releases.c.attempt == release.attempt)
            .values(
                state=DRAWING,
                attempt=attempt,
                lease_owner=self.worker.name,
                lease_until=time.time() + self.lease_seconds,
            )
        )
        batch, population = self.releases.population_of(connection, release)
        (sealed,) = self.releases.batches.segments(connection, batch.id, SEALED)
        return Lease(release, batch, population, sealed.key, attempt)

    def _draw_and_publish(self, lease: Lease, folder: Path, progress: ProgressHook) -> None:
        try:
            folder.mkdir(parents=True, mode=0o700)
        except OSError as error:
            raise Unavailable(
                f"The release folder cannot be made ({error.strerror}); the release stays charged."
            ) from None
        plan = Plan.from_json(lease.release.plan)
        given = lease.release.plan["given_prior"]
        assert lease.batch.n is not None
        assert lease.batch.id_bytes is not None
        job = DrawJob(
            population=lease.population,
            plan=plan,
            labels=SealedLabels(self.vault, self.secrets, lease.batch.id, lease.sealed_key),
            n=lease.batch.n,
            id_bytes=lease.batch.id_bytes,
            given_prior=None if given is None else np.asarray(given, np.float64),
            folder=folder,
            rows_per_file=self.rows_per_file,
            progress=progress,
        )
        drawn = self.engine.draw(job)
        self.database.fault("release.draw:written")
        entries = [_entry(folder, role, name, rows) for role, name, rows in drawn.files]
        manifest = self._manifest(lease, plan, drawn, entries)
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
        self.database.write("release.publish", lambda c: self._publish(c, lease, [head, *entries], payload_digest))

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

    def _fail(self, lease: Lease, error: LabelDPError) -> None:
        _, body = problem(error)

        def store(connection: Connection) -> None:
            changed = connection.execute(
                sa.update(releases)
                .where(
                    releases.c.id == lease.release.id, releases.c.attempt == lease.attempt, releases.c.state == DRAWING
                )
                .values(state=FAILED, problem=body, lease_owner=None, lease_until=None)
            ).rowcount
            if changed == 1:
                details = {"code": error.code, "charge": "kept"}
                self.releases.ledger.note(
                    connection,
                    events.FAILED,
                    lease.population,
                    lease.batch.id,
                    lease.release.id,
                    "worker",
                    details,
                    lease.attempt,
                )

        self.database.write("release.fail", store)

    def _free(self, connection: Connection, lease: Lease) -> None:
        connection.execute(
            sa.update(releases)
            .where(releases.c.id == lease.release.id, releases.c.attempt == lease.attempt, releases.c.state == DRAWING)
            .values(lease_owner=None, lease_until=None)
        )

    # --- parts --------------------------------------------------------------------------------------------

    def _manifest(self, lease: Lease, plan: Plan, drawn: Drawn, entries: list[FileEntry]) -> Manifest:
        batch, population = lease.batch, lease.population
        assert batch.n is not None
        spent = self.database.read("release.spent", lambda c: self.releases.spent(c, batch.id))
        return Manifest(
            release=lease.release.id,
            batch=batch.id,
            population=PopulationRef(id=population.id, name=population.name, label=population.label),
            audiences=list(population.audiences),
            key_id=self.key.public.id,
            created=timestamp(self.releases.batches.clock())[:10],
            n=batch.n,
            domain=population.domain.as_json(),
            out_of_domain=population.out_of_domain,  # type: ignore[arg-type]  # checked when it was declared
            missing_label=population.missing_label,
            presence="id list given before labels counted"
            if batch.presence == ID_LIST
            else "declared public by the owner",
            mechanism=Mechanism(name=plan.mechanism, why=plan.why),
            loss=plan.loss_name,
            channel=drawn.channel.as_json(),
            expected_loss=None if drawn.expected_loss is None else repr(drawn.expected_loss),
            prior=PriorRef(
                source=plan.prior_source,  # type: ignore[arg-type]  # one of the plan's constants
                method=plan.prior_method,
                cells=None if plan.cells is None else len(plan.cells) - 1,
                release=plan.carried_from,
            ),
            epsilon=plan.split.as_json(),
            epsilon_spent=str(spent),
            epsilon_lifetime=str(population.lifetime),
            unit=Unit(kind="unit" if population.unit.unit_column else "example", column=population.unit.unit_column),
            files=entries,
        )

    @contextlib.contextmanager
    def _heartbeat(self, lease: Lease) -> Iterator[None]:
        """Keep the lease while working; losing it is noticed at publication by the fencing number."""
        stop = threading.Event()

        def beat() -> None:
            while not stop.wait(self.lease_seconds / 3):
                with contextlib.suppress(LabelDPError):
                    self.database.write("release.heartbeat", extend)

        def extend(connection: Connection) -> None:
            connection.execute(
                sa.update(releases)
                .where(releases.c.id == lease.release.id, releases.c.attempt == lease.attempt)
                .values(lease_until=time.time() + self.lease_seconds)
            )

        thread = threading.Thread(target=beat, name="lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def _clean(self, release_id: str, published: int) -> None:
        """Remove the folders of abandoned attempts; they were never visible."""
        for folder in (self.home.releases / release_id).glob("attempt-*"):
            if folder.name != f"attempt-{published}":
                shutil.rmtree(folder, ignore_errors=True)


def _entry(folder: Path, role: str, name: str, rows: int) -> FileEntry:
    path = folder / name
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    return FileEntry(role=role, name=name, bytes=path.stat().st_size, rows=rows, sha256=sha256)  # type: ignore[arg-type]


def _write_durably(path: Path, data: bytes) -> None:
    try:
        with path.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise Unavailable(f"The manifest cannot be written ({error.strerror}); the release stays charged.") from None
