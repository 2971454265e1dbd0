"""Members of documents: exactly the known ones, each of its kind and within its bounds, or a refusal."""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import datetime
from typing import Any

from .refusal import refuse

ID = re.compile(r"[A-Za-z0-9_.:-]{1,64}", re.ASCII)
DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)
GENESIS = "0" * 64  # in place of the digest before the first
TEXT, MANY = 400, 1 << 40  # characters of a text, examples of a batch


def members(value: Any, names: Collection[str], what: str) -> dict[str, Any]:
    """An object with exactly these members."""
    if not isinstance(value, dict) or set(value) != set(names):
        refuse(f"{what} has missing or unknown members")
    return value


def listed(value: Any, least: int, most: int, what: str) -> list[Any]:
    """Return a list of `least` to `most` members, or refuse."""
    if not isinstance(value, list) or not least <= len(value) <= most:
        refuse(f"{what} is no list, or has a wrong number of members")
    return value


def text(value: Any, what: str, *, least: int = 1, most: int = TEXT) -> str:
    """Return a text of `least` to `most` characters, or refuse."""
    if not isinstance(value, str) or not least <= len(value) <= most:
        refuse(f"{what} is no text of {least} to {most} characters")
    return value


def perhaps(value: Any, what: str) -> None:
    """A text of any length, or null."""
    if value is not None and not isinstance(value, str):
        refuse(f"{what} is neither a text nor null")


def matching(value: Any, pattern: re.Pattern[str], what: str) -> str:
    """Return a text that matches `pattern` as a whole, or refuse."""
    if not isinstance(value, str) or pattern.fullmatch(value) is None:
        refuse(f"{what} has another form")
    return value


def moment(value: Any, what: str, pattern: re.Pattern[str] = DAY) -> str:
    """Return a text that matches `pattern` and is in the calendar, or refuse."""
    try:
        datetime.fromisoformat(matching(value, pattern, what))
    except ValueError:
        refuse(f"{what} is no day")
    return str(value)


def count(value: Any, least: int, most: int, what: str) -> int:
    """Return a whole number from `least` to `most`, or refuse."""
    if type(value) is not int or not least <= value <= most:
        refuse(f"{what} is no whole number from {least} to {most}")
    return value


def one_of(value: Any, known: Collection[str], what: str) -> str:
    """Return a text among `known`, or refuse."""
    if not isinstance(value, str) or value not in known:
        refuse(f"{what} is unknown")
    return value


def link(value: Any, what: str) -> None:
    """Check the place in a list, and the digest of the one before; of the first, zeros."""
    place = count(value["position"], 1, (1 << 53) - 1, f"the position of {what}")
    if (place == 1) != (matching(value["previous"], DIGEST, f"the one before {what}") == GENESIS):
        refuse(f"position and previous one of {what} do not go together")
