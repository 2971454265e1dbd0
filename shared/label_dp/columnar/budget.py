"""One budget of memory for what all calls of a process decode.

A few kilobytes may become hundreds of megabytes, and many calls of a few kilobytes together any number of them.
Whoever decodes says before how much it may become (`needs`), by what the bytes claim of themselves. Within a call of a
service that much is taken from its budget until the call ends; a command on files has no budget.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from label_dp.errors import Busy

FREE = 1 << 22  # bytes of a call that are not counted; times the number of calls, that is little
PATIENCE = 20.0  # seconds

_current: ContextVar[Share | None] = ContextVar("share", default=None)


def needs(size: int, *, wait: bool = True) -> None:
    """Take `size` bytes, if this is done for a call of a service. Raises Busy where they do not become free in time, or
    are not free now where it should not `wait`."""
    share = _current.get()
    if share is not None:
        share.need(size, wait=wait)


class DecodeBudget:
    """`most` bytes. A single call that needs more has all of it, alone."""

    def __init__(self, most: int, patience: float = PATIENCE) -> None:
        self.most, self.patience, self.taken = most, patience, 0
        self._changed = threading.Condition()
        self._waiting: deque[object] = deque()  # in the order in which they came

    @contextmanager
    def share(self) -> Iterator[Share]:
        """What one call takes, until it ends; also of threads that work for it."""
        share = Share(self)
        token = _current.set(share)
        try:
            yield share
        finally:
            _current.reset(token)
            share.close()

    def take(self, size: int, *, wait: bool = True) -> None:
        """Raises Busy."""
        me, end = object(), time.monotonic() + (self.patience if wait else 0)
        with self._changed:
            self._waiting.append(me)
            try:
                while self._waiting[0] is not me or self.taken + size > self.most:
                    left = end - time.monotonic()
                    if left <= 0:
                        raise Busy("Other calls fill the memory that this service decodes in; try again in a moment.")
                    self._changed.wait(left)
                self.taken += size
            finally:
                self._waiting.remove(me)
                self._changed.notify_all()

    def give(self, size: int) -> None:
        with self._changed:
            self.taken -= size
            self._changed.notify_all()


class Share:
    """What one call holds of a budget."""

    def __init__(self, budget: DecodeBudget) -> None:
        self.budget, self.held, self._closed = budget, 0, False
        self._lock = threading.Lock()

    def need(self, size: int, *, wait: bool = True) -> None:
        """Hold `size` bytes. A call waits once, while it holds nothing: two that hold and wait would wait for ever.
        Raises Busy."""
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
