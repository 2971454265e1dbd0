"""Last step of an upload: one transaction makes its objects part of the batch and stores the reply."""

from __future__ import annotations

import secrets

import numpy as np
from sqlalchemy.engine import Connection

from label_dp.errors import Conflict
from label_dp.store.database import Database
from label_dp.store.idempotency import IdempotentCall, Reply
from labels_party.labels.arrival import Arrival
from labels_party.labels.aside import Insert, note_inserts
from labels_party.labels.at_rest import digest_key
from labels_party.labels.batch_index import BatchIndex, look
from labels_party.labels.batches import (
    EXAMPLES,
    ID_LIST,
    INSERT,
    LABELS,
    RUNS,
    Batch,
    Batches,
    Segment,
    StaleBatch,
    require_open,
    require_sendable,
)
from labels_party.labels.changes import commit
from labels_party.labels.digests import siphash128
from labels_party.labels.runs import EMPTY, Marks, Run, among, same_run
from labels_party.labels.vault import LabelVault
from labels_party.storage.secrets import Secrets

CHECKED_INSIDE = 1 << 20  # digests compared inside a transaction; more are compared outside, then retried


class Recorder:
    """Transactions of uploads; each raises StaleBatch or FileNotFoundError to be retried, and the objects stay."""

    def __init__(self, database: Database, batches: Batches, vault: LabelVault, secrets_: Secrets) -> None:
        self.database, self.batches, self.vault, self.secrets = database, batches, vault, secrets_

    # --- labels -------------------------------------------------------------------------------------------

    def labels(self, arrival: Arrival, call: IdempotentCall, runs: list[Segment]) -> Reply:
        """Record labels; `runs` receives the batch's earlier runs. Raises DuplicateId, InvalidRows, Conflict."""
        submission, digests = arrival.submission, arrival.digests
        try:
            return self._labels(arrival, call, runs)
        except (StaleBatch, FileNotFoundError):
            batch_id, owner = submission.batch.id, submission.owner
            now = look(self.database, self.batches, self.vault, batch_id, digests.known, owner=owner)
            digests.compare_again(now)
            raise

    def _labels(self, arrival: Arrival, call: IdempotentCall, runs: list[Segment]) -> Reply:
        submission, digests, stored = arrival.submission, arrival.digests, arrival.objects.stored
        batch_id, owner, inserts = submission.batch.id, submission.owner, submission.mode == INSERT
        run_key = _run_key(stored[0].key)
        self.vault.put_run(run_key, *digests.run)  # whatever counts, and whichever of its ids came before

        def effect(connection: Connection) -> tuple[Reply, list[str]]:
            now, _ = self.batches.get(connection, batch_id)
            require_sendable(now, self.batches.clock(), owner=owner)
            runs[:], came = self.compare_new(connection, digests.known, digests.run if inserts else EMPTY)
            if owner and came.any():
                raise StaleBatch("A record of one of these ids came meanwhile.")
            aside = inserts and not owner and (digests.aside or bool(np.count_nonzero(came)))
            waiting = 0
            if inserts and not owner:
                insert = Insert(stored[0].rows, 0, call.caller, aside, call.settle())
                waiting = note_inserts(connection, batch_id, stored[0].key, [insert], self.batches.clock())
            self.batches.bump(connection, now, waiting)
            for segment in stored:
                self.batches.add_segment(connection, batch_id, LABELS, segment.key, segment.rows, mode=segment.mode)
            self.batches.add_segment(connection, batch_id, RUNS, run_key, len(digests.run[0]), LABELS)
            return (200, {"batch": batch_id, "accepted": digests.rows}), []

        return commit(self.database, self.vault, "labels.store", call, effect, [run_key], [s.key for s in stored])

    def compare_new(self, connection: Connection, batch_index: BatchIndex, run: Run) -> tuple[list[Segment], Marks]:
        """Return the batch's runs, and which digests of `run` occur in those that `batch_index` lacks. Runs inside the
        transaction, so that of two uploads with one id only one counts. Raises StaleBatch."""
        segments = self.batches.segments(connection, batch_index.batch.id, RUNS, EXAMPLES)
        if batch_index.batch.presence == ID_LIST and any(s.key not in batch_index.listed for s in segments):
            raise StaleBatch("Another list of ids came meanwhile.")
        if batch_index.held_back and set(batch_index.held_back) - set(
            self.batches.held_back(connection, batch_index.batch.id)
        ):
            raise StaleBatch("An upload that was set aside counts meanwhile.")
        runs = self.batches.segments(connection, batch_index.batch.id, RUNS, LABELS)
        new = [s for s in runs if s.key not in batch_index.taken]
        if len(run[0]) and (sum(s.rows for s in new) > CHECKED_INSIDE or (new and len(run[0]) > CHECKED_INSIDE)):
            raise StaleBatch("Many labels came meanwhile.")
        return runs, among(run, (self.vault.run(s.key) for s in new) if len(run[0]) else ())

    # --- lists of examples --------------------------------------------------------------------------------

    def examples(self, arrival: Arrival, call: IdempotentCall) -> Reply:
        """Record a list of ids; the same list again changes nothing, only the owner replaces one. Raises Conflict."""
        submission, (stored,) = arrival.submission, arrival.objects.stored
        batch = submission.batch
        reply: Reply = 200, {"batch": batch.id, "examples": stored.rows}
        earlier = self.database.read("examples.listed", lambda c: self._list(c, batch.id))
        same = bool(earlier) and same_examples(
            self.vault,
            (earlier[0].key, self.vault.run(earlier[1].key)),
            (stored.key, arrival.digests.run),
            digest_key(self.secrets, batch.label),
            more=submission.units or submission.times,
        )
        run_key = _run_key(stored.key)
        self.vault.put_run(run_key, *arrival.digests.run)

        def effect(connection: Connection) -> tuple[Reply, list[str]]:
            now, _ = self.batches.get(connection, batch.id)
            require_listed(now)
            segments = self._list(connection, batch.id)
            if segments != earlier:
                raise StaleBatch("Another list came meanwhile.")
            if same:
                return reply, [stored.key, run_key]
            if segments and not submission.owner:
                raise Conflict("This batch has another list of ids already; only its owner can replace it.")
            require_open(now)
            if self.batches.segments(connection, batch.id, LABELS):
                raise Conflict("Labels were stored already; the list of ids is fixed before labels count.")
            self.batches.bump(connection, now)
            for old in segments:
                self.batches.drop_segments(connection, batch.id, old.kind, [old.number])
            self.batches.add_segment(connection, batch.id, EXAMPLES, stored.key, stored.rows)
            self.batches.add_segment(connection, batch.id, RUNS, run_key, stored.rows, EXAMPLES)
            return reply, [old.key for old in segments]

        return commit(self.database, self.vault, "examples.store", call, effect, [run_key], [stored.key])

    def _list(self, connection: Connection, batch_id: str) -> list[Segment]:
        """Return the list of examples and its run; empty if none came."""
        segments = self.batches.segments(connection, batch_id, EXAMPLES)
        return segments + self.batches.segments(connection, batch_id, RUNS, EXAMPLES)


