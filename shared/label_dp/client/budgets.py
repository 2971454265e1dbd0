"""The time of a whole call of another party, not of one wait in it. A peer that sends a byte now and then, for ever, is
cut off like one that does not answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import httpx

from label_dp.errors import Unavailable

LEAST_RATE = 1 << 14  # bytes a second
POLL_SECONDS = 0.5  # how soon a call ends with its service


ENDLESS = "endless"  # extension of a request whose answer has no end of its own: a stream of events
LONGEST = 1e9


def request_seconds(usual: float, request: httpx.Request) -> float:
    """The `usual` seconds, but for a stream of events, which its reader ends."""
    return LONGEST if request.extensions.get(ENDLESS) else usual


class Late(httpx.TransportError):
    """A call took longer than it may; its text is a sentence."""


class Budget:
    """`seconds`, and one more for each `LEAST_RATE` bytes that moved; less where `within` ends before, or is
    `stopping`."""

    def __init__(
        self, seconds: float, within: Budget | None = None, stopping: Callable[[], bool] | None = None
    ) -> None:
        self.seconds, self.within, self.stopping = seconds, within, stopping
        self._end, self._lock = time.monotonic() + seconds, threading.Lock()

    def left(self) -> float:
        """Seconds, more than none. Raises Late."""
        if self.stopping is not None and self.stopping():
            raise Late("The call was given up, because the service stops; repeat it.")
        left = self._end - time.monotonic()
        if left <= 0:
            raise Late(
                f"The call was given up: it took longer than {self.seconds:g} s and a second for each "
                f"{LEAST_RATE >> 10} KiB. Ask who answers so slowly."
            )
        return left if self.within is None else min(left, self.within.left())

    def moved(self, count: int) -> None:
        """That `count` bytes went or came."""
        with self._lock:
            self._end += count / LEAST_RATE
        if self.within is not None:
            self.within.moved(count)

    def sleep(self, seconds: float) -> None:
        """A pause between requests, which ends with the time. Raises Unavailable."""
        end = time.monotonic() + seconds
        try:
            while (rest := end - time.monotonic()) > 0:
                time.sleep(min(rest, self.left(), POLL_SECONDS))
            self.left()
        except Late as late:
            raise Unavailable(str(late)) from None
