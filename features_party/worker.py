"""The thread that trains, one at a time, while this process holds the home's worker lock."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import threading
from collections.abc import Iterator

from features_party.jobs import Trainings
from shared.errors import LabelDPError

log = logging.getLogger("label_dp.features_party")


class Worker:
    """Runs trainings one by one; a lock that the operating system drops with the process keeps it the only one."""

    def __init__(self, trainings: Trainings, poll_seconds: float = 1.0) -> None:
        self._trainings, self._poll = trainings, poll_seconds
        self._wake, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="trainings", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def alive(self) -> bool:
        return self._thread.is_alive()

    def wake(self) -> None:
        self._wake.set()

    def stop(self, timeout: float = 5.0) -> None:
        """End the thread; a training it is in goes back in line. After `timeout` seconds the next start sees to it."""
        self._stop.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def _run(self) -> None:
        with self._lock() as held:
            recovered = False
            while held and not self._stop.is_set():
                try:
                    if not recovered:
                        self._trainings.recover()
                        recovered = True
                    if self._trainings.run_next(self._stop.is_set):
                        continue
                except LabelDPError as error:  # the database is away: wait for it
                    log.warning("the training worker waits: %s", error.code)
                self._wake.wait(self._poll)
                self._wake.clear()

    @contextlib.contextmanager
    def _lock(self) -> Iterator[bool]:
        with self._trainings.home.worker_lock.open("w") as file:
            while not self._stop.is_set():
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    self._stop.wait(self._poll)  # another process trains; take over when it ends
                else:
                    break
            yield not self._stop.is_set()
