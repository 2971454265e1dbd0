"""Ids of what we store: random, and in the order in which they were made."""

from __future__ import annotations

import secrets
import time

MODEL_PREFIX = "m_"


def fresh_id(prefix: str) -> str:
    """`prefix`, microseconds in hex, 32 random bits: sorts by time where listings know seconds only."""
    return f"{prefix}_{time.time_ns() // 1000:014x}{secrets.token_hex(4)}"
