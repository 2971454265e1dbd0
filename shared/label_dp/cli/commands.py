"""Commands from schemas: a parameter that is a schema becomes the options of its members. The list of commands only
shows names and helps: the command that runs builds its options and schemas, and loads pydantic."""

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
    app: typer.Typer, name: str | None = None, panel: str | None = None, *, cls: Any = None
) -> Callable[[Any], Any]:
    """Register a function whose parameters are options of typer, or schemas (`asked: Release`).

    `rules: Population | None` is None if none of its options is given. Errors of the schema are InvalidInput that names
    the option, and so are typed errors that name a member in `backticks`.
    """

    def register(function: Callable[..., None]) -> Callable[..., None]:
        lazy = _CommandFunction(name or function.__name__, lambda: (function, None))
        app.command(name, cls=cls, rich_help_panel=panel, help=inspect.getdoc(function))(lazy)
        return function

    return register


def command_later(app: typer.Typer, name: str, panel: str, text: str, load: Callable[[], Made]) -> None:
    """Register a command of which only name and help are known yet. `load` returns its function and the schema of its
    parameter `asked`: one function serves several commands."""
    app.command(name, rich_help_panel=panel, help=text)(_CommandFunction(name, load))


def help_of(asked: type[Ask]) -> str:
    """Return the help of a command that sends this schema."""
    return inspect.cleandoc(asked.__doc__ or "")


class _CommandFunction:
    """Function as typer reads it: with the signature of its options."""

    def __init__(self, name: str, load: Callable[[], Made]) -> None:
        self.__name__ = name
        self._found = load

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
