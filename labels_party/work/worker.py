"""The background worker of `serve`: seals and charges what its time has come for, does what was charged, resumes what a
crash left behind, purges labels whose retention is over."""

from __future__ import annotations

from collections.abc import Callable

from label_dp.http import worker

Chore = Callable[[Callable[[], bool]], int]  # gets whether to stop; returns how much it did


class ReleaseWorker(worker.Worker):
    """A round does the chores `before`, then what was `charged`, then the chores `after`.

    After a failure what was charged stays charged and is tried again.
    """

    logs_codes = False  # a refusal to seal depends on labels

    def __init__(
        self, before: tuple[Chore, ...], charged: tuple[Chore, ...], after: tuple[Chore, ...], poll_seconds: float
    ) -> None:
        super().__init__("release-worker", poll_seconds)
        self.before, self.charged, self.after = before, charged, after

    def round(self) -> bool:
        self.drain()
        return False

    def drain(self) -> int:
        """One round; returns how much of what was charged was done. Raises the last failure, after the whole round."""
        done, failures = 0, list[Exception]()
        for chore in (*self.before, *self.charged, *self.after):
            try:
                count = chore(self.stopping)
                done += count if chore in self.charged else 0
            except Exception as error:  # the other chores are done all the same
                failures.append(error)
        if failures:
            raise failures[-1]
        return done
