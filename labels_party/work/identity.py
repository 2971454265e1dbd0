"""Identities of lease holders, and whether a holder is alive.

Safety comes from the fencing number alone (`where attempt = n`). Liveness decides only how soon a dead worker's work is
taken over: at once in the same home on the same host (its lock file is free), elsewhere after the lease.
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
    """Name of a process, and a lock file that the operating system frees when it dies."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for path in folder.glob("*.lock"):
            self._locked(path)  # removes files of dead processes
        self.name = f"{self._place}/{os.getpid()}/{secrets.token_hex(6)}"
        self._path = self._lock_path(self.name)
        self._handle = self._own(self._path)

    @staticmethod
    def _own(path: Path) -> int:
        """Create and lock the file `path`; again if another process removed it as a dead one's."""
        while True:
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(handle, fcntl.LOCK_EX)
            if path.exists() and os.path.samestat(os.fstat(handle), path.stat()):
                return handle
            os.close(handle)

    @property
    def _place(self) -> str:
        """Return host and folder: another home on the host has other lock files."""
        return f"{socket.gethostname()}+{hashlib.sha256(str(self.folder.resolve()).encode()).hexdigest()[:8]}"

    def _lock_path(self, name: str) -> Path:
        return self.folder / f"{name.rsplit('/', 1)[-1]}.lock"

    def close(self) -> None:
        self._path.unlink(missing_ok=True)
        os.close(self._handle)

    def holds(self, owner: str | None, left: float | None) -> bool:
        """Return whether `owner`, whose lease ends in `left` seconds, may still be working."""
        if owner is None:
            return False
        if owner == self.name:
            return True
        if owner.split("/", 1)[0] == self._place:
            return self._locked(self._lock_path(owner))
        # longer than any lease: the clock was set back
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
    """Holder of this process's identity, made on first use."""

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
