"""RFC 8785 canonical JSON of strings, whole numbers, booleans, null, lists, objects. Floats are written as strings."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import rfc8785

from label_dp.errors import MalformedManifest

MAX_DEPTH = 16


def canonical_bytes(value: Any) -> bytes:
    """Serialise `value` in its only spelling. Raises TypeError on floats, which have several."""
    _check(value, 0)
    return rfc8785.dumps(value)


def digest(data: bytes) -> str:
    """Return the SHA-256 in hex."""
    return hashlib.sha256(data).hexdigest()


def _check(value: Any, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise TypeError("Canonical JSON of this project is at most 16 levels deep.")
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise TypeError("Keys of canonical JSON are strings.")
            _check(item, depth + 1)
    elif isinstance(value, list | tuple):
        for item in value:
            _check(item, depth + 1)
    elif not (value is None or isinstance(value, str | bool | int)):
        raise TypeError(f"Canonical JSON of this project has no {type(value).__name__}.")


def parse_canonical(data: bytes) -> Any:
    """Parse canonical JSON; refuses any other spelling. Raises MalformedManifest."""
    try:
        value = json.loads(data.decode("utf-8"), parse_float=_no_float, parse_constant=_no_float)
        again = canonical_bytes(value)
    except (ValueError, TypeError, RecursionError, rfc8785.CanonicalizationError):
        raise MalformedManifest("The signed document is not canonical JSON.") from None
    if again != data:
        raise MalformedManifest("The signed document is not in its canonical spelling.")
    return value


def _no_float(_: str) -> Any:
    raise ValueError("floats are written as strings")
