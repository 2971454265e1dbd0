"""Memory budget of all decoding in a process.

A few kilobytes may become hundreds of megabytes, and many small calls together any number of them. So each decoder
first declares its largest result (`needs`), from the bytes' own claims. Within a service's call this is taken from the
budget until the call ends; a command on files has no budget.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from label_dp.errors import Busy

FREE = 1 << 22  # bytes of a call that are not counted; negligible even for all calls
PATIENCE = 20.0  # seconds

_current: ContextVar[Share | None] = ContextVar("share", default=None)


def needs(size: int, *, wait: bool = True) -> None:
    """Take `size` bytes within a service's call. Raises Busy if they do not become free in time, or at once without
    `wait`."""
    share = _current.get()
    if share is not None:
        share.need(size, wait=wait)


class DecodeBudget:
    """Budget of `most` bytes. A single call that needs more gets all of it, alone."""

    def __init__(self, most: int, patience: float = PATIENCE) -> None:
        self.most, self.patience, self.taken = most, patience, 0
        self._changed = threading.Condition()
        self._waiting: deque[object] = deque()  # in order of arrival

    @contextmanager
    def share(self) -> Iterator[Share]:
        """Yield the share of one call, also for threads that work for it; freed at the end."""
        share = Share(self)
        token = _current.set(share)
        try:
            yield share
        finally:
            _current.reset(token)
            share.close()

    def take(self, size: int, *, wait: bool = True) -> None:
        """Take bytes of the budget. Raises Busy."""
        me, end = object(), time.monotonic() + (self.patience if wait else 0)
        with self._changed:
            self._waiting.append(me)
            try:
                while self._waiting[0] is not me or self.taken + size > self.most:
                    remaining = end - time.monotonic()
                    if remaining <= 0:
                        raise Busy("Other calls fill the memory that this service decodes in; try again in a moment.")
                    self._changed.wait(remaining)
                self.taken += size
            finally:
                self._waiting.remove(me)
                self._changed.notify_all()

    def give(self, size: int) -> None:
        with self._changed:
            self.taken -= size
            self._changed.notify_all()


class Share:
    """Bytes of the budget that one call has taken."""

    def __init__(self, budget: DecodeBudget) -> None:
        self.budget, self.held, self._closed = budget, 0, False
        self._lock = threading.Lock()

    def need(self, size: int, *, wait: bool = True) -> None:
        """Take bytes up to `size` in total. Raises Busy. A call waits only while it has taken nothing: two that have
        some and wait would wait for ever."""
        with self._lock:
            more = min(size, self.budget.most) - self.held
            if size > FREE and more > 0 and not self._closed:
                self.budget.take(more, wait=wait and not self.held)
                self.held += more

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self.held:
                self.budget.give(self.held)
                self.held = 0
