"""Reference of all requests as Markdown: one table a schema, from its declaration."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import sys
import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

import label_dp.schemas
from label_dp.schemas.base import NO_OPTION, Ask, option_of, word_of
from label_dp.schemas.numbers import text_of

NUMBER = ("text", "whole number", "number")
# schemas whose members stand in a file or in another member, and are no options
NO_OPTIONS = (
    "CategoryFeature", "EventRule", "LossMatrix", "NumberFeature", "Policy", "PolicyAllowance", "PolicyCeilings",
)  # fmt: skip
NAMES = {str: "text", bool: "true or false", int: "whole number", float: "number", dict: "object", list: "list"}


def table(schema: type[Ask]) -> str:
    """Render a row for each member: its name, option, type, default and meaning."""
    inside = schema.__name__ in NO_OPTIONS
    rows = [
        (f"`{name}`", NO_OPTION if inside else _option(name, field), _takes(field), _default(field), _meaning(field))
        for name, field in schema.model_fields.items()
    ]
    heads = ("member", "option", "takes", "default", "meaning")
    lines = [heads, ("---",) * len(heads), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"


def _option(name: str, field: FieldInfo) -> str:
    option = option_of(name, field)
    return "none" if option == NO_OPTION else f"`{option}`"


def _takes(field: FieldInfo) -> str:
    parts = list(dict.fromkeys(_kinds(field.annotation)))
    if set(NUMBER) <= set(parts):
        parts = ["decimal number, as text or as number", *(part for part in parts if part not in NUMBER)]
    limits = [f"{sign} {getattr(part, key)}" for part in field.metadata for key, sign in LIMITS if hasattr(part, key)]
    return " or ".join(parts) + (f" ({', '.join(limits)})" if limits else "")


LIMITS = (("ge", "at least"), ("le", "at most"), ("min_length", "length at least"), ("max_length", "length at most"))


def _kinds(annotation: Any) -> list[str]:
    origin = get_origin(annotation)
    if origin is Annotated:
        return _kinds(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return [kind for part in get_args(annotation) if part is not type(None) for kind in _kinds(part)]
    if origin is Literal:
        return [f"`{choice}`" for choice in get_args(annotation)]
    if origin is list:
        return ["list of " + " or ".join(dict.fromkeys(_kinds(get_args(annotation)[0])))]
    name = NAMES.get(origin or annotation)
    return [name if name is not None else f"{annotation.__name__} object"]


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "needed"
    default = field.default
    if default is None or default == []:
        return ""
    return f"`{str(default).lower() if isinstance(default, bool) else text_of(default)}`"


def _meaning(field: FieldInfo) -> str:
    word = word_of(field)
    what = "There is no option" if word.name == NO_OPTION else "The option has another name"
    return (field.description or "") + (f" {what}: {word.why}." if word.why else "")


def page() -> str:
    """Render `deploy/guides/parameters.md`: all requests, in alphabetical order."""
    schemas = sorted(asked_for(), key=lambda schema: schema.__name__)
    parts = [part for schema in schemas for part in (f"## {_title(schema)}\n", _what(schema), table(schema)) if part]
    return INTRODUCTION + "\n" + "\n".join(parts)


def asked_for(base: type[Ask] = Ask) -> Iterator[type[Ask]]:
    """Yield every schema of this package, nested ones included."""
    for module in pkgutil.iter_modules(label_dp.schemas.__path__, "label_dp.schemas."):
        importlib.import_module(module.name)
    for schema in base.__subclasses__():
        if schema.__module__.startswith("label_dp.schemas.") and schema.model_fields:
            yield schema
        yield from asked_for(schema)


INTRODUCTION = """# What can be asked for

Every parameter of both services: its member in a REST body or query and in Python, and its option on the command line.
`.venv/bin/python -m label_dp.schemas.reference` prints this page from the declarations in `shared/label_dp/schemas/`.
"""


def _title(schema: type[Ask]) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", schema.__name__).capitalize()


def _what(schema: type[Ask]) -> str:
    text = inspect.cleandoc(schema.__doc__ or "").split("\n\n")[0].replace("\n", " ")
    return text and text + "\n"


if __name__ == "__main__":
    sys.stdout.write(page())
