"""An upload on its way in: read, checked, digested, stored. Nothing of it is part of the batch yet."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from labels_party.labels.at_rest import digest_key
from labels_party.labels.batch_index import BatchIndex
from labels_party.labels.batches import DELETE, INSERT, Segment
from labels_party.labels.chunks import Chunks, Findings, sliced
from labels_party.labels.columns import label_rows
from labels_party.labels.comparison import Compared
from labels_party.labels.submission import Submission
from labels_party.labels.upload_rows import DELETED, Rows, checked
from labels_party.labels.vault import LabelVault
from labels_party.storage.secrets import Secrets

if TYPE_CHECKING:
    import pyarrow as pa


class Arrival:
    """Context manager of one upload; removes its temporary files at exit, not the stored objects."""

    def __init__(
        self,
        submission: Submission,
        batch_index: BatchIndex,
        vault: LabelVault,
        secrets_: Secrets,
        spill: Path,
        in_memory: int | None = None,
    ) -> None:
        self.submission, self._findings = submission, Findings()
        key = digest_key(secrets_, submission.batch.label)
        self.digests = Compared(submission, batch_index, self._findings, vault, key, spill, in_memory)
        self.objects = ArrivalObjects(submission, vault)

    def __enter__(self) -> Arrival:
        return self

    def __exit__(self, *_: object) -> None:
        self.digests.close()

    def receive(self, chunks: Chunks) -> None:
        """Read, check and store all rows. Raises InvalidRows, DuplicateId, InvalidFile, Conflict and errors of
        `chunks`."""
        rows = checked(sliced(chunks), self.submission, self._findings)
        rows = self.digests.digested(rows)
        self.objects.store(rows)
        self.digests.finish(self.objects.ids)

    def passing(self, chunks: Callable[[], Chunks]) -> Iterator[Rows]:
        """Yield the checked rows without storing any; call `finish` afterwards. `chunks` returns the same rows at each
        call."""
        self._again = chunks
        return self.digests.digested(checked(sliced(chunks()), self.submission, self._findings))

    def finish(self) -> None:
        """Compare the digests of all rows that passed. Raises as `receive`."""
        again = checked(sliced(self._again()), self.submission, Findings())
        self.digests.finish(lambda: (rows.ids for rows in again))


DELETED_AT_ONCE = 1 << 18  # rows of one stored object of deletions


class ArrivalObjects:
    """Stored objects of one upload; deletions of an upsert are objects of their own."""

    def __init__(self, submission: Submission, vault: LabelVault) -> None:
        self.submission, self.vault = submission, vault
        self.stored: list[Segment] = []  # of the upload alone: they are no part of the batch
        self._started: list[str] = []  # keys of all objects, finished or not
        self._deleted: list[pa.RecordBatch] = []
        self._name = secrets.token_hex(8)

    def store(self, rows: Iterator[Rows]) -> None:
        """Store the rows. Raises errors of `rows`, and Unavailable."""
        self._put(self._key(), self.kept(rows), self.submission.mode or INSERT)
        self._put_deleted()

    def kept(self, rows: Iterator[Rows]) -> Iterator[pa.RecordBatch]:
        """Yield the rows as stored, without deletions of an upsert."""
        import pyarrow as pa

        for part in rows:
            if part.positions is None:
                times = None if part.times is None else pa.array(part.times)
                columns = [column for column in (part.ids, part.units, times) if column is not None]
                yield pa.record_batch(columns, schema=self.submission.schema)
            elif self.submission.mode == DELETE:
                yield self._deletions(part)
            else:
                stays = part.positions != DELETED
                if not stays.all():
                    self._delete(part.only(~stays))
                    part = part.only(stays)
                if part.positions is not None and len(part.ids):
                    yield label_rows(part.ids, part.positions, part.units)

    def ids(self) -> Iterator[pa.Array]:
        """Yield the ids again in row order; nothing if the order was not kept."""
        if len(self.stored) == 1:
            for batch in self.vault.scan(self.stored[0].key):
                yield batch.column(0)

    def delete(self) -> None:
        """Remove every object, finished or not."""
        for key in self._started:
            self.vault.delete(key)

    # --- parts --------------------------------------------------------------------------------------------

    def _key(self) -> str:
        number = f"-{len(self._started)}" if self._started else ""
        key = f"{self.submission.batch.id}/{self.submission.kind}-{self._name}{number}.parquet"
        self._started.append(key)
        return key

    def _deletions(self, rows: Rows) -> pa.RecordBatch:
        import pyarrow as pa

        columns = [rows.ids, pa.array(np.zeros(len(rows.ids), np.uint32))]
        return pa.record_batch(columns if rows.units is None else [*columns, rows.units], schema=self.submission.schema)

    def _delete(self, rows: Rows) -> None:
        self._deleted.append(self._deletions(rows))
        if sum(batch.num_rows for batch in self._deleted) >= DELETED_AT_ONCE:
            self._put_deleted()

    def _put_deleted(self) -> None:
        if self._deleted:
            self._put(self._key(), self._deleted, DELETE)
        self._deleted = []

    def _put(self, key: str, batches: Iterable[pa.RecordBatch], mode: str) -> None:
        rows = self.vault.put(key, batches, self.submission.schema)
        if rows:
            self.stored.append(Segment(self.submission.kind, len(self.stored) + 1, key, rows, mode=mode))
        else:  # of an upsert that only deletes
            self.vault.delete(key)
