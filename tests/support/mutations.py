"""Changes of signed documents, seeded: members, types, numbers, spellings, order, and parts of other documents."""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from label_dp.documents.canonical import canonical_bytes

Place = tuple[Any, Any]  # a list or an object, and a position or a name in it
PLAIN = re.compile(r"-?[0-9]+(\.[0-9]+)?", re.ASCII)
NAMES = ("more", "kind", "value", "delta", "clipping", "epsilon", "N", "", "scores_2", "spent")
TEXTS = (
    "",
    "0",
    "-0",
    "1",
    "-1",
    "nan",
    "inf",
    "-inf",
    "1e400",
    "0.5",
    "1e-7",
    "float32",
    "x" * 401,
    "\u0000",
    "a:b",
    "0:9",
)
NUMBERS = (0, 1, -1, 2, 7, 63, 64, 65, 255, 256, 1 << 16, (1 << 16) + 1, 1 << 32, 1 << 40, (1 << 53) - 1, 1 - (1 << 53))
FAR = (
    "0",
    "1",
    "9",
    "64",
    "65",
    "1000000",
    "1000001",
    "18446744073709551616",
    "1" + "0" * 60,
    "0.000000001",
    "0.0000000001",
)
DIGITS = str.maketrans("0123456789", "\u0660\u0661\u0662\u0663\u0664\u0665\u0666\u0667\u0668\u0669")
WIDE = str.maketrans("0123456789.", "\uff10\uff11\uff12\uff13\uff14\uff15\uff16\uff17\uff18\uff19\uff0e")


def mutants(documents: Mapping[str, Any], rng: random.Random) -> Iterator[tuple[str, Any]]:
    """(name of the document, a changed copy of it), for ever; each can be signed, and differs from what it was."""
    names = list(documents)
    while True:
        name = rng.choice(names)
        changed = copy.deepcopy(documents[name])
        for _ in range(rng.choice((1, 1, 1, 1, 2, 3))):
            _change(changed, documents[rng.choice(names)], rng)
        if changed != documents[name] and _signable(changed):
            yield name, changed


def _signable(document: Any) -> bool:
    try:
        canonical_bytes(document)
    except Exception:  # whatever has no canonical form cannot be signed
        return False
    return True


def places(value: Any) -> Iterator[Place]:
    """Every member of every object and list inside."""
    for at in list(value) if isinstance(value, dict) else range(len(value)):
        yield value, at
        if isinstance(value[at], dict | list):
            yield from places(value[at])


def _change(document: Any, other: Any, rng: random.Random) -> None:
    found = list(places(document))
    if not found:
        return
    kinds: list[Callable[[Any, Any, random.Random], None]] = (
        [_leaf] * 6 + [_member] * 2 + [_order, _splice, _everywhere]
    )
    kind = rng.choice(kinds)
    kind((document, rng.choice(_deep(found, rng)), found), other, rng)


def _deep(found: list[Place], rng: random.Random) -> list[Place]:
    """Half of the time one of the first members: long tables of weights would else take nearly all."""
    return found if rng.random() < 0.5 else [f for f in found if len(f[0]) < 40 and not isinstance(f[0], list)] or found


def _leaf(at: Any, _: Any, rng: random.Random) -> None:
    (_, (holder, where), _) = at
    value = holder[where]
    if rng.random() < 0.2:
        holder[where] = rng.choice(
            (None, True, False, 0, 1, "", [], {}, [value], {"a": value}, str(value), [value, value])
        )
    elif isinstance(value, bool) or value is None:
        holder[where] = rng.choice((not value, None, 0, 1, "true", "0", "5"))
    elif isinstance(value, int):
        holder[where] = rng.choice(
            (value + 1, value - 1, -value, value * 2, value // 2, rng.choice(NUMBERS), str(value))
        )
    elif isinstance(value, str):
        holder[where] = respelt(value, rng)
    else:
        holder[where] = rng.choice((None, "", 0, [], {}, value and list(value)))


def respelt(text: str, rng: random.Random) -> Any:
    """Another text, or number, for one."""
    if rng.random() < 0.15:
        return rng.choice(TEXTS)
    if PLAIN.fullmatch(text) is None:
        at = rng.randrange(len(text) + 1)
        return rng.choice(
            (text[:at], text[at:], text + " ", text + "\n", text.upper(), text + text, text[:at] + "0" + text[at:])
        )
    nudged = _nudged(text, rng.choice((-1, 1, 1, 10, -10)))
    spelt = (
        "0" + text,
        text + "0",
        "+" + text,
        "-" + text,
        " " + text,
        text + "\n",
        text + ".",
        text + ".0",
        "." + text,
    )
    odd = (
        text + "e0",
        text + "E0",
        "1_0",
        text.translate(DIGITS),
        text.translate(WIDE),
        text[:1] + "_" + text[1:],
        "0x1",
    )
    return rng.choice((nudged, nudged, rng.choice(spelt), rng.choice(odd), rng.choice(FAR), "-" + text, _number(text)))


def _number(text: str) -> Any:
    return int(text) if text.isdigit() and len(text) < 16 else [text]


def _nudged(text: str, by: int) -> str:
    """By one, or ten, of its last digit, in the plain spelling."""
    whole, point, rest = text.partition(".")
    places = len(rest)
    sign = -1 if whole.startswith("-") else 1
    value = sign * int(whole.lstrip("-") + rest) + by
    digits = str(abs(value)).rjust(places + 1, "0")
    body = f"{digits[:-places]}.{digits[-places:]}".rstrip("0").rstrip(".") if point and places else digits
    return ("-" if value < 0 else "") + body


def _member(at: Any, other: Any, rng: random.Random) -> None:
    document, (holder, where), _ = at
    if isinstance(holder, list):
        rng.choice(
            (lambda: holder.pop(where), lambda: holder.insert(where, copy.deepcopy(holder[where])), holder.reverse)
        )()
        return
    action = rng.randrange(4)
    if action == 0:
        del holder[where]
    elif action == 1:
        holder[rng.choice(NAMES)] = rng.choice((0, "0", "1", None, "x", [], {}, True))
    elif action == 2:
        holder[rng.choice(NAMES) or where + "x"] = holder.pop(where)
    else:
        names = [name for name in other if name not in document] or list(other)
        name = rng.choice(names)
        document[name] = copy.deepcopy(other[name])


def _order(at: Any, _: Any, rng: random.Random) -> None:
    found = [holder for holder, _ in at[2] if isinstance(holder, list) and len(holder) > 1]
    if found:
        rng.shuffle(rng.choice(found))


def _splice(at: Any, other: Any, rng: random.Random) -> None:
    """A part of another document: from the same name if it has one there, or from anywhere."""
    _, (holder, where), _ = at
    theirs = [(h, w) for h, w in places(other) if w == where] or list(places(other))
    source, name = rng.choice(theirs if rng.random() < 0.8 else list(places(other)))
    holder[where] = copy.deepcopy(source[name])


def _everywhere(at: Any, _: Any, rng: random.Random) -> None:
    """A text is changed wherever it stands, so that sums still hold and what lies behind them is looked at."""
    texts = [holder[where] for holder, where in at[2] if isinstance(holder[where], str)]
    if not texts:
        return
    old = rng.choice(texts)
    new = respelt(old, rng)
    for holder, where in at[2]:
        if holder[where] == old:
            holder[where] = new
