"""Pipeline of an attempt: the kind draws into the attempt's folder and signs; files become durable; publication.

Space for the largest envelope is reserved first, as kinds do for their files, so that a full disk does not depend on
the draw.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from functools import partial
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from label_dp.errors import LabelDPError, Unavailable
from label_dp.logs import log_internal
from label_dp.store.folders import LEFTOVER_SECONDS, reserve
from label_dp.store.objects.port import StoreRefused
from labels_party.labels.batch_uses import ENDED, PUBLISHED, WORKING
from labels_party.labels.batches import timestamp
from labels_party.labels.seal import SealedLabels
from labels_party.labels.vault import LabelVault
from labels_party.storage.secrets import Secrets
from labels_party.storage.tables import work as table
from labels_party.storage.tables import work_files
from labels_party.work.attempts import FREE, TAKEN, Attempts, Lease
from labels_party.work.identity import Workplace
from labels_party.work.kind import Draft, Job, ProgressHook, WorkFile, no_progress
from labels_party.work.shelf import place
from labels_party.work.store import ENVELOPE, Works

AT_ONCE = 500  # paths of one query


class Pipeline(Attempts):
    """Attempts that draw work and publish its files."""

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
            draft = self._drawn(lease, progress) if lease.work.draft is None else self._taken_up(lease)
            self._keep(lease, draft)
        except OSError as error:
            raise Unavailable(f"The {noun} cannot be written ({error.strerror}); it stays charged.") from None
        self.database.write(f"{noun}.publish", lambda c: self._publish(c, lease, draft))

    def failed(self, connection: Connection, lease: Lease, error: Exception) -> LabelDPError:
        work, kind = lease.work, self.works.queued(lease.work.kind)
        log_internal(self.log, f"{kind.name} {work.id}", error, work=work.id, kind=kind.name)
        failure = kind.failure(error)
        self.note(connection, kind.family.failed, lease, kind.event(work) | {"code": failure.code, "charge": "kept"})
        self.works.tell(connection, kind.family.told_failed, work.id)
        return failure

    def ended(self, lease: Lease, outcome: str) -> None:
        """Remove inputs and abandoned attempts; the last attempt still counts as begun."""
        about = (lease.work.id, lease.attempt)
        if outcome != PUBLISHED:
            self.works.shelf.drop(*about, begun=outcome != TAKEN)
        if outcome in (TAKEN, FREE):
            return
        self.works.forget_inputs(lease.work.inputs)
        self.works.shelf.drop_others(*about)
        if self.works.shelf.drafts is not None:
            self.works.shelf.drafts.forget(lease.work)

    def sweep(self) -> None:
        """Remove inputs that a killed process left: those of ended work, and those over a day old without any work."""
        there = self.works.shelf.all_inputs()
        if not there:
            return
        query = sa.select(table.c.inputs, table.c.state).where(table.c.inputs != "")
        states = {row.inputs: row.state for row in self.database.read("work.inputs", lambda c: c.execute(query).all())}
        before, ended = time.time() - LEFTOVER_SECONDS, (PUBLISHED, *ENDED)
        for name, at in there.items():
            if states.get(name) in ended or (at < before and name not in states):
                self.works.forget_inputs(name)

    def sweep_attempts(self) -> int:
        """Remove files that attempts sent over a day ago and that no row names; return how many."""
        shelf = self.works.shelf
        old = shelf.leftovers(time.time() - LEFTOVER_SECONDS)
        removed = 0
        for start in range(0, len(old), AT_ONCE):
            part = old[start : start + AT_ONCE]
            for path in set(part) - self.database.read("work.named", partial(self._named, paths=part)):
                shelf.delete(path)
                removed += 1
        return removed + self._sweep_drafts()

    def _sweep_drafts(self) -> int:
        """Remove drafts over a day old that no unfinished work needs; return how many."""
        drafts = self.works.shelf.drafts
        if drafts is None:
            return 0
        stored, removed = drafts.listed(), 0
        unfinished = self.database.read("work.waiting", self.works.waiting)
        for name in stored.keys() - {work.id for work in unfinished}:
            for each in stored[name]:
                if each.modified < time.time() - LEFTOVER_SECONDS:
                    drafts.objects.delete(each.key)
                    removed += 1
        return removed

    @staticmethod
    def _named(connection: Connection, paths: list[str]) -> set[str]:
        """Return paths that are published, may still be, or belong to unknown work."""
        named = set(connection.execute(sa.select(work_files.c.path).where(work_files.c.path.in_(paths))).scalars())
        of = {path: path.partition("/")[0] for path in paths}
        t = table
        rows = connection.execute(sa.select(t.c.id, t.c.state, t.c.attempt).where(t.c.id.in_(set(of.values())))).all()
        current = {row.id: f"{place(row.id, row.attempt)}/" if row.state in WORKING else None for row in rows}
        named |= {path for path, work_id in of.items() if work_id not in current}
        return named | {path for path, work_id in of.items() if path.startswith(current.get(work_id) or "\0")}

    # --- parts --------------------------------------------------------------------------------------------

    def _drawn(self, lease: Lease, progress: ProgressHook) -> Draft:
        """Draw in the attempt's folder. If the shelf has drafts, store the draw there and name it in the row."""
        work, shelf = lease.work, self.works.shelf
        kind = self.works.queued(work.kind)
        folder = shelf.begin(work.id, lease.attempt)
        envelope = folder / kind.family.envelope
        reserve(envelope, kind.family.most_bytes)
        with contextlib.ExitStack() as stack:
            job = Job(
                work=work,
                batch=lease.batch,
                population=lease.population,
                today=timestamp(self.batches.clock())[:10],
                spent=partial(self.spent, lease),
                labels=SealedLabels(self.vault, *lease.sealed),
                folder=folder,
                inputs=stack.enter_context(shelf.inputs(work.inputs)) if work.inputs else None,
                progress=progress,
            )
            signed_files = kind.draw(job)
        self.database.fault(f"{kind.family.noun}.draw:written")
        _write_durably(envelope, signed_files.envelope)
        sha256 = hashlib.sha256(signed_files.envelope).hexdigest()
        files = (WorkFile(envelope.name, ENVELOPE, len(signed_files.envelope), sha256), *signed_files.files)
        draft = Draft(lease.attempt, signed_files.sha256, files)
        if shelf.drafts is not None:
            shelf.drafts.put(work, draft, folder, kind.largest(job, len(files)))
            name = f"{kind.family.noun}.draft"
            self.database.write(name, lambda c: self.change(c, lease, draft=draft.as_json()))
        return draft

    def _taken_up(self, lease: Lease) -> Draft:
        """Copy the draft of an earlier attempt into this one's folder: its bytes may have been seen."""
        work, shelf = lease.work, self.works.shelf
        if work.draft is None or shelf.drafts is None:
            raise LabelDPError("A draw of this work was sent to an object store that is not configured any more.")
        draft, folder = Draft.from_json(work.draft), shelf.begin(work.id, lease.attempt)
        try:
            shelf.drafts.get(work, draft, folder)
        except StoreRefused as error:
            raise LabelDPError(f"{error.detail} No other draw may follow it.") from None
        return draft

    def _keep(self, lease: Lease, draft: Draft) -> None:
        try:
            self.works.shelf.keep(lease.work.id, lease.attempt, list(draft.files))
        except StoreRefused:
            # the store has seen the bytes and may depend on their size: a further draw would need a further charge
            raise LabelDPError("The object store refused what was drawn; see the log.") from None
        self.database.fault(f"{self.works.family(lease.work).noun}.draw:durable")

    def _publish(self, connection: Connection, lease: Lease, draft: Draft) -> None:
        work, kind = lease.work, self.works.kinds[lease.work.kind]
        self.publish(connection, lease, sha256=draft.sha256)
        for position, file in enumerate(draft.files):
            path = f"{place(work.id, lease.attempt)}/{file.name}"
            row = {"work": work.id, "name": file.name, "position": position, "role": file.role, "path": path}
            connection.execute(sa.insert(work_files).values(**row, bytes=file.size, sha256=file.sha256))
        details = kind.event(work) | {kind.family.digest: draft.sha256, "n": lease.n}
        self.note(connection, kind.family.published, lease, details)
        self.works.tell(connection, kind.family.told_published, work.id)


def _write_durably(path: Path, data: bytes) -> None:
    with path.open("r+b") as file:  # space was reserved in it
        file.write(data)
        file.truncate()
        file.flush()
        os.fsync(file.fileno())
