"""One upload on its way in: read, checked, digested, stored. Nothing of it is part of the batch yet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from labels_party.labels.at_rest import digest_key
from labels_party.labels.batch_index import BatchIndex
from labels_party.labels.checked import Rows, checked
from labels_party.labels.chunks import Chunks, Findings, sliced
from labels_party.labels.compared import Compared
from labels_party.labels.stored import Objects
from labels_party.labels.submission import Submission
from labels_party.labels.vault import LabelVault
from labels_party.storage.secrets import Secrets


class Arrival:
    """A context manager that removes the temporary files, not the stored objects. `kept`: digests that may wait in
    memory."""

    def __init__(
        self,
        submission: Submission,
        known: BatchIndex,
        vault: LabelVault,
        secrets_: Secrets,
        spill: Path,
        kept: int | None = None,
    ) -> None:
        self.submission, self._findings = submission, Findings()
        key = digest_key(secrets_, submission.batch.label)
        self.digests = Compared(submission, known, self._findings, vault, key, spill, kept)
        self.objects = Objects(submission, vault)

    def __enter__(self) -> Arrival:
        return self

    def __exit__(self, *_: object) -> None:
        self.digests.close()

    def receive(self, chunks: Chunks) -> None:
        """Take everything in. Raises InvalidRows, DuplicateId, InvalidFile, Conflict and what the chunks raise."""
        rows = checked(sliced(chunks), self.submission, self._findings)
        rows = self.digests.digested(rows)
        self.objects.store(rows)
        self.digests.finish(self.objects.ids)

    def passing(self, chunks: Callable[[], Chunks]) -> Iterator[Rows]:
        """The rows, for the caller; none is stored. Then `finish`. `chunks` gives the same whenever it is called."""
        self._again = chunks
        return self.digests.digested(checked(sliced(chunks()), self.submission, self._findings))

    def finish(self) -> None:
        """All rows passed. Raises as `receive`."""
        again = checked(sliced(self._again()), self.submission, Findings())
        self.digests.finish(lambda: (rows.ids for rows in again))
