"""Names of classes, where labels are no numbers: what a name may be, and how a list of them is shown."""

from __future__ import annotations

from collections.abc import Sequence

from label_dp.errors import InvalidDomain

MAX_NAMES = 100
MAX_NAME = 100  # characters
SHOWN = 5
RULE = f"a class has a name of 1 to {MAX_NAME} printable characters without blanks at its ends, which spells no number"


def spells_number(given: object) -> bool:
    """Whether it is a number, or a text that some reader takes for one: a class called `1e3` could not be told from
    the number in a file of texts."""
    if not isinstance(given, str):
        return True
    try:
        float(given)
    except ValueError:
        return False
    return True


def checked_names(names: Sequence[object]) -> tuple[str, ...]:
    """The names of 2 to MAX_NAMES classes, in their order. Raises InvalidDomain."""
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
    """As a line of text shows them: the first ones, and how many more."""
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")
