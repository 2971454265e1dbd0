"""Immutable files under names, in a room of the home or in an object store that several homes share. A file is first
finished in the room. With a store it is then sent, and fetched back to any home as a disposable copy."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

from features_party.storage.home import INCOMING
from label_dp.errors import Unavailable
from label_dp.store import folders
from label_dp.store.folders import LEFTOVER_SECONDS
from label_dp.store.objects.port import CHUNK, DamagedObject, Objects


class FileStore(ABC):
    """Files or folders under names. A valid name is in the database, and never gets other content."""

    def __init__(self, room: Path) -> None:
        self.room = room

    def draft(self, name: str) -> Path:
        """Return the path where it is finished."""
        return self.room / name

    @abstractmethod
    def keep(self, name: str) -> None:
        """Store a finished draft for good. Raises Unavailable."""

    @abstractmethod
    def path(self, name: str) -> Path:
        """Return the path where it can be read; it does not exist if the content is lost. Raises Unavailable."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Remove it, draft or not. Raises Unavailable."""

    def drop(self, name: str) -> None:
        """Remove an unnamed file if that is possible now; otherwise a sweep does."""
        with contextlib.suppress(Unavailable):
            self.delete(name)

    def sweep(self, named: Callable[[], set[str]]) -> int:
        """Remove files stored over a day ago that are not `named`, which is called afterwards; returns how many."""
        return 0


class KeptHere(FileStore):
    """Files in a folder of this machine."""

    def keep(self, name: str) -> None:
        """Do nothing: the file is in its place already."""

    def path(self, name: str) -> Path:
        return self.room / name

    def delete(self, name: str) -> None:
        remove(self.room / name)


class KeptInStore(FileStore):
    """Files in an object store. Copies lie in `copies`, a folder of this room only."""

    def __init__(self, room: Path, objects: Objects, copies: Path) -> None:
        super().__init__(room)
        self.objects, self.copies = objects, copies
        copies.mkdir(mode=0o700, parents=True, exist_ok=True)

    def keep(self, name: str) -> None:
        draft = self.draft(name)
        folders.sweep(self.copies.iterdir())  # copies unused for a day
        try:
            for path in sorted(draft.iterdir()) if draft.is_dir() else [draft]:
                with self.objects.writing(str(path.relative_to(self.room))) as out, path.open("rb") as file:
                    shutil.copyfileobj(file, out, CHUNK)
            _renamed(draft, self.copies / name)
        except OSError as error:
            # a quicker process stores the same: it removes the draft after sending all of it
            if isinstance(error, FileNotFoundError) and not draft.exists() and (self.copies / name).exists():
                return
            raise Unavailable(f"What came cannot be kept ({error.strerror}); try again.") from None

    def path(self, name: str) -> Path:
        """Return the copy, fetched and checked if need be."""
        copy = self.copies / name
        with contextlib.suppress(FileNotFoundError):
            os.utime(copy)
            return copy
        fresh = self.copies / f"{INCOMING}{secrets.token_hex(8)}"
        try:
            keys = [stored.key for stored in self.objects.listed(f"{name}/")]
            if keys:
                fresh.mkdir(mode=0o700)
            for key in keys or [name]:
                with self.objects.reading(key) as source, (fresh / Path(key).name if keys else fresh).open("xb") as out:
                    shutil.copyfileobj(source, out, CHUNK)
                    out.flush()
                    os.fsync(out.fileno())  # a named copy is trusted
            with contextlib.suppress(OSError):  # another request was quicker
                fresh.rename(copy)
        except (FileNotFoundError, DamagedObject):
            return copy
        except OSError as error:
            raise Unavailable(f"A copy of what is kept cannot be made ({error.strerror}); try again.") from None
        finally:
            remove(fresh)
        return copy

    def delete(self, name: str) -> None:
        remove(self.draft(name))
        remove(self.copies / name)
        for stored in self.objects.listed(f"{name}/"):
            self.objects.delete(stored.key)
        self.objects.delete(name)

    def sweep(self, named: Callable[[], set[str]]) -> int:
        old = {s.key.partition("/")[0] for s in self.objects.listed("") if s.modified < time.time() - LEFTOVER_SECONDS}
        unnamed = old - named() if old else old
        for name in unnamed:
            self.delete(name)
        return len(unnamed)


def _renamed(draft: Path, copy: Path) -> None:
    """Rename over an existing copy, unless the draft is gone."""
    try:
        draft.replace(copy)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        remove(copy)
        draft.rename(copy)


def remove(path: Path) -> None:
    """Remove a file or a folder under a temporary name, so that a sweep finds the rest after a crash."""
    gone = path.with_name(f"{INCOMING}{secrets.token_hex(8)}")
    try:
        path.rename(gone)
    except FileNotFoundError:
        return
    if gone.is_dir():
        shutil.rmtree(gone, ignore_errors=True)
    else:
        gone.unlink(missing_ok=True)
