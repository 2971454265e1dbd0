"""What an attempt does: have the kind draw into its own folder, sign, make all of it durable, publish it.

Space for the largest envelope is reserved first, as kinds do for their files, so that a full disk does not depend on
what was drawn.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import time
from functools import partial
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from labels_party.labels.batches import timestamp
from labels_party.labels.seal import SealedLabels
from labels_party.labels.standing import ENDED, PUBLISHED
from labels_party.labels.vault import LabelVault
from labels_party.storage.files import INPUTS
from labels_party.storage.secrets import Secrets
from labels_party.storage.tables import work as table
from labels_party.storage.tables import work_files
from labels_party.work.attempts import FREE, TAKEN, Attempts, Lease
from labels_party.work.identity import Workplace
from labels_party.work.kind import Drawn, Job, ProgressHook, WorkFile, no_progress
from labels_party.work.store import ENVELOPE, Works
from shared.errors import LabelDPError, Unavailable
from shared.service.folders import LEFTOVER_SECONDS, fsync_folder, reserve


class Pipeline(Attempts):
    def __init__(
        self, works: Works, vault: LabelVault, secrets_: Secrets, workplace: Workplace, lease_seconds: float
    ) -> None:
        super().__init__(works, workplace, lease_seconds)
        self.vault, self.secrets = vault, secrets_

    def run(self, work_id: str, progress: ProgressHook = no_progress) -> bool:
        return self.attempted(work_id, partial(self.draw_and_publish, progress=progress))

    def draw_and_publish(self, lease: Lease, progress: ProgressHook = no_progress) -> None:
        noun = self.works.family(lease.work).noun
        self.database.fault(f"{noun}.draw:begin")
        try:
            drawn, files = self._drawn(lease, progress)
        except OSError as error:
            raise Unavailable(f"The {noun} cannot be written ({error.strerror}); it stays charged.") from None
        self.database.write(f"{noun}.publish", lambda c: self._publish(c, lease, drawn, files))

    def failed(self, connection: Connection, lease: Lease, error: Exception) -> LabelDPError:
        work, kind = lease.work, self.works.queued(lease.work.kind)
        self.log.error("%s %s: %s", kind.name, work.id, type(error).__name__)
        known = kind.failure(error)
        self.note(connection, kind.family.failed, lease, kind.event(work) | {"code": known.code, "charge": "kept"})
        self.works.tell(connection, kind.family.told_failed, work.id)
        return known

    def ended(self, lease: Lease, outcome: str) -> None:
        """Remove inputs and abandoned attempts; the folder of the last attempt stays, empty where it was not
        published: it tells an old copy of the database from the one that went on."""
        own = self._folder(lease)
        if outcome != PUBLISHED:
            shutil.rmtree(own, ignore_errors=True)
        if outcome == TAKEN:
            return
        with contextlib.suppress(OSError):
            own.mkdir(parents=True, mode=0o700, exist_ok=True)
        if outcome == FREE:
            return
        self.works.forget_inputs(lease.work.inputs)
        for folder in own.parent.glob("attempt-*"):
            if folder != own:
                shutil.rmtree(folder, ignore_errors=True)

    def sweep(self) -> int:
        """Remove inputs that a killed process left: those of work that has ended, and of over a day ago those that no
        unfinished work needs."""
        there = list(self.works.folder.glob(f"{INPUTS}*"))
        if not there:
            return 0
        query = sa.select(table.c.inputs, table.c.state).where(table.c.inputs != "")
        known = {row.inputs: row.state for row in self.database.read("work.inputs", lambda c: c.execute(query).all())}
        removed = 0
        for folder in there:
            with contextlib.suppress(OSError):  # another process may sweep as well
                old = folder.stat().st_mtime < time.time() - LEFTOVER_SECONDS
                if known.get(folder.name) in (PUBLISHED, *ENDED) or (old and folder.name not in known):
                    shutil.rmtree(folder)
                    removed += 1
        return removed

    # --- parts --------------------------------------------------------------------------------------------

    def _folder(self, lease: Lease) -> Path:
        return self.works.folder / lease.work.id / f"attempt-{lease.attempt}"

    def _drawn(self, lease: Lease, progress: ProgressHook) -> tuple[Drawn, list[WorkFile]]:
        work, folder = lease.work, self._folder(lease)
        kind = self.works.queued(work.kind)
        folder.mkdir(parents=True, mode=0o700)
        envelope = folder / kind.family.envelope
        reserve(envelope, kind.family.most_bytes)
        job = Job(
            work=work,
            batch=lease.batch,
            population=lease.population,
            today=timestamp(self.batches.clock())[:10],
            spent=partial(self.spent, lease),
            labels=SealedLabels(self.vault, self.secrets, *lease.sealed),
            folder=folder,
            inputs=self.works.folder / work.inputs if work.inputs else None,
            progress=progress,
        )
        drawn = kind.draw(job)
        self.database.fault(f"{kind.family.noun}.draw:written")
        _write_durably(envelope, drawn.envelope)
        fsync_folder(folder)
        fsync_folder(folder.parent)
        fsync_folder(folder.parent.parent)
        self.database.fault(f"{kind.family.noun}.draw:durable")
        sha256 = hashlib.sha256(drawn.envelope).hexdigest()
        return drawn, [WorkFile(envelope.name, ENVELOPE, len(drawn.envelope), sha256), *drawn.files]

    def _publish(self, connection: Connection, lease: Lease, drawn: Drawn, files: list[WorkFile]) -> None:
        work, kind = lease.work, self.works.kinds[lease.work.kind]
        self.publish(connection, lease, sha256=drawn.sha256)
        for position, file in enumerate(files):
            path = f"{work.id}/attempt-{lease.attempt}/{file.name}"
            row = {"work": work.id, "name": file.name, "position": position, "role": file.role, "path": path}
            connection.execute(sa.insert(work_files).values(**row, bytes=file.size, sha256=file.sha256))
        details = kind.event(work) | {kind.family.digest: drawn.sha256, "n": lease.n}
        self.note(connection, kind.family.published, lease, details)
        self.works.tell(connection, kind.family.told_published, work.id)


def _write_durably(path: Path, data: bytes) -> None:
    with path.open("r+b") as file:  # space was reserved in it
        file.write(data)
        file.truncate()
        file.flush()
        os.fsync(file.fileno())
