"""A method of a client, declared once as a conversation: the blocking and the awaited client both have it.

    class ShopCalls:
        @call
        def price(self, name: str) -> Conversation[Json]:
            '''What it costs.'''
            return get("things/{}/price", name)

    class Shop(BlockingClient, ShopCalls): ...       # shop.price("pen") is the JSON
    class AsyncShop(AwaitedClient, ShopCalls): ...   # await shop.price("pen") is

A type checker sees both flavours through `DeclaredCall` and `Feed`; at run time each client class has plain functions
with the signature and the docstring of the declaration. Other conversations call it on the class that declares it.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, ClassVar, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

import httpx

from label_dp.client.conversation import Conversation, Story
from label_dp.client.drivers import Awaited, Blocking
from label_dp.client.peer import RETRIES, Peer

P = ParamSpec("P")
T = TypeVar("T")


class Declared:
    """Conversation under the name of a method; client classes replace it by functions."""

    verb: ClassVar[str] = "run"  # method of the driver

    def __init__(self, talk: Callable[..., Any]) -> None:
        self.talk = talk

    def method(self, name: str, *, awaited: bool) -> Callable[..., Any]:
        """Return the function of a client class."""
        talk, verb = self.talk, self.verb

        @functools.wraps(talk)
        def method(self: Any, /, *args: Any, **kwargs: Any) -> Any:
            return getattr(self.wire, verb)(talk(self, *args, **kwargs))

        @functools.wraps(talk)
        async def coroutine(self: Any, /, *args: Any, **kwargs: Any) -> Any:
            return await self.wire.run(talk(self, *args, **kwargs))

        function: Any = coroutine if awaited and verb == "run" else method
        signature = inspect.signature(talk)
        value = re.sub(r"^\w+\[(.*)\]$", r"\1", signature.return_annotation)
        if verb == "follow":
            value = f"{'AsyncIterator' if awaited else 'Iterator'}[{value}]"
        function.__name__ = name.rpartition(".")[2]
        function.__qualname__, function.__signature__ = name, signature.replace(return_annotation=value)
        function.__annotations__ = function.__annotations__ | {"return": value}
        return function  # type: ignore[no-any-return]  # one of the two functions


class DeclaredCall(Declared, Generic[P, T]):
    """Method that returns the value of its conversation."""

    @overload
    def __get__(self, client: BlockingClient, kind: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: AwaitedClient, kind: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, client: None, kind: type) -> Callable[Concatenate[Any, P], Conversation[T]]: ...
    def __get__(self, client: object, kind: type) -> Any:
        return self.talk


class Feed(Declared, Generic[P, T]):
    """Method that returns an iterator over the reports of its conversation."""

    verb = "follow"

    @overload
    def __get__(self, client: BlockingClient, kind: type) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, client: AwaitedClient, kind: type) -> Callable[P, AsyncIterator[T]]: ...
    @overload
    def __get__(self, client: None, kind: type) -> Callable[Concatenate[Any, P], Story[T]]: ...
    def __get__(self, client: object, kind: type) -> Any:
        return self.talk


def call(talk: Callable[Concatenate[Any, P], Conversation[T]]) -> DeclaredCall[P, T]:
    """Declare a method by its conversation."""
    return DeclaredCall(talk)


def feed(talk: Callable[Concatenate[Any, P], Story[T]]) -> Feed[P, T]:
    """Declare a method that iterates over reports."""
    return Feed(talk)


def declared(kind: type) -> dict[str, Declared]:
    """Map names to the declarations of a class, inherited ones included."""
    attributes = {name: inspect.getattr_static(kind, name) for name in dir(kind)}
    return {name: declaration for name, declaration in attributes.items() if isinstance(declaration, Declared)}


class BlockingClient:
    """Client whose declared methods block; a context manager with typed errors."""

    party: ClassVar[str]  # name of the peer in errors

    def __init__(self, url: str, api_key: str, *, retries: int = RETRIES, http: httpx.Client | None = None) -> None:
        self.wire = Blocking(Peer(self.party, url, api_key, retries), http)

    def __init_subclass__(cls) -> None:
        for name, declaration in declared(cls).items():
            setattr(cls, name, declaration.method(f"{cls.__qualname__}.{name}", awaited=False))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self.wire.http.close()


class AwaitedClient:
    """Client whose declared methods are awaited; otherwise as `BlockingClient`."""

    party: ClassVar[str]

    def __init__(
        self, url: str, api_key: str, *, retries: int = RETRIES, http: httpx.AsyncClient | None = None
    ) -> None:
        self.wire = Awaited(Peer(self.party, url, api_key, retries), http)

    def __init_subclass__(cls) -> None:
        for name, declaration in declared(cls).items():
            setattr(cls, name, declaration.method(f"{cls.__qualname__}.{name}", awaited=True))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self.wire.http.aclose()
