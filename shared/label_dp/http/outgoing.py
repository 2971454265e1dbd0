"""Calls to other parties while a caller waits: few at once, each with a deadline. Each takes a thread from those that
answer callers. The limits keep threads free, and no call outlives the service."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from label_dp.client.budgets import Budget
from label_dp.errors import Busy

AT_ONCE = 16  # of 40 threads
OF_ONE = 8  # of one party, so that a slow one leaves room for others
SECONDS = 300.0  # of a call with all its requests, without the allowance for its bytes


class Outgoing:
    """Limits of calls to other parties. `stopping` returns True once the service ends; the server sets it."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self.seconds = seconds
        self.stopping: Callable[[], bool] = lambda: False
        self._running: Counter[str] = Counter()
        self._lock = threading.Lock()

    @contextmanager
    def call(self, party: str) -> Iterator[Budget]:
        """Yield the time that a call of `party`, a URL, may take with all its requests. Raises Busy at the limit."""
        with self._lock:
            if self._running.total() >= AT_ONCE or self._running[party] >= OF_ONE:
                raise Busy(
                    f"{self._running.total()} calls of other parties are under way, {self._running[party]} of them of "
                    "this one; try again in a moment."
                )
            self._running[party] += 1
        try:
            yield Budget(self.seconds, stopping=lambda: self.stopping())
        finally:
            with self._lock:
                self._running[party] -= 1
