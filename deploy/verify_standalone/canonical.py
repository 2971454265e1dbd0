"""Canonical JSON (RFC 8785) without floats: one spelling per value, one reading of signed bytes."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from .refusal import RefusedError, refuse


def canonical(value: Any, depth: int = 0) -> str:
    """The one spelling of strings, whole numbers, booleans, null, lists and objects."""
    if depth > 16:
        refuse("a signed document is nested too deeply")
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int):
        if abs(value) >= 1 << 53:
            refuse("a whole number is too large for canonical JSON")
        return str(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list):
        return "[" + ",".join(canonical(item, depth + 1) for item in value) + "]"
    if isinstance(value, dict):
        names = sorted(value, key=lambda name: name.encode("utf-16-be", "surrogatepass"))
        return "{" + ",".join(f"{canonical(n)}:{canonical(value[n], depth + 1)}" for n in names) + "}"
    raise RefusedError("a signed document holds a value that its format does not have")


def canonical_bytes(value: Any) -> bytes:
    """The bytes that are signed, and that digests of events are taken of."""
    try:
        return canonical(value).encode("utf-8")
    except UnicodeEncodeError:
        refuse("a signed document holds half a character")


def _no_float(_: str) -> NoReturn:
    refuse("a signed document holds a floating-point number")


def parse(data: bytes, what: str) -> Any:
    """The value of canonical JSON; every other spelling of it is refused."""
    try:
        value = json.loads(data.decode("utf-8"), parse_float=_no_float, parse_constant=_no_float)
    except (ValueError, RecursionError):
        refuse(f"{what} is not JSON")
    if canonical_bytes(value) != data:
        refuse(f"{what} is not in its canonical spelling")
    return value
