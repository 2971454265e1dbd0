"""Every door of the REST interfaces, the commands and the settings that takes a number, found by looking at them."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from fastapi import FastAPI
from fastapi.routing import APIRoute
from pydantic import BaseModel

# spelled as no number is here, though Python's readers, or people, take most of them for one
BAD_TEXTS: tuple[str, ...] = (
    *("1_0", "0_1", " 1", "1 ", "1\n", "\t1", "1\u00a0", "\u30001", "\uff11", "\u0661", "\u0967", "\u00b2", "\u2460"),
    *("+1", "-0", "01", "00.5", ".5", "5.", "0x1", "0b1", "1,0", "1.0.0", "1e", "1e+", "1e1.0", "1e1000", "\u22121"),
    *(
        "NaN",
        "nan",
        "inf",
        "Infinity",
        "-inf",
        "sNaN",
        "one",
        "",
        " ",
        "1/2",
        "1%",
        "1j",
        "True",
        "None",
        "1;2",
        "9" * 10_000,
    ),
    *("9" * 10_000, "0." + "0" * 10_000 + "1", "1e-400", "(1)", "1\x00", "--1", "1 0"),
)
BAD_VALUES: tuple[Any, ...] = (True, False, [1], {"1": 1}, [])  # of JSON, where a number is wanted


def _inside(annotation: Any) -> Iterator[Any]:
    """The parts of a union, of a list and of what is annotated; models as they are."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _inside(get_args(annotation)[0])
    elif origin in (Union, types.UnionType, list, tuple, dict):
        for part in get_args(annotation):
            yield from _inside(part)
    elif origin is not Literal:
        yield annotation


def takes_number(annotation: Any) -> bool:
    return any(part in (int, float) for part in _inside(annotation))


def models_of(annotation: Any) -> list[type[BaseModel]]:
    return [part for part in _inside(annotation) if isinstance(part, type) and issubclass(part, BaseModel)]


def number_members(model: type[BaseModel], before: str = "") -> Iterator[str]:
    """Members that take a number, those of models inside by their path."""
    model.model_rebuild()
    for name, field in model.model_fields.items():
        inner = models_of(field.annotation)
        for one in inner:
            yield from number_members(one, f"{before}{name}.")
        if takes_number(field.annotation):
            yield before + name


def routes(app: FastAPI) -> Iterator[APIRoute]:
    waiting: list[Any] = list(app.routes)
    while waiting:
        route = waiting.pop()
        waiting += getattr(getattr(route, "original_router", None), "routes", [])
        if isinstance(route, APIRoute):
            yield route


def body_doors(app: FastAPI) -> set[tuple[str, str]]:
    """(method and path, member) of every JSON body that takes a number."""
    found = set()
    for route in routes(app):
        for model in models_of(route.body_field.field_info.annotation) if route.body_field is not None else []:
            method = min(route.methods or {"?"})
            found |= {(f"{method} {route.path}", member) for member in number_members(model)}
    return found


def query_doors(app: FastAPI) -> set[tuple[str, str]]:
    """(method and path, parameter) of every query that takes a whole number or another."""
    found = set()
    for route in routes(app):
        for dependant in [route.dependant, *route.dependant.dependencies]:
            for name, field in query_fields(dependant):
                if takes_number(field.annotation):
                    found.add((f"{min(route.methods or {'?'})} {route.path}", name))
    return found


def query_fields(dependant: Any) -> Iterator[tuple[str, Any]]:
    """(name, field) of each parameter of a query, those of a model of it one by one."""
    for parameter in dependant.query_params:
        models = models_of(parameter.field_info.annotation)
        yield from (
            (n, f) for model in models for n, f in model.model_fields.items() if str not in _inside(f.annotation)
        )
        if not models:
            yield parameter.alias, parameter.field_info


def options_of(app: Any, before: str = "") -> Iterator[tuple[str, str, Any]]:
    """(command, parameter, what typer was told of it) of every option and argument that takes a number."""
    for command in app.registered_commands:
        hints = get_type_hints(command.callback, include_extras=True)
        for name, hint in hints.items():
            if get_origin(hint) is Annotated and takes_number(hint):
                yield f"{before}{command.callback.__name__}", name, get_args(hint)[1]
    for group in app.registered_groups:
        yield from options_of(group.typer_instance, f"{before}{group.name} ")
