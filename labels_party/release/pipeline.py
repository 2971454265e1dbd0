"""Releases as charged work: draw a message into the attempt's own folder and publish it."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from labels_party.attempts.attempts import Attempts, Lease
from labels_party.attempts.identity import Workplace
from labels_party.budget.populations import Population
from labels_party.labels.batches import Batch, timestamp
from labels_party.labels.seal import SealedLabels
from labels_party.labels.standing import PUBLISHED
from labels_party.labels.vault import LabelVault
from labels_party.notify.outbox import RELEASE_FAILED, RELEASE_PUBLISHED
from labels_party.release.engine import DrawJob, Engine, ProgressHook, reserve
from labels_party.release.manifest import build_manifest
from labels_party.release.plan import Plan
from labels_party.release.releases import DRAWING, Release, Releases
from labels_party.storage.files import Home
from labels_party.storage.secrets import Secrets
from labels_party.storage.tables import release_files, releases
from shared.audit import events
from shared.errors import LabelDPError, Unavailable
from shared.message.bundle import FOLDER_ENVELOPE, MAX_ENVELOPE_BYTES
from shared.message.canonical import digest
from shared.message.manifest import FileEntry
from shared.message.signing import MANIFEST_TYPE, SigningKey
from shared.service.folders import fsync_folder


def no_progress(_what: str, _share: float) -> None:
    """Progress is for the owner's own terminal only; over HTTP a release shows its state and nothing else."""


class Pipeline(Attempts[Release]):
    name = "release"
    table = releases
    working = DRAWING
    log = logging.getLogger("label_dp.release")

    def __init__(
        self,
        releases_: Releases,
        vault: LabelVault,
        secrets_: Secrets,
        key: SigningKey,
        home: Home,
        engine: Engine,
        workplace: Workplace,
        lease_seconds: float,
        rows_per_file: int,
    ) -> None:
        super().__init__(releases_.database, releases_.batches, releases_.ledger, workplace, lease_seconds)
        self.releases, self.vault, self.secrets, self.key, self.home = releases_, vault, secrets_, key, home
        self.engine, self.rows_per_file = engine, rows_per_file

    def waiting(self, connection: Connection) -> list[Release]:
        return self.releases.working(connection)

    def get(self, connection: Connection, work_id: str) -> Release:
        return self.releases.get(connection, work_id)

    def about(self, connection: Connection, work: Release) -> tuple[Batch, Population]:
        return self.releases.population_of(connection, work)

    def run(self, work_id: str, progress: ProgressHook = no_progress) -> bool:
        return self.attempted(work_id, partial(self.draw_and_publish, progress=progress))

    def draw_and_publish(self, lease: Lease[Release], progress: ProgressHook = no_progress) -> None:
        self.database.fault("release.draw:begin")
        try:
            entries, payload_digest = self._draw(lease, self._folder(lease), progress)
        except OSError as error:
            raise Unavailable(f"The release cannot be written ({error.strerror}); it stays charged.") from None
        self.database.write("release.publish", lambda c: self._publish(c, lease, entries, payload_digest))

    def failed(self, connection: Connection, lease: Lease[Release], error: Exception) -> LabelDPError:
        known = error if isinstance(error, LabelDPError) else LabelDPError("The draw failed; see the log.")
        self.note(connection, events.FAILED, lease, {"code": known.code, "charge": "kept"})
        self.releases.tell(connection, RELEASE_FAILED, lease.work.id)
        return known

    def ended(self, lease: Lease[Release], outcome: str) -> None:
        """A folder that was not published was never visible."""
        if outcome != PUBLISHED:
            shutil.rmtree(self._folder(lease), ignore_errors=True)
            return
        for folder in self._folder(lease).parent.glob("attempt-*"):
            if folder != self._folder(lease):
                shutil.rmtree(folder, ignore_errors=True)

    # --- parts --------------------------------------------------------------------------------------------

    def _folder(self, lease: Lease[Release]) -> Path:
        return self.home.releases / lease.work.id / f"attempt-{lease.attempt}"

    def _draw(self, lease: Lease[Release], folder: Path, progress: ProgressHook) -> tuple[list[FileEntry], str]:
        folder.mkdir(parents=True, mode=0o700)
        plan = Plan.from_json(lease.work.plan)
        given = lease.work.plan["given_prior"]
        assert lease.batch.id_bytes is not None
        job = DrawJob(
            population=lease.population,
            plan=plan,
            labels=SealedLabels(self.vault, self.secrets, lease.sealed_key),
            n=lease.n,
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
        account, most = self.spent(lease)
        today = timestamp(self.releases.batches.clock())[:10]
        key_id, about = self.key.public.id, (lease.work.id, lease.batch, lease.population)
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

    def _publish(
        self, connection: Connection, lease: Lease[Release], entries: list[FileEntry], payload_digest: str
    ) -> None:
        self.publish(connection, lease, manifest_sha256=payload_digest)
        for position, entry in enumerate(entries):
            path = f"{lease.work.id}/attempt-{lease.attempt}/{entry.name}"
            row = {"release": lease.work.id, "name": entry.name, "position": position, "role": entry.role, "path": path}
            connection.execute(sa.insert(release_files).values(**row, bytes=entry.bytes, sha256=entry.sha256))
        self.note(connection, events.PUBLISHED, lease, {"manifest_sha256": payload_digest, "n": lease.n})
        self.releases.tell(connection, RELEASE_PUBLISHED, lease.work.id)


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
