"""Methods whose request has a schema: they take its members as keywords, or an instance.

    @asks(Release)
    def release(self, batch: str, asked: Release) -> Conversation[Json]: ...

    client.release(batch, epsilon="1", mechanism="one-bit")
    client.release(batch, Release(epsilon="1", mechanism="one-bit"))

A mistake raises InvalidRequest, which names member and rule, before anything is sent.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, get_type_hints, overload

from pydantic import BaseModel

from label_dp.client.conversation import Conversation
from label_dp.client.declared import AwaitedClient, BlockingClient, Declared
from label_dp.schemas.validation import as_model

P = ParamSpec("P")
Q = ParamSpec("Q")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
M = TypeVar("M", bound=BaseModel)
A = TypeVar("A")
B = TypeVar("B")


class Either(Protocol[P, Q, T_co]):
    """Function of a schema's members, or of an instance."""

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T_co: ...
    @overload
    def __call__(self, *args: Q.args, **kwargs: Q.kwargs) -> T_co: ...


class Asking(Declared, Generic[P, Q, T]):
    """Declared method that `asks` makes of a conversation."""

    @overload
    def __get__(self, client: BlockingClient, kind: type) -> Either[P, Q, T]: ...
    @overload
    def __get__(self, client: AwaitedClient, kind: type) -> Either[P, Q, Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, client: None, kind: type) -> Callable[..., Conversation[T]]: ...
    def __get__(self, client: object, kind: type) -> Any:
        return self.talk


class asks(Generic[P, M]):  # noqa: N801 - a decorator
    """Declare a method by its conversation, whose last parameter is an instance of `model`."""

    def __init__(self, model: Callable[P, M]) -> None:
        self.model: Any = model

    @overload
    def __call__(self, talk: Callable[[Any, M], Conversation[T]]) -> Asking[P, [M], T]: ...
    @overload
    def __call__(self, talk: Callable[[Any, A, M], Conversation[T]]) -> Asking[Concatenate[A, P], [A, M], T]: ...
    @overload
    def __call__(
        self, talk: Callable[[Any, A, B, M], Conversation[T]]
    ) -> Asking[Concatenate[A, B, P], [A, B, M], T]: ...
    def __call__(self, talk: Any) -> Any:
        model = self.model
        original = inspect.signature(talk)
        leading = list(original.parameters.values())[:-1]
        signature = original.replace(parameters=leading + sorted(_members(model), key=lambda p: p.kind))

        def conversation(*args: Any, **kwargs: Any) -> Any:
            if isinstance(args[-1], model):
                return talk(*args, **kwargs)
            arguments = signature.bind(*args, **kwargs).arguments
            before = [arguments.pop(parameter.name) for parameter in leading]
            return talk(*before, as_model(arguments, model))

        conversation.__name__, conversation.__module__ = talk.__name__, talk.__module__
        lines = [f"{name}: {field.description}" for name, field in model.model_fields.items() if field.description]
        conversation.__doc__ = inspect.cleandoc(talk.__doc__) + "\n\n" + "\n".join(lines)
        conversation.__signature__ = signature  # type: ignore[attr-defined]  # what help() shows
        return Asking(conversation)


def _members(model: type[BaseModel]) -> list[inspect.Parameter]:
    """List the parameters of the members; required ones may be positional."""
    types = get_type_hints(model)
    return [
        inspect.Parameter(
            name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD if field.is_required() else inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.is_required() else field.get_default(),
            annotation=types[name],
        )
        for name, field in model.model_fields.items()
    ]


def members(request: BaseModel, *without: str) -> dict[str, Any]:
    """Dump the members that the caller set, without `without`; the service's defaults hold for the rest."""
    return request.model_dump(mode="json", exclude_unset=True, exclude=set(without))
