"""Ids of stored objects: random, and ordered by time of creation."""

from __future__ import annotations

import secrets
import time

MODEL_PREFIX = "m_"


def fresh_id(prefix: str) -> str:
    """Return `prefix`, microseconds in hex and 32 random bits: sorts by time if listings only have seconds."""
    return f"{prefix}_{time.time_ns() // 1000:014x}{secrets.token_hex(4)}"
