"""Lazy commands of a typer app: only the command that runs, or shows its help, builds its options. A list of commands
shows the names and helps of the others."""

from __future__ import annotations

import copy
from typing import Any

import typer
from typer.core import TyperCommand


def commands_of(app: typer.Typer) -> Any:
    """Return the app's command, as `typer.main.get_command`, without types of flags in any help."""
    group = typer.main.get_command(_outlined(app, app))
    for command in _all(group):
        if not isinstance(command, _Later):
            _without_types(command)
    return group


def _all(command: Any) -> list[Any]:
    return [command, *(found for inner in getattr(command, "commands", {}).values() for found in _all(inner))]


def _outlined(app: typer.Typer, root: typer.Typer) -> typer.Typer:
    """Copy an app with lazy commands."""
    outlined = copy.copy(app)
    outlined.registered_commands = [_outline(info, root) for info in app.registered_commands]
    outlined.registered_groups = [copy.copy(info) for info in app.registered_groups]
    for info in outlined.registered_groups:
        assert info.typer_instance is not None
        info.typer_instance = _outlined(info.typer_instance, root)
    return outlined


def _outline(info: Any, root: typer.Typer) -> Any:
    def without_options() -> None: ...

    without_options.__name__, without_options.__doc__ = info.callback.__name__, info.callback.__doc__
    outline = copy.copy(info)
    outline.callback = without_options
    outline.cls = type("Later", (_Later, info.cls or TyperCommand), {"info": info, "root": root})
    return outline


class _Later:
    """Command that builds the one of its `info` when its options are read."""

    info: Any
    root: typer.Typer

    @property
    def params(self) -> list[Any]:
        if "params" not in self.__dict__:
            short, markup = self.root.pretty_exceptions_short, self.root.rich_markup_mode
            built = typer.main.get_command_from_info(self.info, pretty_exceptions_short=short, rich_markup_mode=markup)
            self.__dict__.update(_without_types(built).__dict__)
        options: list[Any] = self.__dict__["params"]
        return options

    @params.setter
    def params(self, none_yet: list[Any]) -> None:
        pass

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Name all missing options at once; click would name the first."""
        try:
            parsed: list[str] = super().parse_args(ctx, list(args))  # type: ignore[misc]  # of the class beside this
            return parsed
        except typer.BadParameter as error:
            missing = _missing(self, ctx, list(args))
            if len(missing) > 1 and error.param in missing:
                error.param_hint = ", ".join(_hint(param) for param in missing)
                # the type describes the first one only
                sorts = sorted({f"{parameter.param_type_name}s" for parameter in missing})
                error.param, error.param_type = None, " and ".join(sorts)  # type: ignore[attr-defined]  # MissingParameter has it
            raise


def _missing(command: Any, context: Any, args: list[str]) -> list[Any]:
    """List the required parameters that are missing."""
    values, _, _ = command.make_parser(context).parse_args(args)
    needed = [param for param in command.get_params(context) if param.required]
    return [param for param in needed if param.consume_value(context, values)[0] in (None, ())]


def _hint(parameter: Any) -> str:
    if parameter.param_type_name == "option":
        return f"'{max(parameter.opts, key=len)}'"
    return f"'{getattr(parameter, 'metavar', None) or parameter.name.upper()}'"


def _without_types(command: Any) -> Any:
    """Remove types from flags: a flag takes no value, and newer typers write <bool> beside it."""
    context = typer.Context(command)
    asks_help = command.get_help_option(context)
    if asks_help is not None:
        asks_help.default = False  # it is None, which newer typers load pydantic to read
    for option in command.get_params(context):
        if getattr(option, "is_flag", False):
            option.metavar = ""
    return command
