"""The two ways in which a check ends early: refused, or not possible at all."""

from __future__ import annotations

from typing import NoReturn

# what reading a validly signed document of another shape may raise
MISSHAPEN = (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError, RecursionError)


class RefusedError(Exception):
    """What was given does not verify; the text says why, `code` which check of the description failed."""

    def __init__(self, why: str, code: str = "malformed") -> None:
        super().__init__(why)
        self.code = code


class UnusableError(Exception):
    """A file is not there or cannot be read."""


def refuse(why: str, code: str = "malformed") -> NoReturn:
    """Raise RefusedError."""
    raise RefusedError(why, code)


class RuleError(RefusedError):
    """An event of an audit chain breaks a numbered rule."""

    def __init__(self, rule: int, name: str, number: int, why: str) -> None:
        super().__init__(f"event {number} breaks rule {rule} ({name}): {why}")
        self.rule, self.number = rule, number
