"""Drafts: finished draws on their way to an object store, encrypted under the key of their batch.

The store sees what is sent to it, so no other draw may follow the first byte of a draw (invariant charge-first).
Before that byte the draw is stored here and named in its row of work: a worker that takes over sends the same bytes.
Of a draw that no row names the store has seen only ciphertext, whose length follows from public facts.
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
    """Drafts in an object store. `key_of` returns the key of a batch; it raises FileNotFoundError if it was erased."""

    def __init__(self, objects: Objects, key_of: Callable[[str], bytes]) -> None:
        self.objects, self._key_of = objects, key_of

    def put(self, work: Work, draft: Draft, folder: Path, largest: int) -> None:
        """Store the files of a draft, padded to `largest` bytes. Raises OSError, Unavailable."""
        if sum(file.size for file in draft.files) > largest:
            raise LabelDPError("What was drawn is larger than its reserved space, so it was sent nowhere.")
        key, room = _key(work, draft), largest
        with self.objects.writing(key) as stored, ciphered(stored, self._key_of(work.batch), key) as inside:
            for file in draft.files:
                with (folder / file.name).open("rb") as source:
                    while chunk := source.read(CHUNK):
                        inside.write(chunk)
                room -= file.size
            while room:
                room -= inside.write(bytes(min(room, CHUNK)))

    def get(self, work: Work, draft: Draft, folder: Path) -> None:
        """Write the draft's files durably into a new folder. Raises OSError, Unavailable, StoreRefused (not the stored
        bytes, or lost)."""
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
        """Remove all drafts of ended work, if possible now."""
        with contextlib.suppress(Unavailable):
            for stored in self.objects.listed(f"{work.batch}/{work.id}/"):
                self.objects.delete(stored.key)

    def listed(self) -> dict[str, list[Stored]]:
        """Return all drafts by the id of their work."""
        drafts: dict[str, list[Stored]] = {}
        for stored in self.objects.listed(""):
            drafts.setdefault(stored.key.split("/")[1], []).append(stored)
        return drafts


def _key(work: Work, draft: Draft) -> str:
    return f"{work.batch}/{work.id}/{draft.attempt}"


def _copy(source: Reader, target: BinaryIO, size: int) -> None:
    """Copy `size` bytes durably and rewind `target`."""
    while size and (chunk := source.read(min(size, CHUNK))):
        target.write(chunk)
        size -= len(chunk)
    target.flush()
    os.fsync(target.fileno())
    target.seek(0)
