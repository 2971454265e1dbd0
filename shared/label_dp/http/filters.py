"""Filters of `label_dp.schemas.filters` as what a call or a page takes in its query."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from fastapi import Query

from label_dp.schemas.filters import Filter
from label_dp.schemas.validation import as_model

F = TypeVar("F", bound=Filter)


def in_query(schema: type[F]) -> Callable[..., F]:
    """A dependency that takes the members of `schema` as parameters of the query."""
    return _dependency(
        lambda values: schema(**values),
        {
            name: Annotated[(field.annotation, *field.metadata, Query(description=field.description))]
            for name, field in schema.model_fields.items()
        },
        None,
    )


def in_form(schema: type[F]) -> Callable[..., F]:
    """The same of a form, whose blank fields leave nothing out. Raises InvalidRequest."""
    members = dict.fromkeys(schema.model_fields, Annotated[str, Query(max_length=200)])
    return _dependency(lambda values: as_model({n: v for n, v in values.items() if v}, schema), members, "")


def _dependency(made: Callable[[dict[str, Any]], F], members: dict[str, Any], default: str | None) -> Callable[..., F]:
    def dependency(**values: Any) -> F:
        return made(values)

    dependency.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # what the framework reads
        [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
            for name, annotation in members.items()
        ]
    )
    return dependency
