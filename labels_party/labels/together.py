"""Small uploads of one batch that wait at the same time: one object, one run of digests and one transaction for all.

Each is answered once that transaction is durable, as if it had come alone. What a key that may send labels only can
measure does not depend on which ids have a record: an upload of it that is set aside lies in the same object, behind
those that count, and costs the same writes (invariant 8).
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
from label_dp.service.idempotency import NO_KEY, IdempotentCall, Reply, earlier_of, remember
from labels_party.labels.aside import note_aside
from labels_party.labels.at_rest import digest_key
from labels_party.labels.batches import ASIDE, ID_LIST, INSERT, LABELS, RUNS, Segment, StaleBatch, require_sendable
from labels_party.labels.changes import commit
from labels_party.labels.checked import checked
from labels_party.labels.chunks import Chunks, Findings, sliced
from labels_party.labels.columns import label_rows, label_schema
from labels_party.labels.digests import siphash128
from labels_party.labels.known import Known, look
from labels_party.labels.recorded import Recorder
from labels_party.labels.runs import Run, among, only, repeated, sort_run
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


class Together:
    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._known: dict[str, Known] = {}  # of the batch of the last uploads: its runs stay mapped

    def attempt(self, batch_id: str, uploads: Sequence[Small], runs: list[Segment]) -> list[Reply | None]:
        """Store what has nothing to be said against it, and the answers of those and of calls that were answered
        before. None: for the caller to take alone, which says what is wrong with it. `runs` gets the batch's runs of
        before. Raises StaleBatch or FileNotFoundError, and then nothing is stored."""
        recorder = self.recorder
        known = look(recorder.database, recorder.batches, recorder.vault, batch_id, self._known.get(batch_id))
        self._known = {batch_id: known}
        answers, new = recorder.database.read("labels.seen", lambda c: self._earlier(c, uploads))
        read = self._read(known, {i: uploads[i] for i in new if self._may(known, uploads[i])})
        if read:
            counted, aside, run = self._judged(known, list(read.values()))
            places = list(read)
            taken = [places[at] for at in (*counted, *aside)]
            self._store(known, [read[i] for i in taken], len(counted), run, runs)
            for i in taken:
                answers[i] = _reply(known, read[i])
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

    def _may(self, known: Known, upload: Small) -> bool:
        try:
            require_sendable(known.batch, self.recorder.batches.clock(), owner=upload.owner)
            known.require_list()
            upload.call.settle()
        except LabelDPError:
            return False
        return True

    def _read(self, known: Known, uploads: dict[int, Small]) -> dict[int, _Read]:
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

    def _judged(self, known: Known, read: list[_Read]) -> tuple[list[int], list[int], Run]:
        """Which count, which are set aside, and the digests of those that count. Others are in neither list: one that
        names an id twice or an unlisted one, and an owner's that has an id with a record."""
        import pyarrow as pa

        sizes = [len(one.ids) for one in read]
        key = digest_key(self.recorder.secrets, known.batch.label)
        run, order = sort_run(*siphash128(pa.concat_arrays([one.ids for one in read]), key))
        again = repeated(run)
        group = np.cumsum(~again) - 1  # rows of one id
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))  # where a row went
        theirs = np.split(place, np.cumsum(sizes)[:-1])
        odd = np.zeros(len(order), dtype=bool)
        if known.batch.presence == ID_LIST:
            odd = ~among(run, known.listed.values())
        taken = among(run, known.taken.values())
        held = np.zeros(int(group[-1]) + 1, dtype=bool)  # ids that an upload before has
        counted: list[int] = []
        aside: list[int] = []
        for at, (one, rows) in enumerate(zip(read, theirs, strict=True)):
            mine = group[rows]
            if odd[rows].any() or (again.any() and len(np.unique(mine)) < len(mine)):
                continue
            if not (taken[rows].any() or held[mine].any()):
                counted.append(at)
                held[mine] = True
            elif not one.upload.owner:
                aside.append(at)
        return counted, aside, only(run, ~again & held[group])

    def _store(self, known: Known, read: list[_Read], counted: int, run: Run, runs: list[Segment]) -> None:
        """The first `counted` count, the others are set aside."""
        if not read:
            return
        import pyarrow as pa

        recorder, batch_id = self.recorder, known.batch.id
        name = f"{batch_id}/{LABELS}-{secrets.token_hex(8)}"
        key, run_key = f"{name}.parquet", f"{name}.run"
        ids, positions = pa.concat_arrays([one.ids for one in read]), np.concatenate([one.positions for one in read])
        rows = label_rows(ids, positions)
        ends = np.cumsum([len(one.ids) for one in read]).tolist()
        behind = ends[counted - 1] if counted else 0

        def effect(connection: Connection) -> tuple[Reply, list[str]]:
            now, _ = recorder.batches.get(connection, batch_id)
            if any(earlier_of(connection, [one.upload.call for one in read])):
                raise StaleBatch("One of these calls was answered meanwhile.")
            for owner in sorted({one.upload.owner for one in read}):
                require_sendable(now, recorder.batches.clock(), owner=owner)
            runs[:] = recorder.check_new_runs(connection, known, run)
            recorder.batches.bump(connection, now)
            if counted:
                recorder.batches.add_segment(connection, batch_id, LABELS, key, behind)
            # named whether or not any of them counts, with the rows that were sent: what is deleted, what the next look
            # opens and what is merged with it must not tell
            kind = LABELS if counted else ASIDE
            recorder.batches.add_segment(connection, batch_id, RUNS, run_key, len(ids), kind)
            for at in range(counted, len(read)):
                stored = Segment(ASIDE, 0, key, len(read[at].ids), start=ends[at] - len(read[at].ids))
                recorder.batches.add_segment(connection, batch_id, ASIDE, key, stored.rows, start=stored.start)
                note_aside(connection, batch_id, stored, "", read[at].upload.call.caller, recorder.batches.clock())
            remember(connection, [(one.upload.call, _reply(known, one)) for one in read])
            return (200, {}), []

        try:
            recorder.vault.put(key, [rows], label_schema())
            recorder.vault.put_run(run_key, *run)
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


def _reply(known: Known, one: _Read) -> Reply:
    return 200, {"batch": known.batch.id, "accepted": len(one.ids)}
