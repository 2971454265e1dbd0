"""The background worker of `serve`: seals and charges what its time has come for, draws charged releases, resumes
those a crash left behind, purges labels whose retention is over."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from labels_party.labels.erasures import Erasures
from labels_party.labels.sweep import Sweep
from labels_party.release.pipeline import Pipeline
from labels_party.release.retention import Retention
from labels_party.release.schedule import Schedule
from shared.errors import LabelDPError, Unavailable

log = logging.getLogger("label_dp.release")
MAX_PAUSE = 60.0


class Worker:
    """One thread; `wake` after a request, else it looks every `poll_seconds`. `stop` waits for the current draw.

    `also` is further work that was charged, done after the releases.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        schedule: Schedule,
        retention: Retention,
        erasures: Erasures,
        sweep: Sweep,
        poll_seconds: float,
        also: tuple[Callable[[Callable[[], bool]], int], ...] = (),
    ) -> None:
        self.pipeline, self.schedule, self.retention, self.sweep = pipeline, schedule, retention, sweep
        self.erasures, self.poll_seconds, self.also = erasures, poll_seconds, also
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
        """Run every release that waits, once, after the schedule; returns how many were published."""
        releases = self.pipeline.releases
        done = 0
        # erasures before draws, so that a release that was only charged leaves the erased labels out
        failure: Exception | None = self._chore(self.schedule.run_due) or self._chore(self.erasures.finish)
        waiting = releases.database.read("worker.look", releases.working)
        for release in waiting:
            if self._stop.is_set():
                break
            try:
                done += self.pipeline.run(release.id)
            except Unavailable as error:
                log.warning("release %s waits: %s", release.id, error.code)
                failure = error
            except LabelDPError as error:
                log.warning("release %s failed: %s", release.id, error.code)
            except Exception as error:
                failure = error  # a bug with one release must not keep the others waiting
        for run_due in self.also:
            failure = self._chore(run_due) or failure
        failure = self._chore(self.retention.run_due) or self._chore(self.sweep.run_daily) or failure
        if failure is not None:
            raise failure
        return done

    def _chore(self, run_due: Callable[[Callable[[], bool]], int]) -> Exception | None:
        try:
            run_due(self._stop.is_set)
        except Exception as error:  # the releases are drawn all the same
            return error
        return None

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
