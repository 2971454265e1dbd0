"""Concurrent small uploads of one batch: one object, one run of digests and one transaction for all.

Each is answered once that transaction is durable, as if it had come alone. Nothing that a key may measure which may
only send labels depends on which ids have a record: being set aside is a mark in a row that every upload has (invariant
no-oracle).
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from sqlalchemy.engine import Connection

from label_dp.errors import LabelDPError
from label_dp.store.idempotency import NO_KEY, IdempotentCall, Reply, earlier_of, remember
from labels_party.labels.aside import Insert, note_inserts
from labels_party.labels.at_rest import digest_key
from labels_party.labels.batch_index import BatchIndex, look
from labels_party.labels.batches import ID_LIST, INSERT, LABELS, RUNS, Segment, StaleBatch, require_sendable
from labels_party.labels.changes import commit
from labels_party.labels.chunks import Chunks, Findings, sliced
from labels_party.labels.columns import label_rows, label_schema
from labels_party.labels.digests import siphash128
from labels_party.labels.recorder import Recorder
from labels_party.labels.runs import Marks, Run, among, only, repeated, sort_run
from labels_party.labels.submission import Submission
from labels_party.labels.upload_rows import checked

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Small:
    """Insert whose body is in memory; each call of `chunks` returns it."""

    chunks: Callable[..., Chunks]  # of columns, whether labels are classes, and usual names of columns
    call: IdempotentCall
    owner: bool
    size: int = 0  # bytes of the body


_Part = tuple["pa.Array", npt.NDArray[np.int64]]


@dataclass(frozen=True)
class _Read:
    """Small upload without faults of its own."""

    upload: Small
    ids: pa.Array
    positions: npt.NDArray[np.int64]


@dataclass(frozen=True)
class _Group:
    """Small uploads to store together, the digests of all their rows, and the upload of each digest."""

    read: list[_Read]
    run: Run
    of: npt.NDArray[np.int64]

    def only(self, mask: Marks) -> _Group:
        """Select the marked uploads."""
        rows, number = mask[self.of], np.cumsum(mask) - 1
        read = [one for one, stays in zip(self.read, mask, strict=True) if stays]
        return _Group(read, only(self.run, rows), number[self.of[rows]])

    def having(self, marks: Marks) -> Marks:
        """Mark bool[uploads] that have one of the marked digests."""
        return np.bincount(self.of, marks, minlength=len(self.read)) > 0

    @property
    def owners(self) -> Marks:
        """Mark bool[uploads] sent by an owner."""
        return np.array([one.upload.owner for one in self.read], np.bool_)

    @property
    def again(self) -> Marks:
        """Mark digests that an earlier upload has."""
        return repeated(self.run)

    @property
    def twice(self) -> Marks:
        """Mark digests that the same upload has earlier."""
        marks = self.again
        marks[1:] &= self.of[1:] == self.of[:-1]
        return marks


class SmallUploads:
    """Stores small uploads together."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._known: dict[str, BatchIndex] = {}  # of the batch of the last uploads: its runs stay mapped

    def attempt(self, batch_id: str, uploads: Sequence[Small], runs: list[Segment]) -> list[Reply | None]:
        """Store uploads without faults; return their replies and those of calls answered before.

        None: the caller takes the upload alone, which reports its fault. `runs` receives the batch's earlier runs.
        Raises StaleBatch, FileNotFoundError or errors of `look`, and then stores nothing.
        """
        recorder = self.recorder
        before = self._known.get(batch_id)
        owner = all(upload.owner for upload in uploads)
        batch_index = look(recorder.database, recorder.batches, recorder.vault, batch_id, before, owner=owner)
        self._known = {batch_id: batch_index}
        answers, new = recorder.database.read("labels.seen", lambda c: self._earlier(c, uploads))
        read = self._read(batch_index, {i: uploads[i] for i in new if self._may(batch_index, uploads[i])})
        if read:
            group, aside = self._judged(batch_index, list(read.values()))
            self._store(batch_index, group, aside, runs)
            stored = {id(one) for one in group.read}
            for i, one in read.items():
                answers[i] = _reply(batch_index, one) if id(one) in stored else None
        return answers

    # --- parts --------------------------------------------------------------------------------------------

    @staticmethod
    def _earlier(connection: Connection, uploads: Sequence[Small]) -> tuple[list[Reply | None], list[int]]:
        """Return replies given before, and the indices of new calls: the first of each key, without refused ones."""
        earlier = earlier_of(connection, [upload.call for upload in uploads])
        keys = [(upload.call.caller, upload.call.key) for upload in uploads]
        new = [
            i for i, reply in enumerate(earlier) if reply is None and (keys[i][1] is None or keys.index(keys[i]) == i)
        ]
        return [None if isinstance(reply, LabelDPError) else reply for reply in earlier], new

    def _may(self, batch_index: BatchIndex, upload: Small) -> bool:
        try:
            batch_index.require_list()
            upload.call.settle()
        except LabelDPError:
            return False
        return True

    def _read(self, batch_index: BatchIndex, uploads: dict[int, Small]) -> dict[int, _Read]:
        """Read uploads without faults of their own; tables of one schema are checked together."""
        import pyarrow as pa

        submission = Submission(batch_index.batch, batch_index.population, INSERT, owner=True)
        if submission.units:
            return {}
        classes = bool(batch_index.population.domain.names)
        alike: dict[pa.Schema, dict[int, pa.Table]] = {}
        for i, upload in uploads.items():
            with contextlib.suppress(Exception):  # whatever it is, the single upload says it
                chunks = list(upload.chunks(submission.columns, classes, *submission.usual))
                table = pa.concat_tables(chunk.table for chunk in sliced(chunks))
                alike.setdefault(table.schema, {})[i] = table
        readable: dict[int, _Read] = {}
        for tables in alike.values():
            checked_parts = _checked(submission, list(tables.values()))
            for at, (i, table) in enumerate(tables.items()):
                for part in checked_parts[at : at + 1] or _checked(submission, [table]):
                    readable[i] = _Read(uploads[i], *part)
        return readable

    def _judged(self, batch_index: BatchIndex, read: list[_Read]) -> tuple[_Group, Marks]:
        """Select uploads to store, and mark those set aside because another upload had an id before. Leaves out
        uploads with a repeated or unlisted id, and an owner's with a taken id, which may be refused."""
        import pyarrow as pa

        key = digest_key(self.recorder.secrets, batch_index.batch.label)
        run, order = sort_run(*siphash128(pa.concat_arrays([one.ids for one in read]), key))
        group = _Group(read, run, np.repeat(np.arange(len(read)), [len(one.ids) for one in read])[order])
        odd = group.twice
        if batch_index.batch.presence == ID_LIST:
            odd |= ~among(run, batch_index.listed.values())
        group = group.only(~group.having(odd))
        recorded = among(group.run, batch_index.taken.values())
        refused = group.having(recorded | group.again) & group.owners
        recorded = recorded[~refused[group.of]]
        group = group.only(~refused)
        return group, group.having(recorded | group.again)

    def _store(self, batch_index: BatchIndex, group: _Group, aside: Marks, runs: list[Segment]) -> None:
        if not group.read:
            return
        import pyarrow as pa

        recorder, batch_id, read = self.recorder, batch_index.batch.id, group.read
        name = f"{batch_id}/{LABELS}-{secrets.token_hex(8)}"
        key, run_key = f"{name}.parquet", f"{name}.run"
        ids, positions = pa.concat_arrays([one.ids for one in read]), np.concatenate([one.positions for one in read])
        rows = label_rows(ids, positions)
        starts = np.cumsum([0, *(len(one.ids) for one in read)]).tolist()

        def effect(connection: Connection) -> tuple[Reply, list[str]]:
            now, _ = recorder.batches.get(connection, batch_id)
            if any(earlier_of(connection, [one.upload.call for one in read])):
                raise StaleBatch("One of these calls was answered meanwhile.")
            for owner in sorted(set(group.owners.tolist())):
                require_sendable(now, recorder.batches.clock(), owner=owner)
            runs[:], came = recorder.compare_new(connection, batch_index, group.run)
            late = aside | group.having(came)
            if (late & group.owners).any():
                raise StaleBatch("A record of one of these ids came meanwhile.")
            inserts = [
                Insert(len(one.ids), start, one.upload.call.caller, bool(mark), one.upload.call.settle())
                for one, start, mark in zip(read, starts[:-1], late, strict=True)
                if not one.upload.owner
            ]
            waiting = note_inserts(connection, batch_id, key, inserts, recorder.batches.clock())
            recorder.batches.bump(connection, now, waiting)
            recorder.batches.add_segment(connection, batch_id, LABELS, key, len(ids))
            recorder.batches.add_segment(connection, batch_id, RUNS, run_key, len(ids), LABELS)
            remember(connection, [(one.upload.call, _reply(batch_index, one)) for one in read])
            return (200, {}), []

        try:
            recorder.vault.put(key, [rows], label_schema())
            recorder.vault.put_run(run_key, *group.run)
            recorder.database.fault("upload.received")
        except BaseException:
            recorder.vault.delete(key)
            recorder.vault.delete(run_key)
            raise
        commit(recorder.database, recorder.vault, "labels.store", NO_KEY, effect, [key, run_key])


def _checked(submission: Submission, tables: list[pa.Table]) -> list[_Part]:
    """Return ids and positions of each table; empty if any table has a fault."""
    import pyarrow as pa

    findings = Findings()
    rows = list(checked(sliced([pa.concat_tables(tables)]), submission, findings))
    if findings or not rows:
        return []
    ids = pa.concat_arrays([part.ids for part in rows])
    positions = np.concatenate([part.positions for part in rows if part.positions is not None])
    ends = np.cumsum([table.num_rows for table in tables]).tolist()
    return [(ids[end - table.num_rows : end], positions[end - table.num_rows : end])
            for end, table in zip(ends, tables, strict=True)]  # fmt: skip


def _reply(batch_index: BatchIndex, one: _Read) -> Reply:
    return 200, {"batch": batch_index.batch.id, "accepted": len(one.ids)}