def require_listed(batch: Batch) -> None:
    """Raise Conflict if the batch takes no list of ids."""
    if batch.presence != ID_LIST:
        raise Conflict(f"The owner declared presence in batch '{batch.id}' public, so it takes no list of ids.")


def _run_key(key: str) -> str:
    """Make a fresh key for the run beside a stored object: a retry never overwrites another's."""
    return f"{key.removesuffix('.parquet')}-{secrets.token_hex(4)}.run"


WORD = 1 << 64


def same_examples(vault: LabelVault, one: tuple[str, Run], other: tuple[str, Run], key: bytes, *, more: bool) -> bool:
    """Compare two lists, each (object key, run): the same ids, each with the same unit and time, if there is `more`?"""
    if not same_run(one[1], other[1]):
        return False
    return not more or _fingerprint(vault, one[0], key) == _fingerprint(vault, other[0], key)


def _fingerprint(vault: LabelVault, stored: str, key: bytes) -> tuple[int, int]:
    """Sum the keyed digests of whole rows, independent of their order."""
    import pyarrow as pa
    import pyarrow.compute as pc

    sums = [0, 0]
    for batch in vault.scan(stored):
        cells = [column.cast(pa.large_string()) for column in batch.columns]
        # with their lengths, so that no other row reads the same
        texts = [text for cell in cells for text in (pc.binary_length(cell).cast(pa.large_string()), cell)]
        joined = pc.binary_join_element_wise(*texts, pa.scalar(" ", pa.large_string()))
        for i, half in enumerate(siphash128(joined, key)):
            sums[i] = (sums[i] + int(half.sum())) % WORD  # numpy adds modulo 2⁶⁴
    return sums[0], sums[1]
