"""Drivers of conversations over a connection: only they send, sleep and await."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterator
from contextlib import AsyncExitStack, ExitStack, aclosing, asynccontextmanager, closing
from dataclasses import dataclass
from typing import Any, TypeVar

import httpcore
import httpx
from httpx_sse import EventSource

from label_dp.client.budgets import ENDLESS, Budget, request_seconds
from label_dp.client.conversation import Conversation, Open, Report
from label_dp.client.peer import Peer, Wire
from label_dp.client.proxies import proxy_of, variable_on
from label_dp.client.tls import machine_authorities
from label_dp.client.transport import Transport

T = TypeVar("T")
TIMEOUT = httpx.Timeout(60.0, read=300.0)
SECONDS = 330.0  # of a request, without the allowance for its size


@dataclass(frozen=True)
class _End:
    value: Any


def _next(wire: Wire[Any], result: Any) -> Any:
    """Return the next step of a conversation, or raise the error at its yield."""
    try:
        return wire.throw(result) if isinstance(result, httpx.TransportError) else wire.send(result)
    except StopIteration as stop:
        return _End(stop.value)


class Blocking:
    """Runner of conversations with `peer` on `http`."""

    def __init__(
        self, peer: Peer, http: httpx.Client | None = None, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self.http = http or httpx.Client(timeout=TIMEOUT, transport=Transport(SECONDS))
        self.peer, self.sleep = peer, sleep

    def run(self, talk: Conversation[T]) -> T:
        """Run a conversation. Raises its errors, refusals, and Unavailable if the peer does not answer."""
        with closing(self._steps(talk)) as steps:
            for step in steps:
                if isinstance(step, _End):
                    return step.value  # type: ignore[no-any-return]  # the generator's own return type
        raise AssertionError("a conversation ends")

    def follow(self, talk: Conversation[Any]) -> Iterator[Any]:
        """Yield the reports of a conversation as they come."""
        with closing(self._steps(talk)) as steps:
            for step in steps:
                if isinstance(step, Report):
                    yield step.value

    def _steps(self, talk: Conversation[Any]) -> Generator[Report[Any] | _End, None, None]:
        result: Any = None
        pieces: Iterator[Any] = iter(())
        with closing(self.peer.wire(talk)) as wire, ExitStack() as line:
            while not isinstance(step := _next(wire, result), _End):
                result = None
                try:
                    if isinstance(step, Report):
                        yield step
                    elif isinstance(step, Open):
                        line.close()
                        result = line.enter_context(self.http.stream(**_sent(self.peer, step)))
                        pieces = _pieces(step, result)
                    elif isinstance(step, (int, float)):
                        self.sleep(step)
                    else:
                        result = next(pieces, None)
                except httpx.TransportError as error:
                    result = error
                except httpx.InvalidURL as error:  # of where we were sent
                    result = httpx.UnsupportedProtocol(str(error))
            yield step


class Awaited:
    """Runner of conversations on an event loop; otherwise as `Blocking`."""

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
        result: Any = None
        pieces: Any = None
        with closing(self.peer.wire(talk)) as wire:
            async with AsyncExitStack() as line:
                while not isinstance(step := _next(wire, result), _End):
                    result = None
                    try:
                        if isinstance(step, Report):
                            yield step
                        elif isinstance(step, Open):
                            await line.aclose()
                            result = await line.enter_async_context(self.http.stream(**_sent(self.peer, step)))
                            events = step.events and result.is_success
                            pieces = EventSource(result).aiter_sse() if events else result.aiter_bytes()
                        elif isinstance(step, (int, float)):
                            await self.sleep(step)
                        else:
                            result = await anext(pieces, None)
                    except httpx.TransportError as error:
                        result = error
                    except httpx.InvalidURL as error:  # of where we were sent
                        result = httpx.UnsupportedProtocol(str(error))
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
        del options["params"]  # even an empty one would replace those in the URL
    own = {"method": step.request.method, "url": url, "headers": headers}
    return options | own | {"extensions": {ENDLESS: step.events}}


PIECE = 1 << 20


def large_body(response: httpx.Response) -> Iterator[bytes]:
    """Yield the body piece by piece. Raises httpx.TransportError.

    If its length is stated, the bytes after the head are read from the connection itself, in larger pieces than the
    HTTP parser takes and copied once less. The connection is not used again then.
    """
    stream = response.extensions.get("network_stream")
    length = response.headers.get("Content-Length", "")
    coded = "Transfer-Encoding" in response.headers or "Content-Encoding" in response.headers
    if stream is None or coded or not length.isdecimal() or response.http_version != "HTTP/1.1":
        yield from response.iter_bytes()
        return
    parsed = response.iter_raw()  # held until the end: dropped, it closes the connection
    piece = next(parsed, b"")  # the parser holds no more than this after it
    remaining = int(length) - len(piece)
    yield piece
    wait = response.request.extensions.get("timeout", {}).get("read")
    while remaining > 0:
        try:
            piece = stream.read(min(PIECE, remaining), timeout=wait)
        except httpcore.TimeoutException as error:
            raise httpx.ReadTimeout(str(error)) from None
        except httpcore.NetworkError as error:
            raise httpx.ReadError(str(error)) from None
        if not piece:
            raise httpx.ReadError("the connection was closed")
        remaining -= len(piece)
        yield piece


class AwaitedTransport(httpx.AsyncBaseTransport):
    """Transport of an awaited client, `seconds` a request (`Budget`), plus time for the stated length of its body."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._ways: dict[tuple[str | None, bool], httpx.AsyncHTTPTransport] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request. Raises InvalidSettings for a variable that names no proxy, or no certificates."""
        variable, budget = variable_on(request.url), Budget(request_seconds(self.seconds, request))
        length = request.headers.get("Content-Length", "")
        budget.moved(int(length) if length.isdecimal() else 0)
        async with _within(budget, variable):
            answer = await self._way(variable, request.url.scheme == "https").handle_async_request(request)
        extra = {**answer.extensions, "proxy": variable}
        body = _RequestBody(answer, budget, variable)
        return httpx.Response(answer.status_code, headers=answer.headers, stream=body, extensions=extra)

    async def aclose(self) -> None:
        for way in self._ways.values():
            await way.aclose()

    def _way(self, variable: str | None, secure: bool) -> httpx.AsyncHTTPTransport:
        if (variable, secure) not in self._ways:
            self._ways[variable, secure] = httpx.AsyncHTTPTransport(
                verify=machine_authorities() if secure else False,  # without TLS there is nothing to verify
                proxy=None if variable is None else proxy_of(variable),
                trust_env=False,
            )
        return self._ways[variable, secure]


class _RequestBody(httpx.AsyncByteStream):
    def __init__(self, answer: httpx.Response, budget: Budget, variable: str | None) -> None:
        self.answer, self.budget, self.variable = answer, budget, variable

    async def __aiter__(self) -> AsyncIterator[bytes]:
        pieces = aiter(self.answer.stream)  # type: ignore[arg-type]  # of an awaited answer
        while True:
            async with _within(self.budget, self.variable):
                piece = await anext(pieces, None)
            if piece is None:
                return
            self.budget.moved(len(piece))
            yield piece

    async def aclose(self) -> None:
        await self.answer.aclose()


@asynccontextmanager
async def _within(budget: Budget, variable: str | None) -> AsyncIterator[None]:
    """End the awaiting with the budget. Raises Late."""
    try:
        async with asyncio.timeout(budget.left()):
            yield
    except TimeoutError:
        budget.left()
        raise httpx.ReadTimeout("nothing came for as long as may be") from None
    except httpx.TransportError as error:
        error.proxy = variable  # type: ignore[attr-defined]  # read by `peer`
        raise
    except (UnicodeError, OverflowError):
        raise httpx.UnsupportedProtocol("this is no name of a host, or no port") from None
