"""Separate threads for one kind of work, so that calls of another kind never delay it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import anyio.to_thread
from anyio import CapacityLimiter
from fastapi import Request, Response
from fastapi.routing import APIRoute

Result = TypeVar("Result")
Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class Threads:
    """At most `most` threads of each event loop."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._limiters = WeakKeyDictionary[asyncio.AbstractEventLoop, CapacityLimiter]()

    def limiter(self, most: int | None = None) -> CapacityLimiter:
        """Return the limiter of the running event loop, of `most` threads if a setting says so."""
        loop = asyncio.get_running_loop()
        if loop not in self._limiters:
            self._limiters[loop] = CapacityLimiter(self.most if most is None else most)
        return self._limiters[loop]

    async def run(self, work: Callable[[], Result]) -> Result:
        """Run `work` in a thread. Raises its errors."""
        return await anyio.to_thread.run_sync(work, limiter=self.limiter())


# authentication and readiness must not wait for calls that wait for the database's only writer
LOOKS = Threads(4)
SIGN_INS = Threads(4)  # they may wait for an issuer
# calls that may wait for that writer; the rest of the usual forty threads serves calls that only read
WRITERS = Threads(24)


def taking_turns(route: APIRoute, handle: Handler) -> Handler:
    """Wrap `handle` of a route whose calls may write: they wait for a thread without holding one. Routes that only read
    do not wait; coroutines choose their threads themselves."""
    if set(route.methods or ()) <= {"GET", "HEAD"} or inspect.iscoroutinefunction(route.endpoint):
        return handle

    async def in_turn(request: Request) -> Response:
        async with WRITERS.limiter():
            return await handle(request)

    return in_turn
