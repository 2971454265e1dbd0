"""Batching of concurrent work: one call in a thread for all waiting items."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, Generic, TypeVar

import anyio.to_thread

from label_dp.errors import Unavailable

Item = TypeVar("Item")
Result = TypeVar("Result")
MOST, MOST_WEIGHT = 64, 1 << 22  # items of one call, and their total weight
PAUSE = 0.25  # of a call's time until the next: who was answered asks again, and one call costs less than two by turns


class Gathered(Generic[Item, Result]):
    """Batches of calls: `work(key, items)` returns a result or an error for each item. While it runs, further items of
    that key wait for the next call; a single one does not wait. Each event loop has its own calls. `weight`, such as
    bytes of an item, bounds a call of several."""

    def __init__(
        self,
        work: Callable[[Any, Sequence[Item]], Sequence[Result | Exception]],
        weight: Callable[[Item], int] = lambda _: 0,
    ) -> None:
        self.work, self.weight = work, weight
        self._waiting: dict[tuple[Any, Hashable], list[tuple[Item, asyncio.Future[Result]]]] = {}
        self._running: set[asyncio.Task[None]] = set()

    async def do(self, key: Hashable, item: Item, limiter: anyio.CapacityLimiter | None = None) -> Result:
        """Return the result of `item`. Raises its error, and the errors of `work`."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        place = (loop, key)
        if place in self._waiting:
            self._waiting[place].append((item, future))
        else:
            self._waiting[place] = [(item, future)]
            task = loop.create_task(self._all(place, limiter))
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        return await future

    async def _all(self, place: tuple[Any, Hashable], limiter: anyio.CapacityLimiter | None) -> None:
        now, pause = list[tuple[Item, asyncio.Future[Result]]](), 0.0
        while True:
            try:
                await asyncio.sleep(pause)
                waiting = self._waiting[place]
                weights = accumulate(self.weight(item) for item, _ in waiting[:MOST])
                count = max(1, sum(weight <= MOST_WEIGHT for weight in weights))
                now, self._waiting[place], start = waiting[:count], waiting[count:], time.monotonic()
                if not now:
                    break
                work = partial(self.work, place[1], [item for item, _ in now])
                results = await anyio.to_thread.run_sync(work, limiter=limiter)
            except Exception as error:
                results = [error] * len(now)
            except BaseException:  # of the thread or this task: nobody may wait for ever
                for _, future in [*now, *self._waiting.pop(place)]:
                    if not future.done():
                        future.set_exception(Unavailable("The service stops; try again."))
                raise
            for (_, future), result in zip(now, results, strict=True):
                if future.done():  # the waiting task was cancelled
                    continue
                if isinstance(result, Exception):
                    future.set_exception(result)
                else:
                    future.set_result(result)
            pause = PAUSE * (time.monotonic() - start) if len(now) > 1 else 0.0
        del self._waiting[place]
