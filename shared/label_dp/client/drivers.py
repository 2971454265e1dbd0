"""Conversations over a connection: the one place that sends, sleeps and awaits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterator
from contextlib import AsyncExitStack, ExitStack, aclosing, closing
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx
from httpx_sse import EventSource

from label_dp.client.awaited_transport import AwaitedTransport
from label_dp.client.bodies import large_body
from label_dp.client.budgets import ENDLESS
from label_dp.client.conversation import Conversation, Open, Report
from label_dp.client.peer import Peer, Wire
from label_dp.client.transport import Transport

T = TypeVar("T")
TIMEOUT = httpx.Timeout(60.0, read=300.0)
SECONDS = 330.0  # of a request, but for what its size adds


@dataclass(frozen=True)
class _End:
    value: Any


def _next(wire: Wire[Any], given: Any) -> Any:
    """The next step of a conversation; an error is raised where it waits."""
    try:
        return wire.throw(given) if isinstance(given, httpx.TransportError) else wire.send(given)
    except StopIteration as stop:
        return _End(stop.value)


class Blocking:
    """Runs conversations with `peer` on `http`."""

    def __init__(
        self, peer: Peer, http: httpx.Client | None = None, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self.http = http or httpx.Client(timeout=TIMEOUT, transport=Transport(SECONDS))
        self.peer, self.sleep = peer, sleep

    def run(self, talk: Conversation[T]) -> T:
        """Raises what the conversation raises, a refusal, and Unavailable if the peer does not answer."""
        with closing(self._steps(talk)) as steps:
            for step in steps:
                if isinstance(step, _End):
                    return step.value  # type: ignore[no-any-return]  # the generator's own return type
        raise AssertionError("a conversation ends")

    def follow(self, talk: Conversation[Any]) -> Iterator[Any]:
        """What the conversation says, as it says it."""
        with closing(self._steps(talk)) as steps:
            for step in steps:
                if isinstance(step, Report):
                    yield step.value

    def _steps(self, talk: Conversation[Any]) -> Generator[Report[Any] | _End, None, None]:
        given: Any = None
        pieces: Iterator[Any] = iter(())
        with closing(self.peer.wire(talk)) as wire, ExitStack() as line:
            while not isinstance(step := _next(wire, given), _End):
                given = None
                try:
                    if isinstance(step, Report):
                        yield step
                    elif isinstance(step, Open):
                        line.close()
                        given = line.enter_context(self.http.stream(**_sent(self.peer, step)))
                        pieces = _pieces(step, given)
                    elif isinstance(step, (int, float)):
                        self.sleep(step)
                    else:
                        given = next(pieces, None)
                except httpx.TransportError as error:
                    given = error
                except httpx.InvalidURL as error:  # of where we were sent
                    given = httpx.UnsupportedProtocol(str(error))
            yield step


class Awaited:
    """As `Blocking`, on an event loop."""

    def __init__(
        self,
        peer: Peer,
        http: httpx.AsyncClient | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.http = http or httpx.AsyncClient(timeout=TIMEOUT, transport=AwaitedTransport(SECONDS))
        self.peer, self.sleep = peer, sleep

    async def run(self, talk: Conversation[T]) -> T:
        async with aclosing(self._steps(talk)) as steps:
            async for step in steps:
                if isinstance(step, _End):
                    return step.value  # type: ignore[no-any-return]  # the generator's own return type
        raise AssertionError("a conversation ends")

    async def follow(self, talk: Conversation[Any]) -> AsyncIterator[Any]:
        async with aclosing(self._steps(talk)) as steps:
            async for step in steps:
                if isinstance(step, Report):
                    yield step.value

    async def _steps(self, talk: Conversation[Any]) -> AsyncGenerator[Report[Any] | _End, None]:
        given: Any = None
        pieces: Any = None
        with closing(self.peer.wire(talk)) as wire:
            async with AsyncExitStack() as line:
                while not isinstance(step := _next(wire, given), _End):
                    given = None
                    try:
                        if isinstance(step, Report):
                            yield step
                        elif isinstance(step, Open):
                            await line.aclose()
                            given = await line.enter_async_context(self.http.stream(**_sent(self.peer, step)))
                            events = step.events and given.is_success
                            pieces = EventSource(given).aiter_sse() if events else given.aiter_bytes()
                        elif isinstance(step, (int, float)):
                            await self.sleep(step)
                        else:
                            given = await anext(pieces, None)
                    except httpx.TransportError as error:
                        given = error
                    except httpx.InvalidURL as error:  # of where we were sent
                        given = httpx.UnsupportedProtocol(str(error))
                yield step


def _pieces(step: Open, response: httpx.Response) -> Iterator[Any]:
    if step.events and response.is_success:
        return EventSource(response).iter_sse()
    return large_body(response) if step.large and response.is_success else response.iter_bytes()


def _sent(peer: Peer, step: Open) -> dict[str, Any]:
    options, foreign = step.request.options(), step.request.foreign
    accept = {"Accept": "text/event-stream", "Cache-Control": "no-store"} if step.events else {}
    headers = peer.headers(foreign=foreign) | accept | options["headers"]
    url = step.request.path if foreign else peer.base + step.request.path
    if foreign:
        del options["params"]  # even none would take the place of those in the URL
    said = {"method": step.request.method, "url": url, "headers": headers}
    return options | said | {"extensions": {ENDLESS: step.events}}
