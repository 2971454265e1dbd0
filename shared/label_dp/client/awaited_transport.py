"""The way of an awaited client: as `transport`, on an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx

from label_dp.client.budgets import Budget, request_seconds
from label_dp.client.proxies import proxy_of, variable_on
from label_dp.client.tls import machine_authorities


class AwaitedTransport(httpx.AsyncBaseTransport):
    """`seconds` a request (`Budget`), to which the stated length of what is sent adds at once."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._ways: dict[tuple[str | None, bool], httpx.AsyncHTTPTransport] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Raises InvalidSettings for a variable that names no proxy, or no certificates."""
        variable, budget = variable_on(request.url), Budget(request_seconds(self.seconds, request))
        length = request.headers.get("Content-Length", "")
        budget.moved(int(length) if length.isdecimal() else 0)
        async with _within(budget, variable):
            answer = await self._way(variable, request.url.scheme == "https").handle_async_request(request)
        extra = {**answer.extensions, "proxy": variable}
        body = _Body(answer, budget, variable)
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


class _Body(httpx.AsyncByteStream):
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
    """What is awaited ends with the budget. Raises Late."""
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
