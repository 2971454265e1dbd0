"""Work on a stream in two threads: one makes the items, the other takes them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")
AHEAD = 2


def ahead(items: Iterable[T]) -> Iterator[T]:
    """The same items, made by a thread that is at most a few ahead; what it raises is raised here."""
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
