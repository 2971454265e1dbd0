"""Streams prepared by threads: they make the items, the caller takes them in order."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

T = TypeVar("T")
R = TypeVar("R")
AHEAD = 2


def in_turn(pool: Executor, work: Callable[[T], R], items: Iterable[T], most: int) -> Iterator[R]:
    """Yield `work` of each item, in order; the pool is at most about `most` items ahead."""
    waiting: deque[Future[R]] = deque()
    for item in items:
        waiting.append(pool.submit(work, item))
        del item  # whoever waits for a result must not hold what it is made from
        while len(waiting) > most:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def ahead(items: Iterable[T]) -> Iterator[T]:
    """Yield the same items, made by a thread that is at most a few ahead; its errors are raised here."""
    waiting: queue.Queue[tuple[str, Any]] = queue.Queue(AHEAD)
    stopped = threading.Event()

    def put(kind: str, item: Any) -> bool:
        while not stopped.is_set():
            try:
                waiting.put((kind, item), timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def work() -> None:
        try:
            if all(put("item", item) for item in items):
                put("end", None)
        except BaseException as error:
            put("error", error)
        finally:
            close = getattr(items, "close", None)
            if close is not None:  # a generator that was not read to its end cleans up here
                close()

    thread = threading.Thread(target=work, name="read-ahead", daemon=True)
    thread.start()
    try:
        while True:
            kind, item = waiting.get()
            if kind == "error":
                raise item
            if kind == "end":
                return
            yield item
    finally:
        stopped.set()
        thread.join()
