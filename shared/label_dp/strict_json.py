"""JSON as others send it, read without guessing: one meaning or a refusal in a sentence that quotes nothing of it."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from label_dp.errors import InvalidRequest

MAX_DEPTH = 64  # deeper than anything this service reads; a client error beyond
VALUE_BYTES = 120  # of a value, list or object beside its text, with its place in what holds it
FIXED_BYTES = 1 << 13
_LARGE = re.compile(rb"[eE]\+?\d{3}|\d{300}")  # only then can a number lie beyond the range of a float
_SURROGATE = re.compile(rb"\\[uU][dD][89a-fA-F]")


class _Refused(Exception):
    """A rule that the document breaks; private to this module."""


def read_json(body: bytes, *, most_depth: int = MAX_DEPTH, most_containers: int | None = None) -> Any:
    """The value of a JSON document in UTF-8. Raises InvalidRequest naming the rule, and line and column of bad syntax.

    Refused besides bad syntax: a member that occurs twice in one object, NaN and infinities, numbers too long or too
    large for a float, half a surrogate pair, nesting deeper than `most_depth`, and more than `most_containers` objects
    and lists (brackets in texts count too), which is looked at before anything is built.
    """
    if most_containers is not None and body.count(b"[") + body.count(b"{") > most_containers:
        raise InvalidRequest(f"The body has more than {most_containers} objects and lists; send it in smaller parts.")
    try:
        value = json.loads(
            body.decode("utf-8-sig"),
            object_pairs_hook=_members,
            parse_constant=_constant,
            parse_float=_float if _LARGE.search(body) else None,
        )
        _check_depth(value, most_depth)
        if _SURROGATE.search(body):
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except json.JSONDecodeError as error:
        raise InvalidRequest(
            f"The body is not valid JSON: line {error.lineno}, column {error.colno}. {_reason(error)}"
        ) from None
    except _Refused as refused:
        raise InvalidRequest(str(refused)) from None
    except UnicodeDecodeError:
        raise InvalidRequest("The body is not UTF-8 text; JSON must be.") from None
    except UnicodeEncodeError:
        raise InvalidRequest("A text in the body has half a surrogate pair, which is no Unicode text.") from None
    except RecursionError:
        raise InvalidRequest(_too_deep(most_depth)) from None
    except ValueError:  # Python refuses to read whole numbers of thousands of digits
        raise InvalidRequest("A number in the body has too many digits.") from None
    return value


def decoded_bytes(body: bytes) -> int:
    """The most bytes that reading a JSON document takes in memory, its text included: a bound from its signs alone,
    before anything is built."""
    escapes = b"\\u" in body  # half pairs among them are looked for in a copy
    wide = 1 if body.isascii() and not escapes else 4  # one sign of any script makes all of a text so wide
    values = 1 + sum(body.count(sign) for sign in (b",", b":", b"[", b"{"))
    return (4 if escapes else 2) * wide * len(body) + VALUE_BYTES * values + FIXED_BYTES


def _reason(error: json.JSONDecodeError) -> str:
    if not error.doc.strip():
        return "It is empty."
    if error.msg.startswith("Extra data"):
        return "Something follows the end of the document."
    if error.pos >= len(error.doc.rstrip()) or error.msg.startswith("Unterminated string"):
        return "It ends too early."
    return "Check commas, quotes and brackets there."


def _members(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _Refused("A member occurs twice in one object of the body; send each once.")
    return found


def _constant(_: str) -> None:
    raise _Refused("NaN and Infinity are no JSON numbers; send finite ones.")


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise _Refused("A number in the body is too large.")
    return value


def _check_depth(value: Any, most: int) -> None:
    level, depth = [value], 0
    while level := [v for v in level if type(v) is dict or type(v) is list]:
        depth += 1
        if depth > most:
            raise _Refused(_too_deep(most))
        level = [child for v in level for child in (v.values() if type(v) is dict else v)]


def _too_deep(most: int) -> str:
    return f"The body is nested too deeply; at most {most} levels are read."
