"""Keys derived from the party's one secret."""

from __future__ import annotations

import hmac
from dataclasses import dataclass

from label_dp.store.macs import derived, keyed


@dataclass(frozen=True)
class Secrets:
    """Keys derived from the party's one secret; the secret itself never leaves its file."""

    master: bytes

    def __repr__(self) -> str:
        return "Secrets(…)"

    def derive(self, purpose: str, length: int = 16) -> bytes:
        """A key for one purpose, `length` ≤ 32 bytes."""
        return derived(self.master, purpose)[:length]

    def keyed(self, purpose: str) -> hmac.HMAC:
        """A MAC to be fed piece by piece."""
        return keyed(self.master, purpose)

    def mac(self, purpose: str, *data: bytes | memoryview) -> str:
        """The keyed MAC in hex of the parts, one after the other."""
        mac = self.keyed(purpose)
        for part in data:
            mac.update(part)
        return mac.hexdigest()
