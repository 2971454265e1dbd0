"""Home folder of the features party, and ids of what it stores."""

from __future__ import annotations

import hmac
import secrets
import time
from dataclasses import dataclass
from pathlib import Path

from label_dp.store import folders
from label_dp.store.home import PartyHome as AnyHome
from label_dp.store.home import Room
from label_dp.store.macs import keyed

INCOMING = ".incoming-"
MODEL_PREFIX = "m_"


@dataclass(frozen=True)
class Home(AnyHome):
    """Home folder: `keys/pinned/` labels parties' public keys, `messages/` and `answers/` accepted documents,
    `feature-tables/` uploads, `models/` trained models, `spill/` temporary files of joins."""

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
        """Begin a keyed MAC, comparable by this party only: a request may contain an API key."""
        return keyed(self.own_key().key.private_bytes_raw(), purpose)

    def incoming(self, room: Path) -> Path:
        """Return a fresh name for an unfinished folder or file."""
        return room / f"{INCOMING}{secrets.token_hex(8)}"

    def sweep(self) -> int:
        """Remove unfinished files that a crash left over a day ago; returns how many."""
        rooms = (self.messages, self.feature_tables, self.models, self.spill)
        return folders.sweep(path for room in rooms for path in room.glob(f"{INCOMING}*"))


def fresh_id(prefix: str) -> str:
    """Return `prefix`, microseconds in hex and 32 random bits: sorts by time if listings only have seconds."""
    return f"{prefix}_{time.time_ns() // 1000:014x}{secrets.token_hex(4)}"
