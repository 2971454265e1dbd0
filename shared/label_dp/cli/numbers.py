"""Numbers as options of commands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from label_dp.errors import InvalidInput
from label_dp.numbers import SPELLING, BadSpelling, real_of, whole_of


def whole(option: str, least: int | None = None, most: int | None = None) -> Callable[[object], int]:
    """Return a parser of whole numbers from `least` to `most` as `label_dp.numbers` spells them, for a typer option."""

    def number(value: object) -> int:
        try:
            return int(_within(whole_of(value), least, most))
        except BadSpelling:
            raise InvalidInput(f"{option} takes a whole number{_bounds(least, most)}, {SPELLING}.") from None

    return number


def real(option: str, least: int | None = None, most: int | None = None) -> Callable[[object], float]:
    """Return a parser of any numbers, as `whole`."""

    def number(value: object) -> float:
        try:
            return float(_within(real_of(value), least, most))
        except BadSpelling:
            raise InvalidInput(f"{option} takes a number{_bounds(least, most)}, {SPELLING}.") from None

    return number


def _within(number: Any, least: int | None, most: int | None) -> Any:
    if (least is not None and number < least) or (most is not None and number > most):
        raise BadSpelling("out of range")
    return number


def _bounds(least: int | None, most: int | None) -> str:
    if least is None or most is None:
        return "" if least is None else f" of {least} or more"
    return f" from {least} to {most}"
