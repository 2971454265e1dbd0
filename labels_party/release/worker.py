"""The background worker of `serve`: seals and charges what its time has come for, does what was charged, resumes what a
crash left behind, purges labels whose retention is over."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from shared.errors import LabelDPError

log = logging.getLogger("label_dp.release")
MAX_PAUSE = 60.0
Chore = Callable[[Callable[[], bool]], int]  # gets whether to stop; returns how much it did


class Worker:
    """One thread; `wake` after a request, else it looks every `poll_seconds`. `stop` waits for what is being drawn.

    A round does the chores `before`, then what was `charged`, then the chores `after`.
    """

    def __init__(
        self,
        before: tuple[Chore, ...],
        charged: tuple[Chore, ...],
        after: tuple[Chore, ...],
        poll_seconds: float,
    ) -> None:
        self.before, self.charged, self.after, self.poll_seconds = before, charged, after, poll_seconds
        self._wake, self._stop = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._loop, name="release-worker", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        self._wake.set()

    def stop(self) -> None:
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def drain(self) -> int:
        """One round; returns how much of what was charged was done. Raises the last failure, after the whole round."""
        done, failures = 0, list[Exception]()
        for chore in (*self.before, *self.charged, *self.after):
            try:
                count = chore(self._stop.is_set)
                done += count if chore in self.charged else 0
            except Exception as error:  # the other chores are done all the same
                failures.append(error)
        if failures:
            raise failures[-1]
        return done

    def _loop(self) -> None:
        pause = self.poll_seconds
        while not self._stop.is_set():
            try:
                self.drain()
                pause = self.poll_seconds
            except LabelDPError:
                pause = min(MAX_PAUSE, pause * 2)
            except Exception as error:
                # neither text nor locals: they may hold labels; the release stays charged and is tried again
                log.error("release worker: internal error of type %s", type(error).__name__)
                pause = min(MAX_PAUSE, pause * 2)
            self._wake.wait(pause)
            self._wake.clear()
