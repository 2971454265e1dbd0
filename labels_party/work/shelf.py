"""Files of charged work: attempts, published files, and inputs.

An attempt draws into a folder on this machine. `keep` makes it durable before the transaction that publishes it.
"""

from __future__ import annotations

import contextlib
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from label_dp.store.folders import fsync_folder
from labels_party.storage.files import INPUTS
from labels_party.work.drafts import Drafts
from labels_party.work.kind import FAMILIES, WorkFile


class Shelf(ABC):
    """Store of work files. `folder` on this machine holds attempts. `drafts` stores finished draws before `keep` shows
    their bytes to another party; None if `keep` does not."""

    drafts: Drafts | None = None

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def begin(self, work_id: str, attempt: int) -> Path:
        """Make the folder of a new attempt, which counts as begun until it is dropped. Raises OSError, Unavailable."""
        folder = self.folder / place(work_id, attempt)
        folder.mkdir(parents=True, mode=0o700)
        return folder

    @abstractmethod
    def keep(self, work_id: str, attempt: int, files: list[WorkFile]) -> None:
        """Make a draft durable; `files` are all its files. Raises OSError, Unavailable, StoreRefused (the failure may
        depend on the draw)."""

    @abstractmethod
    def drop(self, work_id: str, attempt: int, *, begun: bool) -> None:
        """Remove the files of an attempt, if possible now. `begun`: it still counts as begun, which reveals an old copy
        of the database."""

    @abstractmethod
    def drop_others(self, work_id: str, attempt: int) -> None:
        """Remove the files of all other attempts, if possible now."""

    @abstractmethod
    def begun(self) -> list[str]:
        """Return ids of work with attempts, at least the newest."""

    @abstractmethod
    def last_attempt(self, work_id: str) -> int:
        """Return the highest attempt of a work that `begun` returned; 0 for none."""

    @abstractmethod
    def leftovers(self, before: float) -> list[str]:
        """Return paths of attempts' files that were written before a time (seconds of the epoch) and may be unused."""

    @abstractmethod
    def delete(self, path: str) -> None:
        """Remove a leftover. Raises Unavailable."""

    @abstractmethod
    def local(self, file: WorkFile) -> Path:
        """Return a local path of a published file; a copy unused for a day may be deleted. Raises Unavailable."""

    def elsewhere(self, file: WorkFile) -> str | None:
        """Return a URL that serves a published file for some minutes; None if only this service serves it. Raises
        Unavailable."""
        return None

    # --- inputs -------------------------------------------------------------------------------------------

    @abstractmethod
    def keep_inputs(self, name: str) -> None:
        """Make the inputs `name`, a folder in `folder`, durable. Raises Unavailable."""

    @abstractmethod
    def inputs(self, name: str) -> AbstractContextManager[Path]:
        """Open a folder of inputs. Raises OSError, Unavailable."""

    @abstractmethod
    def forget_inputs(self, name: str) -> None:
        """Remove a folder of inputs, if possible now."""

    @abstractmethod
    def all_inputs(self) -> dict[str, float]:
        """Return all folders of inputs and when each was written, in seconds of the epoch."""


class FolderShelf(Shelf):
    """Shelf in one folder of the home."""

    def keep(self, work_id: str, attempt: int, files: list[WorkFile]) -> None:
        folder = self.folder / place(work_id, attempt)
        for each in (folder, folder.parent, folder.parent.parent):
            fsync_folder(each)

    def drop(self, work_id: str, attempt: int, *, begun: bool) -> None:
        folder = self.folder / place(work_id, attempt)
        shutil.rmtree(folder, ignore_errors=True)
        if begun:
            with contextlib.suppress(OSError):
                folder.mkdir(parents=True, mode=0o700)

    def drop_others(self, work_id: str, attempt: int) -> None:
        own = self.folder / place(work_id, attempt)
        for folder in own.parent.glob("attempt-*"):
            if folder != own:
                shutil.rmtree(folder, ignore_errors=True)

    def begun(self) -> list[str]:
        return [path.name for family in FAMILIES for path in self.folder.glob(f"{family.prefix}*")]

    def last_attempt(self, work_id: str) -> int:
        attempts = (self.folder / work_id).glob("attempt-*")
        return max((int(path.name.removeprefix("attempt-")) for path in attempts), default=0)

    def leftovers(self, before: float) -> list[str]:
        return []  # an attempt's folder goes when the next one ends

    def delete(self, path: str) -> None:
        (self.folder / path).unlink(missing_ok=True)

    def local(self, file: WorkFile) -> Path:
        return self.folder / str(file.path)

    def keep_inputs(self, name: str) -> None:
        """Do nothing: they are durable where they were written."""

    @contextlib.contextmanager
    def inputs(self, name: str) -> Iterator[Path]:
        yield self.folder / name

    def forget_inputs(self, name: str) -> None:
        shutil.rmtree(self.folder / name, ignore_errors=True)

    def all_inputs(self) -> dict[str, float]:
        folders: dict[str, float] = {}
        for folder in self.folder.glob(f"{INPUTS}*"):
            with contextlib.suppress(FileNotFoundError):  # another process may sweep as well
                folders[folder.name] = folder.stat().st_mtime
        return folders


def place(work_id: str, attempt: int) -> str:
    """Return the path of an attempt below the folder or bucket of work."""
    return f"{work_id}/attempt-{attempt}"
