"""Finished draws on their way to an object store, encrypted under the key of their batch.

The store sees what is sent to it, so after the first byte of a draw no other draw may follow (invariant charge-first).
Before that byte a draw is put here and named in its row of work: whoever takes the work over sends the same bytes. Of a
draw that no row names the store has seen ciphertext alone, whose length follows from public facts.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from label_dp.errors import LabelDPError, Unavailable
from label_dp.store.objects.port import Objects, Stored, StoreRefused
from labels_party.labels.ciphered import CHUNK, Reader, ciphered
from labels_party.work.kind import Draft, Work


class Drafts:
    """`key_of` gives the key of a batch, or raises FileNotFoundError where it was erased."""

    def __init__(self, objects: Objects, key_of: Callable[[str], bytes]) -> None:
        self.objects, self._key_of = objects, key_of

    def put(self, work: Work, draft: Draft, folder: Path, largest: int) -> None:
        """Store the files of a draft, filled up to `largest` bytes. Raises OSError, Unavailable."""
        if sum(file.size for file in draft.files) > largest:
            raise LabelDPError("What was drawn is larger than its reserved space, so it was sent nowhere.")
        key, left = _key(work, draft), largest
        with self.objects.writing(key) as stored, ciphered(stored, self._key_of(work.batch), key) as inside:
            for file in draft.files:
                with (folder / file.name).open("rb") as source:
                    while chunk := source.read(CHUNK):
                        inside.write(chunk)
                left -= file.size
            while left:
                left -= inside.write(bytes(min(left, CHUNK)))

    def get(self, work: Work, draft: Draft, folder: Path) -> None:
        """Write its files, durable, into a new folder. Raises OSError, Unavailable, and StoreRefused where they are not
        what was put."""
        key = _key(work, draft)
        try:
            with self.objects.reading(key) as stored:
                source = Reader(stored, self._key_of(work.batch), key)
                for file in draft.files:
                    with (folder / file.name).open("xb+") as target:
                        _copy(source, target, file.size)
                        if hashlib.file_digest(target, "sha256").hexdigest() != file.sha256:
                            raise StoreRefused("A draft in the object store is not what was put there.")
        except FileNotFoundError:
            raise StoreRefused("A draft in the object store is lost.") from None

    def forget(self, work: Work) -> None:
        """Remove all drafts of ended work, as far as that is possible now."""
        with contextlib.suppress(Unavailable):
            for stored in self.objects.listed(f"{work.batch}/{work.id}/"):
                self.objects.delete(stored.key)

    def listed(self) -> dict[str, list[Stored]]:
        """All that are there, by the id of their work."""
        found: dict[str, list[Stored]] = {}
        for stored in self.objects.listed(""):
            found.setdefault(stored.key.split("/")[1], []).append(stored)
        return found


def _key(work: Work, draft: Draft) -> str:
    return f"{work.batch}/{work.id}/{draft.attempt}"


def _copy(source: Reader, target: BinaryIO, size: int) -> None:
    """Copy `size` bytes and go back to their beginning."""
    while size and (chunk := source.read(min(size, CHUNK))):
        target.write(chunk)
        size -= len(chunk)
    target.flush()
    os.fsync(target.fileno())
    target.seek(0)
