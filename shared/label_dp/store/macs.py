"""Keyed MACs, comparable by one party only: no plain hash of labels or API keys exists (invariant no-oracle)."""

from __future__ import annotations

import hashlib
import hmac


def derived(master: bytes, purpose: str) -> bytes:
    """Derive a key of 32 bytes for one purpose (HMAC-SHA256 as a key derivation function)."""
    return hmac.new(master, purpose.encode("utf-8"), hashlib.sha256).digest()


def keyed(master: bytes, purpose: str) -> hmac.HMAC:
    """Begin a MAC for one purpose."""
    return hmac.new(derived(master, "mac:" + purpose), digestmod=hashlib.sha256)
