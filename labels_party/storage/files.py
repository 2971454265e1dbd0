"""The labels party's home folder and its secret."""

from __future__ import annotations

import contextlib
import secrets
from dataclasses import dataclass
from pathlib import Path

from label_dp.documents.signing import save_once
from label_dp.errors import InvalidFile
from label_dp.store import folders
from label_dp.store.home import PartyHome as AnyHome
from label_dp.store.home import Room
from labels_party.storage.secrets import Secrets

INPUTS = "inputs-"  # folders of what was sent for work, below `work/`


@dataclass(frozen=True)
class Home(AnyHome):
    """`keys/` signing key, secret and wrapping key, `labels/` encrypted labels, `work/` inputs, attempts and what was
    published, `predictors/` one file each, of as many bytes as it gave answers, `spill/` temporary files."""

    setting = "LABELS_PARTY_HOME"
    labels = Room("labels")
    work = Room("work")
    predictors = Room("predictors")
    spill = Room("spill")
    workers = Room("workers")

    @property
    def secret_path(self) -> Path:
        return self.keys / "secret.key"

    def sweep(self) -> None:
        """Remove what a killed process left in `spill/`, or was about to store, over a day ago."""
        folders.sweep([*self.spill.iterdir(), *self.labels.glob("staging-*")])

    def secrets(self) -> Secrets:
        """The party's secret, made on first use; losing it means that ids charged earlier are no longer recognised."""
        path = self.secret_path
        if not path.exists():
            with contextlib.suppress(FileExistsError):  # another process was first, and its secret counts
                save_once(path, secrets.token_bytes(32))
            folders.fsync_folder(path.parent)
        data = path.read_bytes()
        if len(data) != 32:
            raise InvalidFile(f"'{path}' is damaged: it must hold 32 bytes. Restore it from a backup.")
        return Secrets(data)
