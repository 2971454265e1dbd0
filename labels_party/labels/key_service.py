"""Key services: holders of the wrapping keys of batches and of the secret for digests of ids.

Files of the home are the usual one. A key service wraps inside and does not release wrapping keys. Every id needs the
digest secret, so a service releases a working key once, at the start, which stays in memory.
"""

from __future__ import annotations

import contextlib
import re
import secrets
from pathlib import Path
from typing import Protocol

from label_dp.documents.signing import save_once
from label_dp.errors import Unavailable
from label_dp.store.folders import erase, fsync_folder
from labels_party.labels.ciphered import disclosed, enclosed
from labels_party.storage.files import Home
from labels_party.storage.secrets import Secrets

BYTES = 32
NAME = re.compile(r"wrapping-([1-9]\d{0,8})\.key")


class KeyService(Protocol):
    """Numbered wrapping keys; `place` is bound into the wrapped key. All methods raise Unavailable."""

    def make(self, number: int) -> None:
        """Create wrapping key `number` durably. Does nothing if it exists."""

    def wrap(self, number: int, plain: bytes, place: str) -> bytes: ...

    def unwrap(self, number: int, wrapped: bytes, place: str) -> bytes:
        """Unwrap a key. Raises DamagedObject if it was wrapped otherwise."""

    def forget_before(self, number: int) -> list[int]:
        """Erase the keys of lower numbers; return these numbers."""

    def called(self, number: int) -> str:
        """Return the display name of key `number`."""

    def require(self, number: int) -> None:
        """Raise Unavailable if keys of a database in use are missing: new ones would hide the loss."""

    def secret(self) -> Secrets:
        """Return the secret of digests, created at first use."""


class FileKeys:
    """Keys as files `keys/wrapping-NUMBER.key` of the home.

    Only one of them counts, whose number the database has; it is random and nothing is derived from it, so that what
    was wrapped under an older one is lost for good once its file is gone.
    """

    def __init__(self, home: Home) -> None:
        self.home, self.folder = home, home.keys

    def path(self, number: int) -> Path:
        return self.folder / f"wrapping-{number}.key"

    def make(self, number: int) -> None:
        """Create wrapping key `number` durably. Does nothing if it exists. Raises OSError."""
        with contextlib.suppress(FileExistsError):
            save_once(self.path(number), secrets.token_bytes(BYTES))
        fsync_folder(self.folder)

    def get(self, number: int) -> bytes:
        """Read a key. Raises Unavailable (missing or damaged)."""
        try:
            data = self.path(number).read_bytes()
        except FileNotFoundError:
            raise Unavailable(
                f"'{self.path(number)}' is missing; copy it from where the key was rotated, or restore it from the "
                "backup of this folder. Nothing was changed."
            ) from None
        if len(data) != BYTES:
            raise Unavailable(f"'{self.path(number)}' is damaged: it must hold {BYTES} bytes. Restore it.")
        return data

    def forget_before(self, number: int) -> list[int]:
        """Overwrite and remove the keys of lower numbers, under which nothing lies any more; returns theirs."""
        data = [int(m[1]) for p in self.folder.iterdir() if (m := NAME.fullmatch(p.name))]
        old = sorted(other for other in data if other < number)
        for other in old:
            with contextlib.suppress(FileNotFoundError):  # another process removed it
                erase(self.path(other))
        if old:
            fsync_folder(self.folder)
        return old

    def wrap(self, number: int, plain: bytes, place: str) -> bytes:
        return enclosed(self.get(number), plain, place)

    def unwrap(self, number: int, wrapped: bytes, place: str) -> bytes:
        return disclosed(self.get(number), wrapped, place)

    def called(self, number: int) -> str:
        return str(self.path(number))

    def require(self, number: int) -> None:
        for path in (self.home.secret_path, self.path(number)):
            if not path.exists():
                raise Unavailable(
                    f"'{path}' is missing; restore it from the backup of this folder. Nothing was changed."
                )

    def secret(self) -> Secrets:
        return self.home.secrets()
