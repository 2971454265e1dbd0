"""The home folder: its layout, its keys, and durable small-file habits."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from labels_party.storage.secrets import Secrets
from shared.documents.signing import SigningKey
from shared.errors import InvalidFile
from shared.service.folders import fsync_folder, make_private, own_key

LEFTOVER_SECONDS = 86_400.0
INPUTS = "inputs-"  # folders of what was sent for work, below `work/`


@dataclass(frozen=True)
class Home:
    """`keys/` signing key and secret, `labels/` masked labels, `work/` inputs, attempts and published files of
    charged work, `spill/` temporary files."""

    path: Path

    @property
    def signing_key_path(self) -> Path:
        return self.path / "keys" / "signing.key"

    @property
    def secret_path(self) -> Path:
        return self.path / "keys" / "secret.key"

    @property
    def public_key_path(self) -> Path:
        return self.path / "keys" / "signing.pub"

    @property
    def labels(self) -> Path:
        return self.path / "labels"

    @property
    def work(self) -> Path:
        return self.path / "work"

    @property
    def predictors(self) -> Path:
        """One file per predictor, of as many bytes as it gave answers."""
        return self.path / "predictors"

    @property
    def spill(self) -> Path:
        return self.path / "spill"

    @property
    def workers(self) -> Path:
        return self.path / "workers"

    def prepare(self) -> None:
        """Create the folders, readable by their owner only. Raises Unavailable if that is not possible."""
        folders = (
            self.path / "keys",
            self.labels,
            self.work,
            self.predictors,
            self.spill,
            self.workers,
        )
        make_private(self.path, folders, "LABELS_PARTY_HOME")

    def sweep(self) -> None:
        """Remove what a killed process left in `spill/` over a day ago: masked labels, maybe under the store's mask."""
        limit = time.time() - LEFTOVER_SECONDS
        for path in self.spill.iterdir():
            with contextlib.suppress(OSError):  # another process may sweep as well
                if path.stat().st_mtime < limit:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()

    def secrets(self) -> Secrets:
        """The party's secret, made on first use; losing it means that ids charged earlier are no longer recognised."""
        path = self.secret_path
        if not path.exists():
            temporary = path.with_name(f".secret-{secrets.token_hex(4)}")
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(secrets.token_bytes(32))
                file.flush()
                os.fsync(file.fileno())
            with contextlib.suppress(FileExistsError):  # another process was first, and its secret counts
                os.link(temporary, path)
            temporary.unlink()
            fsync_folder(path.parent)
        data = path.read_bytes()
        if len(data) != 32:
            raise InvalidFile(f"'{path}' is damaged: it must hold 32 bytes. Restore it from a backup.")
        return Secrets(data)

    def signing_key(self) -> SigningKey:
        """The party's signing key, made on first use; its public half is `keys/signing.pub`."""
        return own_key(self.signing_key_path, self.public_key_path)


def reserve(path: Path, size: int) -> None:
    """Have the file system set `size` bytes aside for `path`. Raises OSError (no space)."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        os.posix_fallocate(handle, 0, size) if hasattr(os, "posix_fallocate") else os.truncate(handle, size)
    finally:
        os.close(handle)
