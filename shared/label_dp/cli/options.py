"""Options from schemas: a command's parameter that is a schema becomes the options of its members."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typer
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from label_dp.cli.numbers import whole
from label_dp.cli.panels import EXPERT_PANEL, Panel
from label_dp.errors import InvalidInput, LabelDPError
from label_dp.schemas.base import NO_OPTION, Ask, option_of, word_of
from label_dp.schemas.reference import asked_for

LONGEST_CHOICE = 30


class CommandOptions:
    """Options of a function, and its call with their values. Schemas of `label_dp.schemas` are known by name, so that a
    module of commands imports none."""

    def __init__(self, function: Callable[..., None], asked: type[Ask] | None) -> None:
        named = {"Ask": Ask} | {schema.__name__: schema for schema in asked_for()}
        hints = get_type_hints(function, {**named, **function.__globals__}, include_extras=True)
        hints |= {} if asked is None else {"asked": asked}
        self._function = function
        self._plain: list[str] = []
        self._schemas: dict[str, _Schema] = {}
        parameters = []
        for name, parameter in inspect.signature(function).parameters.items():
            options = _schema(hints[name])
            if options is None:
                self._plain.append(name)
                parameters.append(parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY))
            else:
                self._schemas[name] = options
                parameters += options.parameters(name)
        # expert options come last, in a panel of their own
        self.signature = inspect.Signature(sorted(parameters, key=lambda p: _panel(p) == EXPERT_PANEL))

    def call(self, given: dict[str, Any]) -> None:
        read = {name: schema.read(name, given) for name, schema in self._schemas.items()}
        try:
            self._function(**{name: given[name] for name in self._plain}, **read)
        except LabelDPError as error:
            error.detail = _in_options(error.detail, *(schema.schema for schema in self._schemas.values()))
            raise


@dataclass(frozen=True)
class _Schema:
    schema: type[Ask]
    optional: bool
    panel: Panel

    def members(self) -> Iterator[tuple[str, FieldInfo]]:
        for name, field in self.schema.model_fields.items():
            if name not in self.panel.without and word_of(field).name != NO_OPTION:
                yield name, field

    def parameters(self, prefix: str) -> Iterator[inspect.Parameter]:
        for name, field in self.members():
            kind, default = _type(field.annotation), field.get_default(call_default_factory=True)
            needed = field.is_required() and not self.optional
            option = self._option(name, field, kind)
            if kind is not bool and (self.optional or isinstance(default, list) or not isinstance(default, str | int)):
                option.show_default = str(default) if isinstance(default, str | int) else False
                default = None
            annotation: Any = kind if needed or kind is bool else kind | None
            yield inspect.Parameter(
                f"{prefix}_{name}",
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if needed else default,
                annotation=Annotated[annotation, option],
            )

    def _option(self, name: str, field: FieldInfo, kind: Any) -> Any:
        word, flag = word_of(field), option_of(name, field)
        help_ = _in_options(word.help or field.description or "", self.schema)
        more: dict[str, Any] = {}
        if kind in (int, list[int]):
            more = {"parser": whole(flag, *_bounds(field)), "metavar": "INTEGER"}
        if date in _parts(field.annotation):
            more = {"metavar": "DAY"}
        choices = "|".join(_choices(field.annotation))
        if 0 < len(choices) <= LONGEST_CHOICE:
            more["metavar"] = choices
        if get_origin(kind) is list and "repeatable" not in help_:
            help_ = help_.rstrip(".") + "; repeatable."
        panel = EXPERT_PANEL if word.expert else self.panel.title
        return typer.Option(flag, help=help_, rich_help_panel=panel, **more)

    def read(self, prefix: str, given: dict[str, Any]) -> Ask | None:
        """Build the schema from the options. Raises InvalidInput."""
        values: dict[str, Any] = {}
        for name, field in self.members():
            value = given[f"{prefix}_{name}"]
            if value not in (None, [], ()) and not (value is False and self.optional):
                values[name] = _read(name, field, value)
        if self.optional and not values:
            return None
        try:
            return self.schema(**values)
        except ValidationError as error:
            raise _refusal(error, values, self.schema) from None


def _in_options(text: str, *schemas: type[Ask]) -> str:
    """Replace members in backticks by their options."""
    fields = {name: field for schema in schemas for name, field in schema.model_fields.items()}
    return re.sub(r"`(\w+)`", lambda m: option_of(m[1], fields[m[1]]) if m[1] in fields else m[1], text)


def _panel(parameter: inspect.Parameter) -> Any:
    return next((getattr(part, "rich_help_panel", None) for part in get_args(parameter.annotation)[1:]), None)


def _schema(hint: Any) -> _Schema | None:
    panel = Panel()
    if get_origin(hint) is Annotated:
        hint, *more = get_args(hint)
        panel = next((part for part in more if isinstance(part, Panel)), panel)
    parts = [part for part in get_args(hint) if part is not type(None)] if _is_union(hint) else [hint]
    if len(parts) == 1 and isinstance(parts[0], type) and issubclass(parts[0], Ask):
        return _Schema(parts[0], len(parts) != len(get_args(hint) or parts), panel)
    return None


def _is_union(annotation: Any) -> bool:
    return get_origin(annotation) in (Union, types.UnionType)


def _parts(annotation: Any) -> Iterator[Any]:
    if get_origin(annotation) is Annotated:
        yield from _parts(get_args(annotation)[0])
    elif _is_union(annotation):
        for part in get_args(annotation):
            yield from _parts(part)
    elif annotation is not type(None):
        yield annotation


def _type(annotation: Any) -> Any:
    """Return the type that typer reads: a flag, a whole number, text, or a list of them."""
    parts = list(_parts(annotation))
    if parts in ([bool], [int]):
        return parts[0]
    if len(parts) == 1 and get_origin(parts[0]) is list:
        return list[int] if _type(get_args(parts[0])[0]) is int else list[str]
    return str


def _choices(annotation: Any) -> list[str]:
    parts = list(_parts(annotation))
    return list(get_args(parts[0])) if len(parts) == 1 and get_origin(parts[0]) is Literal else []


def _bounds(field: FieldInfo) -> tuple[int | None, int | None]:
    least = next((part.ge for part in field.metadata if hasattr(part, "ge")), None)
    return least, next((part.le for part in field.metadata if hasattr(part, "le")), None)


def _read(name: str, field: FieldInfo, value: Any) -> Any:
    read = word_of(field).read
    if read is None:
        return value
    try:
        return [read(one) for one in value] if isinstance(value, list | tuple) else read(value)
    except ValueError as form:
        raise InvalidInput(f"{option_of(name, field)} takes {form}.") from None


def _refusal(error: ValidationError, values: dict[str, Any], schema: type[Ask]) -> InvalidInput:
    from label_dp.schemas.validation import explain

    entries: list[dict[str, Any]]
    entries = [dict(e) | {"loc": ("body", *e["loc"])} for e in error.errors(include_input=False, include_url=False)]
    options = {name: option_of(name, field) for name, field in schema.model_fields.items()}
    missing = [options[str(e["loc"][1])] for e in entries if e["type"] == "missing" and len(e["loc"]) == 2]
    if missing:
        names = ", ".join(missing[:-1]) + (" and " if len(missing) > 1 else "") + missing[-1]
        return InvalidInput(f"{names} {'is' if len(missing) == 1 else 'are'} missing.")
    place = explain(entries, values, schema).places[0]
    _, name, *inside = place["where"].split(".")
    where = f"'{'.'.join(inside)}' of {options[name]}" if inside else options[name]
    return InvalidInput(f"{where} {place['rule']}.")
