"""Files of charged work: its attempts, its publication, and the inputs that were sent for it.

An attempt draws into a folder of this machine. `keep` makes it durable, before the transaction that publishes it.
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
    """`folder` is on this machine; drafts lie in it. `drafts`: where they are put before `keep` shows their bytes to
    somebody else; None where it does not."""

    drafts: Drafts | None = None

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def draft(self, work_id: str, attempt: int) -> Path:
        """A new folder for an attempt, which from now on counts as begun, until it is dropped. Raises OSError,
        Unavailable."""
        folder = self.folder / place(work_id, attempt)
        folder.mkdir(parents=True, mode=0o700)
        return folder

    @abstractmethod
    def keep(self, work_id: str, attempt: int, files: list[WorkFile]) -> None:
        """Make a draft durable: `files`, each written, are all that is in it. Raises OSError, Unavailable, and
        StoreRefused, where it may depend on what was drawn."""

    @abstractmethod
    def drop(self, work_id: str, attempt: int, *, begun: bool) -> None:
        """Remove what an attempt left, as far as that is possible now; whether it still counts as `begun`: it tells an
        old copy of the database from the one that went on."""

    @abstractmethod
    def drop_others(self, work_id: str, attempt: int) -> None:
        """Remove what all other attempts left, as far as that is possible now."""

    @abstractmethod
    def begun(self) -> list[str]:
        """Ids of work of which attempts were begun, the newest at least."""

    @abstractmethod
    def last_attempt(self, work_id: str) -> int:
        """Of work that `begun` named: the highest number there is; 0 for none."""

    @abstractmethod
    def leftovers(self, before: float) -> list[str]:
        """Paths of files of attempts, written before (seconds of the epoch), that may be nobody's any more."""

    @abstractmethod
    def delete(self, path: str) -> None:
        """Remove a leftover. Raises Unavailable."""

    @abstractmethod
    def local(self, file: WorkFile) -> Path:
        """A published file as one of this machine, which may go when it is not used for a day. Raises Unavailable."""

    def elsewhere(self, file: WorkFile) -> str | None:
        """A URL by which whoever holds it can fetch a published file for some minutes; None: it is served here. Raises
        Unavailable."""
        return None

    # --- inputs -------------------------------------------------------------------------------------------

    @abstractmethod
    def keep_inputs(self, name: str) -> None:
        """Make the folder `name` of inputs, written into `folder`, durable. Raises Unavailable."""

    @abstractmethod
    def inputs(self, name: str) -> AbstractContextManager[Path]:
        """A folder of inputs. Raises OSError, Unavailable."""

    @abstractmethod
    def forget_inputs(self, name: str) -> None:
        """Remove a folder of inputs, as far as that is possible now."""

    @abstractmethod
    def all_inputs(self) -> dict[str, float]:
        """The folders of inputs that there are, and when each was written, in seconds of the epoch."""


class FolderShelf(Shelf):
    """All in one folder of the home."""

    def keep(self, work_id: str, attempt: int, files: list[WorkFile]) -> None:
        folder = self.folder / place(work_id, attempt)
        for each in (folder, folder.parent, folder.parent.parent):
            fsync_folder(each)

    def drop(self, work_id: str, attempt: int, *, begun: bool) -> None:
        folder = self.folder / place(work_id, attempt)
        shutil.rmtree(folder, ignore_errors=True)
        if begun:
            with contextlib.suppress(OSError):
                folder.mkdir(parents=True, mode=0o700, exist_ok=True)

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
        """They are, where they were written."""

    @contextlib.contextmanager
    def inputs(self, name: str) -> Iterator[Path]:
        yield self.folder / name

    def forget_inputs(self, name: str) -> None:
        shutil.rmtree(self.folder / name, ignore_errors=True)

    def all_inputs(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for folder in self.folder.glob(f"{INPUTS}*"):
            with contextlib.suppress(FileNotFoundError):  # another process may sweep as well
                found[folder.name] = folder.stat().st_mtime
        return found


def place(work_id: str, attempt: int) -> str:
    """Of an attempt, below the folder or the room of work."""
    return f"{work_id}/attempt-{attempt}"
