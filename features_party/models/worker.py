"""The training thread, one per home, while this process holds the home's worker lock."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator

from features_party.models.jobs import Trainings
from label_dp.http import worker

STOP_SECONDS = 5.0  # then the next start handles a training that does not end


class TrainingWorker(worker.Worker):
    """Worker that runs trainings one by one, alone by a lock that the operating system drops with the process."""

    def __init__(self, trainings: Trainings, poll_seconds: float = 1.0) -> None:
        super().__init__("training-worker", poll_seconds)
        self._trainings, self._recovered = trainings, False

    def round(self) -> bool:
        """Run the next training; a stopped one is requeued."""
        if not self._recovered:
            self._trainings.recover()
            self._recovered = True
        return self._trainings.run_next(self.stopping)

    def stop(self, timeout: float | None = STOP_SECONDS) -> None:
        super().stop(timeout)

    @contextlib.contextmanager
    def session(self) -> Iterator[None]:
        with self._trainings.home.worker_lock.open("w") as file:
            while not self.stopping():
                self.moves()
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    self._stop.wait(self.poll_seconds)  # another process trains; take over when it ends
                else:
                    break
            yield
