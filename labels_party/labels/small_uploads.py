"""Small uploads of one batch that wait at the same time: one object, one run of digests and one transaction for all.

Each is answered once that transaction is durable, as if it had come alone. What a key that may send labels only can
measure does not depend on which ids have a record: whether an upload of it is set aside is a mark in a row that each
has, and nothing else (invariant no-oracle).
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
from labels_party.labels.checked import checked
from labels_party.labels.chunks import Chunks, Findings, sliced
from labels_party.labels.columns import label_rows, label_schema
from labels_party.labels.digests import siphash128
from labels_party.labels.recorded import Recorder
from labels_party.labels.runs import Marks, Run, among, only, repeated, sort_run
from labels_party.labels.submission import Submission

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Small:
    """An upload to be inserted whose body is in memory: `chunks` gives it whenever it is asked."""

    chunks: Callable[..., Chunks]  # of columns, whether labels are classes, and usual names of columns
    call: IdempotentCall
    owner: bool
    size: int = 0  # bytes of the body


_Part = tuple["pa.Array", npt.NDArray[np.int64]]


@dataclass(frozen=True)
class _Read:
    """A small upload without a fault in itself."""

    upload: Small
    ids: pa.Array
    positions: npt.NDArray[np.int64]


@dataclass(frozen=True)
class _Group:
    """Small uploads that may be stored together, the digests of all their rows, and of which upload each is."""

    read: list[_Read]
    run: Run
    of: npt.NDArray[np.int64]

    def only(self, chosen: Marks) -> _Group:
        """Some of the uploads."""
        rows, number = chosen[self.of], np.cumsum(chosen) - 1
        read = [one for one, stays in zip(self.read, chosen, strict=True) if stays]
        return _Group(read, only(self.run, rows), number[self.of[rows]])

    def having(self, marks: Marks) -> Marks:
        """bool[uploads]: which have one of the marked digests."""
        return np.bincount(self.of, marks, minlength=len(self.read)) > 0

    @property
    def owners(self) -> Marks:
        """bool[uploads]: which an owner sends."""
        return np.array([one.upload.owner for one in self.read], np.bool_)

    @property
    def again(self) -> Marks:
        """Digests that an upload before has."""
        return repeated(self.run)

    @property
    def twice(self) -> Marks:
        """Digests that the same upload has before."""
        marks = self.again
        marks[1:] &= self.of[1:] == self.of[:-1]
        return marks


class SmallUploads:
    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._known: dict[str, BatchIndex] = {}  # of the batch of the last uploads: its runs stay mapped

    def attempt(self, batch_id: str, uploads: Sequence[Small], runs: list[Segment]) -> list[Reply | None]:
        """Store what has nothing to be said against it, and the answers of those and of calls that were answered
        before. None: for the caller to take alone, which says what is wrong with it. `runs` gets the batch's runs of
        before. Raises StaleBatch, FileNotFoundError or what `look` raises, and then nothing is stored."""
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
            taken = {id(one) for one in group.read}
            for i, one in read.items():
                answers[i] = _reply(batch_index, one) if id(one) in taken else None
        return answers

    # --- parts --------------------------------------------------------------------------------------------

    @staticmethod
    def _earlier(connection: Connection, uploads: Sequence[Small]) -> tuple[list[Reply | None], list[int]]:
        """Answers given before, and which calls are new: the first of each key, and of those that are not refused."""
        earlier = earlier_of(connection, [upload.call for upload in uploads])
        keys = [(upload.call.caller, upload.call.key) for upload in uploads]
        new = [
            i for i, found in enumerate(earlier) if found is None and (keys[i][1] is None or keys.index(keys[i]) == i)
        ]
        return [None if isinstance(found, LabelDPError) else found for found in earlier], new

    def _may(self, known: BatchIndex, upload: Small) -> bool:
        try:
            known.require_list()
            upload.call.settle()
        except LabelDPError:
            return False
        return True

    def _read(self, known: BatchIndex, uploads: dict[int, Small]) -> dict[int, _Read]:
        """Those without a fault in themselves. Tables of one shape are checked together."""
        import pyarrow as pa

        submission = Submission(known.batch, known.population, INSERT, owner=True)
        if submission.units:
            return {}
        alike: dict[pa.Schema, dict[int, pa.Table]] = {}
        for i, upload in uploads.items():
            with contextlib.suppress(Exception):  # whatever it is, the single upload says it
                chunks = list(upload.chunks(submission.columns, bool(known.population.domain.names), *submission.usual))
                table = pa.concat_tables(chunk.table for chunk in sliced(chunks))
                alike.setdefault(table.schema, {})[i] = table
        found: dict[int, _Read] = {}
        for tables in alike.values():
            together = _checked(submission, list(tables.values()))
            for at, (i, table) in enumerate(tables.items()):
                for part in together[at : at + 1] or _checked(submission, [table]):
                    found[i] = _Read(uploads[i], *part)
        return found

    def _judged(self, known: BatchIndex, read: list[_Read]) -> tuple[_Group, Marks]:
        """Those to store, and which of them are set aside: another upload had an id before. Left out are one that names
        an id twice or an unlisted one, and an owner's with such an id, which may be refused."""
        import pyarrow as pa

        key = digest_key(self.recorder.secrets, known.batch.label)
        run, order = sort_run(*siphash128(pa.concat_arrays([one.ids for one in read]), key))
        group = _Group(read, run, np.repeat(np.arange(len(read)), [len(one.ids) for one in read])[order])
        odd = group.twice
        if known.batch.presence == ID_LIST:
            odd |= ~among(run, known.listed.values())
        group = group.only(~group.having(odd))
        taken = among(group.run, known.taken.values())
        refused = group.having(taken | group.again) & group.owners
        taken = taken[~refused[group.of]]
        group = group.only(~refused)
        return group, group.having(taken | group.again)

    def _store(self, known: BatchIndex, group: _Group, aside: Marks, runs: list[Segment]) -> None:
        if not group.read:
            return
        import pyarrow as pa

        recorder, batch_id, read = self.recorder, known.batch.id, group.read
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
            runs[:], came = recorder.compare_new(connection, known, group.run)
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
            remember(connection, [(one.upload.call, _reply(known, one)) for one in read])
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
    """The ids and positions of each table; nothing where there is a fault in one of them."""
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


def _reply(known: BatchIndex, one: _Read) -> Reply:
    return 200, {"batch": known.batch.id, "accepted": len(one.ids)}
