"""The features party's home folder."""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass
from pathlib import Path

from label_dp.store import folders
from label_dp.store.home import PartyHome as AnyHome
from label_dp.store.home import Room
from label_dp.store.macs import keyed

INCOMING = ".incoming-"


@dataclass(frozen=True)
class Home(AnyHome):
    """`keys/pinned/` labels parties' public keys, `messages/` and `answers/` that were accepted, `feature-tables/`
    uploads, `models/` trained models, `spill/` what a running join does not keep in memory."""

    setting = "FEATURES_PARTY_HOME"
    pinned = Room("keys", "pinned")
    messages = Room("messages")
    answers = Room("answers")
    feature_tables = Room("feature-tables")
    models = Room("models")
    spill = Room("spill")

    @property
    def worker_lock(self) -> Path:
        return self.path / "worker.lock"

    def keyed(self, purpose: str) -> hmac.HMAC:
        """A keyed MAC to be fed, comparable by this party only: a request may hold somebody's API key."""
        return keyed(self.own_key().key.private_bytes_raw(), purpose)

    def incoming(self, room: Path) -> Path:
        """A fresh name for a folder or file that is not finished; never one that exists."""
        return room / f"{INCOMING}{secrets.token_hex(8)}"

    def sweep(self) -> int:
        """Remove what a crash left unfinished over a day ago; returns how many."""
        rooms = (self.messages, self.feature_tables, self.models, self.spill)
        return folders.sweep(path for room in rooms for path in room.glob(f"{INCOMING}*"))
