"""Keys derived from the party's one secret."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass


@dataclass(frozen=True)
class Secrets:
    """Keys derived from the party's one secret; the secret itself never leaves its file."""

    master: bytes

    def __repr__(self) -> str:
        return "Secrets(…)"

    def derive(self, purpose: str, length: int = 16) -> bytes:
        """A key for one purpose (HMAC-SHA256 as a key derivation function), `length` ≤ 32 bytes."""
        return hmac.new(self.master, purpose.encode("utf-8"), hashlib.sha256).digest()[:length]

    def keyed(self, purpose: str) -> hmac.HMAC:
        """A keyed MAC to be fed piece by piece: comparable by this party only (no plain hash of labels anywhere,
        invariant 8)."""
        return hmac.new(self.derive("mac:" + purpose, 32), digestmod=hashlib.sha256)

    def mac(self, purpose: str, *data: bytes | memoryview) -> str:
        """The keyed MAC in hex of the parts, one after the other."""
        keyed = self.keyed(purpose)
        for part in data:
            keyed.update(part)
        return keyed.hexdigest()
