"""Conversations of `label_dp.client` with a scripted service, in either flavour and without waiting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx

from label_dp.client.conversation import Conversation
from label_dp.client.drivers import Awaited, Blocking
from label_dp.client.peer import Peer

Handle = Callable[[httpx.Request], httpx.Response]
FLAVOURS = ("blocking", "awaited")


class Broken(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A body that gives `pieces` and then breaks off."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces, self.closed = pieces, False

    def __iter__(self) -> Iterator[bytes]:
        yield from self.pieces
        raise httpx.ReadError("gone")

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            yield piece
        raise httpx.ReadError("gone")

    def close(self) -> None:
        self.closed = True

    async def aclose(self) -> None:
        self.closed = True


class Line:
    """A peer at http://x whose answers `handle` scripts; `seen` and `pauses` are what it was asked and how long it was
    left alone."""

    def __init__(self, flavour: str, handle: Handle, **peer: Any) -> None:
        self.flavour, self.handle = flavour, handle
        self.peer = Peer("thing", "http://x", "key", **peer)
        self.seen: list[httpx.Request] = []
        self.pauses: list[float] = []

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.seen.append(request)
        return self.handle(request)

    async def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)

    def run(self, talk: Conversation[Any]) -> Any:
        if self.flavour == "blocking":
            http = httpx.Client(transport=httpx.MockTransport(self._answer))
            return Blocking(self.peer, http, self.pauses.append).run(talk)
        return asyncio.run(Awaited(self.peer, self._awaited(), self._sleep).run(talk))

    def follow(self, talk: Conversation[Any], most: int | None = None) -> list[Any]:
        """What the conversation says; it is left after `most`."""
        found: list[Any] = []
        if self.flavour == "blocking":
            http = httpx.Client(transport=httpx.MockTransport(self._answer))
            for said in (stream := Blocking(self.peer, http, self.pauses.append).follow(talk)):
                found.append(said)
                if len(found) == most:
                    break
            stream.close()  # type: ignore[attr-defined]  # a generator
            return found

        async def listen() -> None:
            stream = Awaited(self.peer, self._awaited(), self._sleep).follow(talk)
            async for said in stream:
                found.append(said)
                if len(found) == most:
                    break
            await stream.aclose()  # type: ignore[attr-defined]  # a generator

        asyncio.run(listen())
        return found

    def _awaited(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.MockTransport(self._answer))


def page_of(rows: Any, cursor: str | None) -> httpx.Response:
    """A page of a listing, and where the next one begins."""
    return httpx.Response(200, json=rows, headers={"Link": f'<?cursor={cursor}>; rel="next"'} if cursor else {})
