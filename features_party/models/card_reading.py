"""Refusals of damaged cards: who signed a folder may have signed anything."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from jinja2 import UndefinedError

from label_dp.errors import InvalidFile


@contextmanager
def reading_card() -> Iterator[None]:
    """Turn any error of the body on an edited card into one refusal. Raises InvalidFile."""
    try:
        yield
    except (KeyError, IndexError, TypeError, AttributeError, ValueError, OverflowError, UndefinedError):
        raise InvalidFile("The card of the model is damaged; train again or restore its folder.") from None
