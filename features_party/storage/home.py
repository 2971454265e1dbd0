"""The home folder: its layout and durable small-file habits.

`keys/` own signing key (for audit exports), `keys/pinned/` labels parties' public keys, `messages/` accepted messages,
`answers/` accepted answers, `feature-tables/` uploads, `models/` trained models, `spill/` what a running join does not
keep in memory, `features-party.sqlite` unless PostgreSQL is set.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from shared.documents.signing import SigningKey
from shared.errors import Unavailable
from shared.service.folders import fsync_folder, make_private, own_key

LEFTOVER_SECONDS = 86_400.0
INCOMING = ".incoming-"


def write_durably(path: Path, data: bytes) -> None:
    """Write `data` beside `path`, then rename: a reader sees the old file or the whole new one."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise Unavailable(f"'{path}' cannot be written ({error.strerror}).") from None
    fsync_folder(path.parent)


def sync_tree(folder: Path) -> None:
    """Make every file directly inside `folder`, and its names, durable."""
    for path in folder.iterdir():
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    fsync_folder(folder)


def place_folder(temporary: Path, target: Path) -> None:
    """Rename a finished folder to its place; if a finished one is there already, the new one is dropped."""
    sync_tree(temporary)
    try:
        temporary.rename(target)
    except OSError:
        shutil.rmtree(temporary, ignore_errors=True)
        if not target.is_dir():
            raise
    fsync_folder(target.parent)


@dataclass(frozen=True)
class Home:
    path: Path

    @property
    def signing_key(self) -> Path:
        return self.path / "keys" / "signing.key"

    @property
    def public_key(self) -> Path:
        return self.path / "keys" / "signing.pub"

    @property
    def pinned(self) -> Path:
        return self.path / "keys" / "pinned"

    @property
    def messages(self) -> Path:
        return self.path / "messages"

    @property
    def answers(self) -> Path:
        return self.path / "answers"

    @property
    def feature_tables(self) -> Path:
        return self.path / "feature-tables"

    @property
    def models(self) -> Path:
        return self.path / "models"

    @property
    def spill(self) -> Path:
        return self.path / "spill"

    @property
    def worker_lock(self) -> Path:
        return self.path / "worker.lock"

    def prepare(self) -> None:
        """Create the folders, readable by their owner only. Raises Unavailable if that is not possible."""
        rooms = (self.messages, self.answers, self.feature_tables, self.models, self.spill)
        folders = (self.pinned.parent, self.pinned, *rooms)
        make_private(self.path, folders, "FEATURES_PARTY_HOME")

    def own_key(self) -> SigningKey:
        """Our signing key, made on first use; its public half lies beside it for whoever checks our exports."""
        return own_key(self.signing_key, self.public_key)

    def keyed(self, purpose: str) -> hmac.HMAC:
        """A keyed MAC to be fed, comparable by this party only: a request may hold somebody's API key."""
        master = self.own_key().key.private_bytes_raw()
        derived = hmac.new(master, b"mac:" + purpose.encode(), hashlib.sha256).digest()
        return hmac.new(derived, digestmod=hashlib.sha256)

    def incoming(self, room: Path) -> Path:
        """A fresh name for a folder or file that is not finished; never one that exists."""
        return room / f"{INCOMING}{secrets.token_hex(8)}"

    def sweep(self) -> int:
        """Remove what a crash left unfinished over a day ago; returns how many."""
        removed = 0
        for room in (self.messages, self.feature_tables, self.models, self.spill):
            for path in room.glob(f"{INCOMING}*") if room.is_dir() else ():
                with contextlib.suppress(OSError):
                    if time.time() - path.stat().st_mtime > LEFTOVER_SECONDS:
                        shutil.rmtree(path) if path.is_dir() else path.unlink()
                        removed += 1
        return removed
