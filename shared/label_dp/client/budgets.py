"""Time of a whole call of another party, not of one wait in it: a peer that sends a byte now and then is cut off
too."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx

from label_dp.errors import Busy, Unavailable

LEAST_RATE = 1 << 14  # bytes a second
POLL_SECONDS = 0.5  # within which a call ends after its service stops


ENDLESS = "endless"  # extension of a request for a stream of events, which has no end of its own
LONGEST = 1e9
AT_ONCE = 16  # of 40 threads
OF_ONE = 8  # of one party, so that a slow one leaves room for others
SECONDS = 300.0  # of a call with all its requests, without the allowance for its bytes


def request_seconds(usual: float, request: httpx.Request) -> float:
    """Return the `usual` seconds; LONGEST for a stream of events, which its reader ends."""
    return LONGEST if request.extensions.get(ENDLESS) else usual


class Late(httpx.TransportError):
    """Raised if a call took longer than it may; its text is a sentence."""


class Budget:
    """Time of a call: `seconds`, and one more for each `LEAST_RATE` bytes moved; it ends earlier with `within` or when
    `stopping` returns True."""

    def __init__(
        self, seconds: float, within: Budget | None = None, stopping: Callable[[], bool] | None = None
    ) -> None:
        self.seconds, self.within, self.stopping = seconds, within, stopping
        self._end, self._lock = time.monotonic() + seconds, threading.Lock()

    def left(self) -> float:
        """Return the remaining seconds, more than zero. Raises Late."""
        if self.stopping is not None and self.stopping():
            raise Late("The call was given up, because the service stops; repeat it.")
        remaining = self._end - time.monotonic()
        if remaining <= 0:
            raise Late(
                f"The call was given up: it took longer than {self.seconds:g} s and a second for each "
                f"{LEAST_RATE >> 10} KiB. Ask who answers so slowly."
            )
        return remaining if self.within is None else min(remaining, self.within.left())

    def moved(self, count: int) -> None:
        """Count `count` bytes sent or received."""
        with self._lock:
            self._end += count / LEAST_RATE
        if self.within is not None:
            self.within.moved(count)

    def sleep(self, seconds: float) -> None:
        """Pause between requests, no longer than the remaining time. Raises Unavailable."""
        end = time.monotonic() + seconds
        try:
            while (rest := end - time.monotonic()) > 0:
                time.sleep(min(rest, self.left(), POLL_SECONDS))
            self.left()
        except Late as late:
            raise Unavailable(str(late)) from None


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
