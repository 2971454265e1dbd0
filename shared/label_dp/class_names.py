"""Names of classes: what a name may be, and how a list of them is shown."""

from __future__ import annotations

from collections.abc import Sequence

from label_dp.errors import InvalidDomain

MAX_NAMES = 100
MAX_NAME = 100  # characters
SHOWN = 5
RULE = f"a class has a name of 1 to {MAX_NAME} printable characters without blanks at its ends, which spells no number"


def spells_number(value: object) -> bool:
    """Return whether it is a number, or a text that some reader parses as one: in a file of texts the class `1e3` would
    look like a number."""
    if not isinstance(value, str):
        return True
    try:
        float(value)
    except ValueError:
        return False
    return True


def checked_names(names: Sequence[object]) -> tuple[str, ...]:
    """Return the names of 2 to MAX_NAMES classes, in their order. Raises InvalidDomain."""
    if not 2 <= len(names) <= MAX_NAMES:
        raise InvalidDomain(f"A domain has between 2 and {MAX_NAMES} names.")
    checked: list[str] = []
    for place, name in enumerate(names):
        if not isinstance(name, str) or not _is_name(name):
            raise InvalidDomain(f"Name {place} of the domain cannot be taken: {RULE}.")
        checked.append(name)
    if len(set(checked)) != len(checked):
        raise InvalidDomain("The names of a domain must differ; one of them occurs twice.")
    return tuple(checked)


def _is_name(name: str) -> bool:
    return 1 <= len(name) <= MAX_NAME and name == name.strip() and name.isprintable() and not spells_number(name)


def listing(names: Sequence[str]) -> str:
    """Format names in a line of text: the first ones, and how many more."""
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")
