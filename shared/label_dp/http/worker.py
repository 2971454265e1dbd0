"""Background thread of a service: rounds of work, a wake-up call, growing pauses while something fails."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator

from label_dp.errors import LabelDPError
from label_dp.logs import event, log_internal

log = logging.getLogger("label_dp.worker")
MAX_PAUSE = 60.0


class Worker(ABC):
    """Thread that does a `round` at the start, after each `wake`, and every `poll_seconds`; after a failed one it waits
    longer. A failure is logged by its code or its type, never by its text or locals: those may hold labels."""

    logs_codes = True  # of refusals; False where a refusal's code may depend on labels

    def __init__(self, name: str, poll_seconds: float) -> None:
        self.name, self.poll_seconds = name, poll_seconds
        self._wake, self._stop = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._moved = time.monotonic()

    @abstractmethod
    def round(self) -> bool:
        """Do the due work; returns whether more waits, so that no pause follows."""

    @contextlib.contextmanager
    def session(self) -> Iterator[None]:
        """Hold a resource while the thread does rounds; runs on the thread itself."""
        yield

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self._thread.start()

    def wake(self) -> None:
        self._wake.set()

    def stopping(self) -> bool:
        return self._stop.is_set()

    def alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def moves(self) -> None:
        """Record a sign of life, at the beginning and the end of each round."""
        self._moved = time.monotonic()

    def silent_seconds(self) -> float:
        """Return the seconds since the last sign of life."""
        return time.monotonic() - self._moved

    def stop(self, timeout: float | None = None) -> None:
        """End the thread once its round is done; wait for that, at most `timeout` seconds."""
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout)

    def _run(self) -> None:
        with self.session():
            pause = self.poll_seconds
            while not self.stopping():
                self.moves()
                try:
                    more, pause = self.round(), self.poll_seconds
                except LabelDPError as error:  # such as an unreachable database
                    if self.logs_codes:
                        extra = event("worker-waits", worker=self.name, code=error.code)
                        log.warning("%s: waits (%s)", self.name, error.code, extra=extra)
                    more, pause = False, min(MAX_PAUSE, pause * 2)
                except Exception as error:
                    log_internal(log, self.name, error, worker=self.name)
                    more, pause = False, min(MAX_PAUSE, pause * 2)
                self.moves()
                if not more:
                    self._wake.wait(pause)
                    self._wake.clear()
