"""Intake of examples and labels into an open batch. A chunk passes from step to step and never back.

Steps: read (`formats`), checked, compared (its digests with the batch's), stored, recorded in one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy.engine import Connection

from label_dp.errors import Conflict, InvalidInput, LabelDPError, Unavailable
from label_dp.store.database import Database
from label_dp.store.idempotency import NO_KEY, IdempotentCall, Reply
from labels_party.labels.arrival import Arrival
from labels_party.labels.batch_index import BatchIndex, look
from labels_party.labels.batches import DELETE, INSERT, UPSERT, Batches, Segment, require_sendable
from labels_party.labels.changes import certainly_failed, commit, until_current
from labels_party.labels.chunks import Chunks
from labels_party.labels.compaction import Compaction, UploadTiers
from labels_party.labels.events.windows import EventWindows
from labels_party.labels.recorder import Recorder, require_listed
from labels_party.labels.small_uploads import Small, SmallUploads
from labels_party.labels.submission import Submission, has_units
from labels_party.labels.vault import LabelVault
from labels_party.storage.secrets import Secrets

if TYPE_CHECKING:
    from typing import TypeAlias

    import pyarrow as pa

    Sent: TypeAlias = Chunks | Callable[..., Chunks] | pa.Table

RETRIES = 200


class Intake:
    """Intake of uploads: Arrow tables or record batches, or a function that opens them. The function gets the columns
    to read and whether labels are names of classes."""

    def __init__(
        self,
        database: Database,
        batches: Batches,
        vault: LabelVault,
        secrets_: Secrets,
        windows: EventWindows,
        spill: Path,
    ) -> None:
        self.database, self.batches, self.vault, self.secrets, self.spill = database, batches, vault, secrets_, spill
        self.windows = windows
        self.recorder = Recorder(database, batches, vault, secrets_)
        self.small_uploads = SmallUploads(self.recorder)
        self.compaction = Compaction(database, vault, spill)

    def put_examples(
        self, batch_id: str, sent: Sent, call: IdempotentCall = NO_KEY, *, may_replace: bool = True
    ) -> Reply:
        """Declare the ids of an open batch (and units, if the population has them); the same list again changes
        nothing.

        With `may_replace` (the owner) another list replaces the first while no label is stored. Without it the reply
        depends on the lists alone, never on labels, which a repeated call would otherwise reveal (invariant
        public-rows); a population with units refuses it. Raises InvalidRows, Conflict.
        """
        earlier = self._earlier(call)
        if earlier is not None:
            return earlier
        batch, population = self.database.read("examples.look", lambda c: self.batches.get(c, batch_id))
        require_listed(batch)
        if has_units(population) and not may_replace:
            raise Conflict(
                "In this population examples belong to units, so its owner sends the list, with the unit of each: who "
                "names the units decides what the bound per unit is worth."
            )
        submission = Submission(batch, population, None, owner=may_replace)
        return self._take(
            submission, BatchIndex(batch, population), sent, call, partial(self.recorder.examples, call=call)
        )

    def add_labels(
        self, batch_id: str, sent: Sent, call: IdempotentCall = NO_KEY, *, mode: str = INSERT, owner: bool
    ) -> Reply:
        """Store all records or none, in bounded memory.

        Units are read only if the population has them and presence is public. Labels are mapped to the domain and
        encrypted before they touch a disk. An insert with an id that has a record is refused if `owner`; else it gets
        the usual reply but is set aside until the batch's owner decides (`aside.py`). An upsert replaces the label of
        such an id, and a null label deletes it. Raises InvalidRows, DuplicateId, Conflict.
        """
        if mode not in (INSERT, UPSERT):
            raise InvalidInput("mode is 'insert' or 'upsert'.")
        return self._labels(batch_id, sent, call, mode, owner=owner)

    def add_small(self, batch_id: str, uploads: Sequence[Small]) -> list[Reply | Exception]:
        """Run `add_labels` for each, with one object and one transaction for all without faults; return a reply or
        error each."""
        runs: list[Segment] = []
        busy = "Too many uploads to the same batch at once; try again."
        try:
            replies = until_current(lambda: self.small_uploads.attempt(batch_id, uploads, runs), RETRIES, busy)
        except Unavailable as error:
            return [error] * len(uploads)
        except LabelDPError:  # it may concern some of them only: each gets its own
            replies = [None] * len(uploads)
        self.compaction.run(UploadTiers(self.batches, batch_id), runs)
        answers: list[Reply | Exception] = []
        for upload, answer in zip(uploads, replies, strict=True):
            try:
                alone = partial(self.add_labels, batch_id, upload.chunks, upload.call, owner=upload.owner)
                answers.append(alone() if answer is None else answer)
            except Exception as error:  # the caller's own
                answers.append(error)
        return answers

    def delete_labels(self, batch_id: str, sent: Sent, call: IdempotentCall = NO_KEY, *, owner: bool) -> Reply:
        """Delete the labels of these ids, if they have one; the ids stay in the batch. Raises InvalidRows, Conflict."""
        return self._labels(batch_id, sent, call, DELETE, owner=owner)

    def _labels(self, batch_id: str, sent: Sent, call: IdempotentCall, mode: str, *, owner: bool) -> Reply:
        earlier = self._earlier(call)
        if earlier is not None:
            return earlier
        unavailable = "A part of the batch is lost; see the service's log."
        read = partial(look, self.database, self.batches, self.vault, batch_id, owner=owner)
        batch_index = until_current(read, RETRIES, unavailable)
        submission = Submission(batch_index.batch, batch_index.population, mode, owner=owner)
        runs: list[Segment] = []
        reply = self._take(submission, batch_index, sent, call, partial(self.recorder.labels, call=call, runs=runs))
        self.compaction.run(UploadTiers(self.batches, batch_id), runs)
        return reply

    def _take(
        self,
        submission: Submission,
        batch_index: BatchIndex,
        sent: Sent,
        call: IdempotentCall,
        record: Callable[[Arrival], Reply],
    ) -> Reply:
        """Receive, then record. Any failure, even a disconnect, leaves no object behind."""
        committing = False
        with Arrival(submission, batch_index, self.vault, self.secrets, self.spill) as arrival:
            try:
                arrival.receive(_chunks(sent, submission))
                call.settle()
                self.database.fault("upload.received")
                committing = True
                busy = "Too many uploads to the same batch at once; try again."
                reply = until_current(lambda: record(arrival), RETRIES, busy)
            except BaseException as error:
                # whatever else ends it, an interrupt or a disk that fails, the commit may have gone through
                if not committing or certainly_failed(error):
                    arrival.objects.delete()
                if isinstance(error, FileNotFoundError):  # a purge took the key of the batch
                    name = submission.batch.id
                    now = self.database.read("intake.look", lambda c: self.batches.get(c, name))[0]
                    require_sendable(now, self.batches.clock(), owner=submission.owner)
                # the same call may have won a race, and its answer is the answer
                earlier = self._earlier(call) if isinstance(error, Conflict) else None
                if earlier is not None:
                    return earlier
                raise
        return reply

    def discard(self, batch_id: str, call: IdempotentCall = NO_KEY) -> Reply:
        """Remove an open batch and all its data, and the events that it alone could count. Raises Conflict once it is
        sealed."""

        def effect(connection: Connection) -> tuple[Reply, list[str]]:
            batch, _ = self.batches.get(connection, batch_id)
            return (204, {}), self.batches.discard(connection, batch)

        reply = commit(self.database, self.vault, "batch.discard", call, effect, [])
        self.database.scrub()  # of the batch's key
        self.windows.retire()  # also when a call is repeated: its first one may have ended before
        return reply

    def _earlier(self, call: IdempotentCall) -> Reply | None:
        return None if call.key is None else self.database.read("intake.seen", call.earlier)


def _chunks(sent: Sent, submission: Submission) -> Chunks:
    if callable(sent):
        return sent(submission.columns, bool(submission.population.domain.names), *submission.usual)
    return sent if isinstance(sent, Iterable) else [sent]
