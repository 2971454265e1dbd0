"""Keyed MACs of one party: comparable by it only (no plain hash of labels, nor of API keys, anywhere; invariant
no-oracle)."""

from __future__ import annotations

import hashlib
import hmac


def derived(master: bytes, purpose: str) -> bytes:
    """32 bytes, a key for one purpose (HMAC-SHA256 as a key derivation function)."""
    return hmac.new(master, purpose.encode("utf-8"), hashlib.sha256).digest()


def keyed(master: bytes, purpose: str) -> hmac.HMAC:
    """A MAC for one purpose, to be fed piece by piece."""
    return hmac.new(derived(master, "mac:" + purpose), digestmod=hashlib.sha256)
