"""Filters of `label_dp.schemas.filters` as query parameters of calls and pages."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from fastapi import Query

from label_dp.schemas.filters import Filter
from label_dp.schemas.validation import as_model

F = TypeVar("F", bound=Filter)


def in_query(schema: type[F]) -> Callable[..., F]:
    """Build a dependency that reads the members of `schema` from the query."""
    return _dependency(
        lambda values: schema(**values),
        {
            name: Annotated[(field.annotation, *field.metadata, Query(description=field.description))]
            for name, field in schema.model_fields.items()
        },
        None,
    )


def in_form(schema: type[F]) -> Callable[..., F]:
    """Build a dependency that reads the members of `schema` from a form; blank fields count as absent. Raises
    InvalidRequest."""
    members = dict.fromkeys(schema.model_fields, Annotated[str, Query(max_length=200)])
    return _dependency(lambda values: as_model({n: v for n, v in values.items() if v}, schema), members, "")


def _dependency(build: Callable[[dict[str, Any]], F], members: dict[str, Any], default: str | None) -> Callable[..., F]:
    def dependency(**values: Any) -> F:
        return build(values)

    dependency.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # what the framework reads
        [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
            for name, annotation in members.items()
        ]
    )
    return dependency
