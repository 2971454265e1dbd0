"""Threads of their own for one kind of work, so that calls of another kind never keep it waiting."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import anyio.to_thread
from anyio import CapacityLimiter
from anyio.lowlevel import RunVar
from fastapi import Request, Response
from fastapi.routing import APIRoute

Result = TypeVar("Result")
Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class Threads:
    """`most` threads of each event loop."""

    def __init__(self, name: str, most: int) -> None:
        self.most, self._limiters = most, RunVar[CapacityLimiter](name)

    def limiter(self, most: int | None = None) -> CapacityLimiter:
        """Of the event loop that runs; of `most` threads where a setting says so."""
        try:
            return self._limiters.get()
        except LookupError:
            found = CapacityLimiter(self.most if most is None else most)
            self._limiters.set(found)
            return found

    async def run(self, work: Callable[[], Result]) -> Result:
        """Raises what `work` raises."""
        return await anyio.to_thread.run_sync(work, limiter=self.limiter())


# who calls, and whether the service is ready: neither may wait for calls that wait for the database's only writer
LOOKS = Threads("looks", 4)
# calls that may wait for that writer: the rest of the usual forty threads is left to those that only read
WRITERS = Threads("writers", 24)


def taking_turns(route: APIRoute, handle: Handler) -> Handler:
    """`handle` of a route whose calls may write, in turns with all others; they wait without a thread. Calls that only
    read wait for none, and those that are no plain function choose threads themselves."""
    if set(route.methods or ()) <= {"GET", "HEAD"} or inspect.iscoroutinefunction(route.endpoint):
        return handle

    async def in_turn(request: Request) -> Response:
        async with WRITERS.limiter():
            return await handle(request)

    return in_turn
