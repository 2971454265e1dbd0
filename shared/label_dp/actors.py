"""Actors: the owner of an act as events name it, and the name of the person or program behind it.

Events are hashed for ever and shown to others, so they name an API key by its id. Names stand beside it where the
party's own people look.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, cast

from label_dp.errors import InvalidInput

R = TypeVar("R", bound=Mapping[str, Any])  # a reply

# code points that Unicode says to ignore in display, or whose glyph is blank, and a second space in a row: names that
# differ by them look the same, but would be two
IGNORABLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff\u2800\U0001d159]"
    "|  "
)
MAX_NAME = 40
COMMAND_LINE = "command line"
PERSON = f"{COMMAND_LINE}: "  # and the name that was given with --as
ISSUED = "oidc:"  # and ISSUER#SUBJECT of a caller with a token
SCHEDULE = "schedule of "  # and who made it
# members of what is told that hold an actor
HELD_IN = ("actor", "requested_by", "approved_by", "sent_by", "decided_by", "created_by", "set_by", "scheduled_by")


def require_name(name: str) -> str:
    """Return the name. Raises InvalidInput if it is empty, too long, or not visible as it is."""
    if not 1 <= len(name) <= MAX_NAME or name != name.strip() or not name.isprintable() or IGNORABLE.search(name):
        raise InvalidInput(
            f"A name is 1 to {MAX_NAME} visible, printable characters without outer or double spaces; this one is not."
        )
    return name


def person(name: str) -> str:
    """Return the actor of a name on the command line. Raises InvalidInput."""
    return f"{PERSON}{require_name(name)}"


def name_of(actor: str | None, names: Mapping[str, str]) -> str | None:
    """Return the name behind an actor; None if unknown. `names`: those of API keys, by actor."""
    if actor is None:
        return None
    actor = actor.removeprefix(SCHEDULE)
    return actor.removeprefix(PERSON) if actor.startswith(PERSON) else names.get(actor)


def called(actor: str, names: Mapping[str, str]) -> str:
    """Format an actor for people: `Night job (apikey:1a2b)`, or the actor alone if it has no other name."""
    name = names.get(actor.removeprefix(SCHEDULE))
    return actor if name is None else f"{name} ({actor})"


def with_names(record: R, names: Mapping[str, str], *, only: Iterable[str] = HELD_IN) -> R:
    """Copy `record` with a `<member>_name` for each actor in it."""
    members = [member for member in only if member in record]
    return cast("R", {**record, **{f"{member}_name": name_of(record[member], names) for member in members}})
