"""The two ways in which a check ends early: refused, or not possible at all."""

from __future__ import annotations

from typing import NoReturn


class RefusedError(Exception):
    """What was given does not verify; the text says why."""


class UnusableError(Exception):
    """A file is not there or cannot be read."""


def refuse(why: str) -> NoReturn:
    raise RefusedError(why)
