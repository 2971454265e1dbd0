"""The holder of a lease: its name, and whether it is still alive.

Safety comes from the fencing number alone (`where attempt = n`); liveness decides only how soon a dead worker's
work is taken over: at once in the same home on the same host (its lock file is free), after the lease elsewhere.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import socket
from pathlib import Path

LONGEST_LEASE = 3600.0


class WorkerIdentity:
    """A name and a lock file that the operating system frees when the process dies."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for path in folder.glob("*.lock"):
            self._locked(path)  # removes what dead processes left
        self.name = f"{self._place}/{os.getpid()}/{secrets.token_hex(6)}"
        self._path = self._lock_path(self.name)
        self._handle = self._own(self._path)

    @staticmethod
    def _own(path: Path) -> int:
        """The locked file at `path`; made again where another process took it for a dead one's and removed it."""
        while True:
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(handle, fcntl.LOCK_EX)
            if path.exists() and os.path.samestat(os.fstat(handle), path.stat()):
                return handle
            os.close(handle)

    @property
    def _place(self) -> str:
        """This host and folder: another home on it has other lock files."""
        return f"{socket.gethostname()}+{hashlib.sha256(str(self.folder.resolve()).encode()).hexdigest()[:8]}"

    def _lock_path(self, name: str) -> Path:
        return self.folder / f"{name.rsplit('/', 1)[-1]}.lock"

    def close(self) -> None:
        self._path.unlink(missing_ok=True)
        os.close(self._handle)

    def holds(self, owner: str | None, left: float | None) -> bool:
        """Whether `owner`, whose lease has `left` seconds to go, may still be working."""
        if owner is None:
            return False
        if owner == self.name:
            return True
        if owner.split("/", 1)[0] == self._place:
            return self._locked(self._lock_path(owner))
        # more than any lease is given: the clock was set back since
        return left is not None and 0 < left <= LONGEST_LEASE

    @staticmethod
    def _locked(path: Path) -> bool:
        try:
            handle = os.open(path, os.O_RDWR)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        else:
            path.unlink(missing_ok=True)
            return False
        finally:
            os.close(handle)


class Workplace:
    """This process's identity, taken when it first works."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._identity: WorkerIdentity | None = None

    @property
    def identity(self) -> WorkerIdentity:
        if self._identity is None:
            self._identity = WorkerIdentity(self.folder)
        return self._identity

    def close(self) -> None:
        if self._identity is not None:
            self._identity.close()
            self._identity = None
