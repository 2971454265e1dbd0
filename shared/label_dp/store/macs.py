"""Keyed MACs, comparable by one party only: no plain hash of labels or of chosen secrets exists (invariant no-oracle);
and API keys, which are random enough for a plain one."""

from __future__ import annotations

import hashlib
import hmac
import secrets

LABELS_PREFIX = "lp"  # of API keys at a labels party


def derived(master: bytes, purpose: str) -> bytes:
    """Derive a key of 32 bytes for one purpose (HMAC-SHA256 as a key derivation function)."""
    return hmac.new(master, purpose.encode("utf-8"), hashlib.sha256).digest()


def keyed(master: bytes, purpose: str) -> hmac.HMAC:
    """Begin a MAC for one purpose."""
    return hmac.new(derived(master, "mac:" + purpose), digestmod=hashlib.sha256)


def random_key(prefix: str) -> str:
    """Draw an API key of 256 random bits; `prefix` lets scanners of secrets recognise it."""
    return f"{prefix}_{secrets.token_urlsafe(32)}"


def key_digest(key: str) -> str:
    """Return the SHA-256 by which a party knows an API key."""
    return hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()
