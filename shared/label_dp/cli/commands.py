"""Commands made of what can be asked for: a parameter that is a schema becomes the options of its members.

The list of commands shows names and helps alone, so that options and schemas are made, and pydantic is loaded, by the
command that runs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from label_dp.cli.options import CommandOptions
    from label_dp.schemas.base import Ask

Made = tuple[Callable[..., None], "type[Ask] | None"]


def command(
    app: typer.Typer,
    name: str | None = None,
    panel: str | None = None,
    *,
    cls: Any = None,
) -> Callable[[Any], Any]:
    """Register a function whose parameters are options of typer, or schemas (`asked: Release`).

    `rules: Population | None` is None where none of its options is given, and complete where one is. What the schema
    refuses is an InvalidInput that names the option. So does a typed error that names a member in `backticks`.
    """

    def register(function: Callable[..., None]) -> Callable[..., None]:
        made = _CommandFunction(name or function.__name__, lambda: (function, None))
        app.command(name, cls=cls, rich_help_panel=panel, help=inspect.getdoc(function))(made)
        return function

    return register


def command_later(app: typer.Typer, name: str, panel: str, told: str, found: Callable[[], Made]) -> None:
    """Register a command of which only the name and the help are known yet. `found` gives its function and the schema
    that its parameter `asked` has: one function serves several commands."""
    app.command(name, rich_help_panel=panel, help=told)(_CommandFunction(name, found))


def help_of(asked: type[Ask]) -> str:
    """Return the help of a command that sends this schema."""
    return inspect.cleandoc(asked.__doc__ or "")


class _CommandFunction:
    """A function as typer reads it: with the signature that its options make."""

    def __init__(self, name: str, found: Callable[[], Made]) -> None:
        self.__name__ = name
        self._found = found

    @cached_property
    def _options(self) -> CommandOptions:
        from label_dp.cli.options import CommandOptions

        return CommandOptions(*self._found())

    @property
    def __signature__(self) -> inspect.Signature:
        return self._options.signature

    @property
    def __annotations__(self) -> dict[str, Any]:  # type: ignore[override]  # typer reads it of an object too
        return {name: parameter.annotation for name, parameter in self.__signature__.parameters.items()}

    def __call__(self, **given: Any) -> None:
        self._options.call(given)
